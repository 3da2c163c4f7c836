"""What a row says is used or refuses the row: no column, flag, call or turn goes by itself."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import (
    Columns,
    Conversation,
    Example,
    FormatOptions,
    Message,
    Pair,
    Record,
    Row,
    StepChain,
)
from stages.errors import DataError, RowError
from stages.format import Format
from stages.normalize.evidence import detect
from stages.normalize.stage import Normalize

Q, A, B = ("user", "q"), ("assistant", "a"), ("assistant", "b")
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}
OTHER = {"type": "function", "function": {"name": "sub", "parameters": {}}}
TEMPLATED = "<|im_start|>user\nP<|im_end|>\n<|im_start|>assistant\n"
STEPS = {"completions": ["s", "t"], "labels": [True, False]}
JOINED = {"input": "P Step 1: s ки", "label": "P Step 1: s +"}


def turns(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    """Turns in the spelling of ``messages``."""
    return [{"role": role, "content": content} for role, content in pairs]


def said(*pairs: tuple[str, str], **fields: Any) -> list[Message]:
    """The same as normalize reads them; the last with fields beside its text."""
    found = [Message(role, content) for role, content in pairs]
    found[-1].fields = fields or None
    return found


def read(name: str, row: Row, **options: Any) -> list[Example]:
    """The examples of a row."""
    found = formats.load(name)
    return found.read(row, FormatOptions(**options))


def answer(**more: Any) -> Row:
    """A question and an answer whose turn says more."""
    return {"messages": [*turns(Q), {"role": "assistant", "content": "a", **more}]}


WHOLE = {"chosen": turns(Q, A), "rejected": turns(Q, B)}
HISTORY = {"history": [["q0", "a0"]]}
BEFORE = [("user", "q0"), ("assistant", "a0")]
SYSTEM = ("system", "s")

# format, row, examples
USED: dict[str, tuple[str, Row, list[Example]]] = {
    "history_before_turns": (
        "openai",
        {**HISTORY, "system": "s", "messages": turns(Q, A)},
        [Conversation(said(SYSTEM, *BEFORE, Q, A))],
    ),
    "history_behind_the_turns_own_system_text": (
        "sharegpt",
        {**HISTORY, "conversations": turns(SYSTEM, Q, A)},
        [Conversation(said(SYSTEM, *BEFORE, Q, A))],
    ),
    "history_that_the_turns_begin_with": (
        "openai",
        {**HISTORY, "messages": turns(SYSTEM, *BEFORE, Q, A)},
        [Conversation(said(SYSTEM, *BEFORE, Q, A))],
    ),
    "system_and_history_before_whole_sides": (
        "preference",
        {**WHOLE, **HISTORY, "system": "s"},
        [Pair(said(SYSTEM, *BEFORE, Q), said(A), said(B), None, None)],
    ),
    "a_system_prompt_beside_an_empty_system": (
        "openai",
        {"system": "", "system_prompt": "s", "messages": turns(Q, A)},
        [Conversation(said(SYSTEM, Q, A))],
    ),
    "an_instruction_that_says_nothing": (
        "query_response",
        {"instruction": "", "question": "q", "answer": "a"},
        [Conversation(said(Q, A))],
    ),
    "functions_beside_empty_tools": (
        "openai",
        {"messages": turns(Q, A), "tools": None, "functions": [TOOL]},
        [Conversation(said(Q, A), [TOOL])],
    ),
    "tools_of_an_instruction": (
        "alpaca",
        {"instruction": "q", "output": "a", "tools": [TOOL]},
        [Conversation(said(Q, A), [TOOL])],
    ),
    "context_beside_an_empty_input": (
        "alpaca",
        {"instruction": "q", "input": "", "context": "x", "output": "a"},
        [Conversation(said(("user", "q\n\nx"), A))],
    ),
    "reasoning_of_a_call": (
        "sharegpt",
        {
            "conversations": [
                {"from": "human", "value": "q"},
                {
                    "from": "function_call",
                    "value": '{"name": "add", "arguments": {"a": 1}}',
                    "reasoning": "hm",
                },
            ]
        },
        [
            Conversation(
                [
                    *said(Q),
                    Message("assistant", None, {"tool_calls": [CALL], "reasoning_content": "hm"}),
                ]
            )
        ],
    ),
    "one_of_two_spellings_of_no_call": (
        "openai",
        answer(tool_calls=[], function_call=None),
        [Conversation(said(Q, A))],
    ),
    "an_instruction_twice": (
        "alpaca",
        {"instruction": "q", "prompt": "q", "output": "a"},
        [Conversation(said(Q, A))],
    ),
    "flags_that_agree": (
        "openai",
        answer(loss=True, weight=0.5, train=1),
        [Conversation([*said(Q), Message("assistant", "a", None, True, 0.5)])],
    ),
}


@pytest.mark.parametrize(("name", "row", "examples"), USED.values(), ids=USED)
def test_what_stands_beside_a_conversation_is_part_of_it(
    name: str, row: Row, examples: list[Example]
) -> None:
    """System texts, histories, tools, calls and reasoning reach the example from wherever."""
    assert read(name, row) == examples


# format, row, code
REFUSED: dict[str, tuple[str, Row, str]] = {
    "a_question_beside_an_instruction": (
        "alpaca",
        {"instruction": "Answer the question.", "question": "2+2?", "output": "4"},
        "bad_column",
    ),
    "two_system_columns": (
        "openai",
        {"system": "s", "system_prompt": "t", "messages": turns(Q, A)},
        "two_system_texts",
    ),
    "two_spellings_of_a_call": (
        "openai",
        answer(tool_calls=[CALL], function_call=CALL["function"]),
        "bad_tool_call",
    ),
    "a_call_beside_a_call": (
        "sharegpt",
        {
            "conversations": [
                {"from": "function_call", "value": '{"name": "f"}', "tool_calls": [CALL]}
            ]
        },
        "bad_tool_call",
    ),
    "flags_that_differ": ("openai", answer(weight=1, train=False), "bad_weight"),
    "a_weight_that_is_not_trained": ("openai", answer(weight=0.5, loss=0), "bad_weight"),
    "two_columns_of_tools": (
        "openai",
        {"messages": turns(Q, A), "tools": [TOOL], "functions": [OTHER]},
        "bad_tools",
    ),
    "another_prompt_as_turns": (
        "preference",
        {**WHOLE, "prompt": turns(("user", "something else"))},
        "prompt_differs",
    ),
    "a_system_text_of_the_prompt_alone": (
        "preference",
        {**WHOLE, "prompt": turns(SYSTEM, Q)},
        "prompt_differs",
    ),
    "two_contexts": (
        "alpaca",
        {"instruction": "q", "input": "x", "context": "y", "output": "a"},
        "bad_column",
    ),
    "an_instruction_among_questions": (
        "query_response",
        {"instruction": "q", "input": "x", "output": "a"},
        "bad_column",
    ),
    "steps_behind_a_system_column": (
        "stepwise",
        {**STEPS, "prompt": "P", "system": "s"},
        "system_text",
    ),
    "joined_steps_behind_a_system_column": (
        "math_shepherd",
        {**JOINED, "system_prompt": "s"},
        "system_text",
    ),
    "steps_behind_a_history": ("stepwise", {**STEPS, "prompt": "P", **HISTORY}, "bad_column"),
    "a_templated_problem": ("stepwise", {**STEPS, "prompt": TEMPLATED}, "already_templated"),
    "a_templated_joined_problem": (
        "openrlhf_prm",
        {"input": f"{TEMPLATED}Step 1: s ки", "value": ["+"]},
        "already_templated",
    ),
}


@pytest.mark.parametrize(("name", "row", "code"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_place_refuses_the_row(name: str, row: Row, code: str) -> None:
    """Nobody chooses between two columns, flags or calls that say different things."""
    with pytest.raises(RowError) as caught:
        read(name, row)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("stepwise", {**STEPS, "prompt": TEMPLATED}),
        ("openrlhf_prm", {"input": f"{TEMPLATED}Step 1: s ки", "value": ["+"]}),
    ],
)
def test_a_templated_problem_is_read_where_that_is_allowed(name: str, row: Row) -> None:
    """Its question is the problem; a template that holds more than one stays refused."""
    (chain,) = read(name, row, already_templated=True)
    assert isinstance(chain, StepChain)
    assert chain.problem == "P"
    twice = f"{TEMPLATED}x<|im_end|>\n{TEMPLATED}"
    longer = {
        k: str(v).replace(TEMPLATED, twice) if k in ("prompt", "input") else v
        for k, v in row.items()
    }
    with pytest.raises(RowError):
        read(name, longer, already_templated=True)


def test_a_file_of_templated_problems_is_refused_whole() -> None:
    """The message names the column and the way on, as for prompts of other tasks."""
    with pytest.raises(DataError, match="'prompt' already carries a chat template"):
        detect([{**STEPS, "prompt": TEMPLATED}], kind_of("prm"), "rows.jsonl")


def test_two_answers_to_an_instruction_are_asked_about() -> None:
    """An output and a response are two answers, until one is named."""
    row = {"instruction": "q", "output": "a", "response": "b"}
    with pytest.raises(DataError, match="output and response could each be the answer"):
        detect([row], kind_of("sft"), "rows.jsonl")
    found = formats.load("alpaca")
    assert found.doubt([row], {"output": "response"}) is None
    assert found.doubt([{"instruction": "q", "output": "a", "response": None}], {}) is None


@pytest.mark.parametrize("named", ["input", "context"])
def test_the_input_of_an_instruction_is_the_one_that_is_named(named: str) -> None:
    """--map input=input settles what --map input=context does."""
    row = {"instruction": "q", "input": "input", "context": "context", "output": "a"}
    door = Normalize(
        kind_of("sft"), formats.load("alpaca"), FormatOptions(columns={"input": named})
    )
    batch = door([Record(1, 0, b"", row)])
    assert batch["messages"].to_pylist()[0][0]["content"] == f"q\n\n{named}"


def test_a_stray_instruction_is_refused_among_plain_exchanges() -> None:
    """A batch that columns could carry as a whole is still read by the format's own rules."""
    rows = [{"instruction": "q", "input": str(i), "output": "a"} for i in range(3)]
    door = Normalize(kind_of("sft"), formats.load("query_response"), FormatOptions())
    codes = door([Record(i, 0, b"", row) for i, row in enumerate(rows)])["reject_code"]
    assert codes.to_pylist() == ["bad_column"] * 3


class _Empty(Format):
    """A format that finds nothing in a row, and says nothing about it."""

    name = "empty"
    kinds = ("conversation",)
    columns: Columns = {"rows": ("rows",)}

    def matches(self, row: Row) -> str | None:
        return "rows"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return []


def test_a_row_without_any_example_is_refused() -> None:
    """A format that gives none for a row loses nothing: the row is refused by name."""
    batch = Normalize(kind_of("sft"), _Empty(), FormatOptions())([Record(0, 0, b"", {"rows": 1})])
    assert batch.column("reject_code").to_pylist() == ["no_examples"]
