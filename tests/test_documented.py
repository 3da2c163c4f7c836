"""Data formats that trainers and services document: each is read, asked about, or refused by name.

The rows are our own; each has the columns that the documentation of its trainer names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import Ran, check_reading, read_manifest

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import Conversation, Example, FormatOptions, Message, Pair, Record, Row
from stages.conversations import templated
from stages.detection.evidence import detect
from stages.errors import DataError, RowError
from stages.files.strict_json import parse
from stages.normalize.stage import Normalize

Run = Callable[..., Ran]
MODEL = ("--model", "qwen2-1.5b")
PRINTS_ALL = ("--model", "qwen3-0.6b")  # its template has a place for tools and for reasoning
S, U, M = Message("system", "s"), Message("user", "q"), Message("assistant", "a")
OTHER = Message("assistant", "b")
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def turn(role: str, content: Any, **more: Any) -> Row:
    """A turn in the spelling of ``messages``."""
    return {"role": role, "content": content, **more}


def one(*messages: Message, tools: list[Any] | None = None) -> list[Example]:
    """One conversation."""
    return [Conversation(list(messages), tools)]


def pair(*prompt: Message, margin: float | None = None, tools: Any = None) -> list[Example]:
    """One pair of the answers a and b."""
    return [Pair(list(prompt), [M], [OTHER], margin, tools)]


Q, A, B = turn("user", "q"), turn("assistant", "a"), turn("assistant", "b")
REASONED = Message("assistant", "a", {"reasoning_content": "r"})
TOOLED = [
    U,
    Message("assistant", "ok", {"tool_calls": [{**CALL, "id": "1"}]}),
    Message("tool", "42", {"tool_call_id": "1"}),
    M,
]

# reading that rows are detected as, task, row, examples
READ: dict[str, tuple[str, str, Row, list[Example]]] = {
    "typed_parts": (
        "openai",
        "sft",
        {
            "messages": [
                turn("user", [{"type": "text", "value": "q"}]),
                turn(
                    "assistant",
                    [{"type": "reasoning", "value": "r"}, {"type": "text", "value": "a"}],
                ),
            ]
        },
        one(U, REASONED),
    ),
    "typed_call": (
        "openai",
        "sft",
        {
            "messages": [
                Q,
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "text", "text": "ok"},
                        {
                            "type": "tool_call",
                            "id": "1",
                            "value": '{"name": "f", "arguments": {"x": 1}}',
                        },
                    ],
                },
                turn("tool", "42", tool_call_id="1"),
                A,
            ]
        },
        one(
            U, Message("assistant", "ok", {"tool_calls": [CALL], "content[].id": "1"}), *TOOLED[2:]
        ),
    ),
    "anthropic": (
        "openai",
        "sft",
        {
            "system": "s",
            "messages": [
                Q,
                turn(
                    "assistant",
                    [
                        {"type": "text", "text": "ok"},
                        {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
                    ],
                ),
                turn("user", [{"type": "tool_result", "tool_use_id": "1", "content": "42"}]),
                turn(
                    "assistant",
                    [{"type": "thinking", "thinking": "r"}, {"type": "text", "text": "a"}],
                ),
            ],
        },
        one(S, *TOOLED[:3], REASONED),
    ),
    "anthropic_result_and_text": (
        "openai",
        "sft",
        {
            "messages": [
                Q,
                turn(
                    "assistant", [{"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]
                ),
                turn(
                    "user",
                    [
                        {
                            "type": "tool_result",
                            "tool_use_id": "1",
                            "content": [{"type": "text", "text": "42"}],
                        },
                        {"type": "text", "text": "q"},
                    ],
                ),
                A,
            ],
        },
        one(
            U,
            Message("assistant", None, {"tool_calls": [{**CALL, "id": "1"}]}),
            Message("tool", "42", {"tool_call_id": "1"}),
            U,
            M,
        ),
    ),
    "messages_as_json": ("openai", "sft", {"messages": json.dumps([Q, A])}, one(U, M)),
    "bedrock": (
        "openai",
        "sft",
        {
            "system": [{"text": "s"}],
            "messages": [
                turn("user", [{"text": "q"}]),
                turn(
                    "assistant",
                    [{"reasoningContent": {"reasoningText": {"text": "r"}}}, {"text": "a"}],
                ),
            ],
        },
        one(S, U, REASONED),
    ),
    "bedrock_tools": (
        "openai",
        "sft",
        {
            "messages": [
                turn("user", [{"text": "q"}]),
                turn(
                    "assistant",
                    [
                        {"text": "ok"},
                        {"toolUse": {"toolUseId": "1", "name": "f", "input": {"x": 1}}},
                    ],
                ),
                turn(
                    "user",
                    [
                        {
                            "toolResult": {
                                "toolUseId": "1",
                                "content": [{"text": "42"}],
                                "status": "success",
                            }
                        }
                    ],
                ),
                turn("assistant", [{"text": "a"}]),
            ],
        },
        one(*TOOLED),
    ),
    "cohere": (
        "openai",
        "sft",
        {"messages": [turn("System", "s"), turn("User", "q"), turn("Chatbot", "a")]},
        one(S, U, M),
    ),
    "swift_exchanges": (
        "exchange_list",
        "sft",
        {"system": "s", "conversation": [{"human": "q", "assistant": "a"}] * 2},
        one(S, U, M, U, M),
    ),
    "xtuner": (
        "exchange_list",
        "sft",
        {
            "conversation": [
                {"system": "s", "input": "q", "output": "a", "need_eos_token": True},
                {"input": "q", "output": "b"},
            ]
        },
        one(S, U, M, U, OTHER),
    ),
    "exchanges_with_a_weight": (
        "exchange_list",
        "sft",
        {
            "conversations": [
                {"user": "q", "assistant": "a", "weight": 0},
                {"user": "q", "assistant": "b"},
            ]
        },
        one(U, Message("assistant", "a", None, False), U, OTHER),
    ),
    "questions_and_answers": (
        "exchange_list",
        "sft",
        {"qa": [{"question": "q", "answer": "a"}]},
        one(U, M),
    ),
    "gemini": (
        "contents",
        "sft",
        {
            "systemInstruction": {"role": "system", "parts": [{"text": "s"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {"role": "model", "parts": [{"text": "r", "thought": True}, {"text": "a"}]},
            ],
        },
        one(S, U, REASONED),
    ),
    "gemini_calls": (
        "contents",
        "sft",
        {
            "contents": [
                {"role": "user", "parts": [{"text": "q"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"x": 1}}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"name": "f", "response": {"output": "42"}}}],
                },
                {"role": "model", "parts": [{"text": "a"}]},
            ],
        },
        one(
            U,
            Message("assistant", None, {"tool_calls": [CALL]}),
            Message("tool", "42", {"name": "f"}),
            M,
        ),
    ),
    "gemini_preference": (
        "ranked",
        "rm",
        {
            "system_instruction": {"parts": [{"text": "s"}]},
            "contents": [{"role": "user", "parts": [{"text": "q"}]}],
            "completions": [
                {"score": 0, "completion": {"role": "model", "parts": [{"text": "b"}]}},
                {"score": 1, "completion": {"role": "model", "parts": [{"text": "a"}]}},
            ],
        },
        pair(S, U, margin=1.0),
    ),
    "vertex_texts": ("query_response", "sft", {"input_text": "q", "output_text": "a"}, one(U, M)),
    "vertex_candidates": (
        "indexed_pair/0-based",
        "rm",
        {"input_text": "q", "candidate_0": "b", "candidate_1": "a", "choice": 1},
        pair(U),
    ),
    "nemo_preference": (
        "ranked",
        "rm",
        {
            "context": [turn("system", "s"), Q],
            "completions": [{"rank": 1, "completion": [B]}, {"rank": 0, "completion": [A]}],
        },
        pair(S, U),
    ),
    "nemo_responses": (
        "history_pair",
        "rm",
        {
            "prompt": "q",
            "chosen_response": "a",
            "rejected_response": "b",
            "chosen_reward": 3,
            "rejected_reward": 1,
        },
        pair(U, margin=2.0),
    ),
    "nemo_chat": (
        "sharegpt",
        "sft",
        {
            "mask": "User",
            "system": "s",
            "conversations": [{"from": "User", "value": "q"}, {"from": "Assistant", "value": "a"}],
        },
        one(S, replace(U, trained=False), M),
    ),
    "axolotl_argilla": (
        "history_pair",
        "rm",
        {"system": "s", "instruction": "q", "chosen_response": "a", "rejected_response": "b"},
        pair(S, U),
    ),
    "axolotl_intel": (
        "preference",
        "rm",
        {"system": "s", "question": "q", "chosen": "a", "rejected": "b"},
        pair(S, U),
    ),
    "axolotl_chat_template": (
        "preference",
        "rm",
        {"messages": [Q], "chosen": A, "rejected": B},
        pair(U),
    ),
    "axolotl_training_flag": (
        "openai",
        "sft",
        {"messages": [Q, {**A, "training": False}, Q, A]},
        one(U, Message("assistant", "a", None, False), U, M),
    ),
    "swift_rejected_response": (
        "rejected_response",
        "rm",
        {"messages": [turn("system", "s"), Q, A], "rejected_response": "b"},
        pair(S, U),
    ),
    "swift_rejected_messages": (
        "rejected_response",
        "rm",
        {"messages": [Q, A], "rejected_messages": [Q, B]},
        pair(U),
    ),
    "swift_query": (
        "rejected_response",
        "rm",
        {"query": "q", "response": "a", "rejected_response": "b", "history": [["q", "b"]]},
        pair(U, OTHER, U),
    ),
    "rejected_after_a_call": (
        "rejected_response",
        "rm",
        {
            "messages": [
                Q,
                {"role": "assistant", "content": "ok", "tool_calls": [{**CALL, "id": "1"}]},
                turn("tool", "42", tool_call_id="1"),
                A,
            ],
            "rejected_message": B,
        },
        pair(*TOOLED[:3]),
    ),
    "openai_preference": (
        "preferred_output",
        "rm",
        {
            "input": {"messages": [Q], "tools": [CALL]},
            "preferred_output": [A],
            "non_preferred_output": [B],
        },
        pair(U, tools=[CALL]),
    ),
    "openai_weights": (
        "openai",
        "sft",
        {"messages": [Q, {**A, "weight": 0}, Q, {**B, "weight": 1}], "tools": []},
        one(U, Message("assistant", "a", None, False), U, Message("assistant", "b", None, True)),
    ),
    "openrlhf_turns_and_text": ("query_response", "sft", {"input": [Q], "output": "a"}, one(U, M)),
    "turns_and_a_completion": (
        "prompt_completion",
        "sft",
        {"prompt": [Q], "completion": "a"},
        one(U, M),
    ),
    "llamafactory_calls": (
        "sharegpt",
        "sft",
        {
            "conversations": [
                {"from": "human", "value": "q"},
                {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
                {"from": "observation", "value": "42"},
                {"from": "gpt", "value": "a"},
            ],
            "system": "s",
        },
        one(S, U, Message("assistant", None, {"tool_calls": [CALL]}), Message("tool", "42"), M),
    ),
    "torchtune_preference": (
        "message_pair",
        "rm",
        {"chosen_conversations": [Q, A], "rejected_conversations": [Q, B]},
        pair(U),
    ),
}


@pytest.mark.parametrize(("name", "task", "row", "wanted"), READ.values(), ids=READ)
def test_each_documented_format_says_what_it_says(
    name: str, task: str, row: Row, wanted: list[Example]
) -> None:
    """Detected among all formats of its task, and turned into exactly these examples."""
    check_reading(name, task, row, wanted)


def parts(role: str, *content: Row) -> Row:
    """Rows with one message of parts among plain ones."""
    asked = [turn(role, list(content)), A] if role == "user" else [Q, turn(role, list(content))]
    return {"messages": asked}


TEXT, THOUGHT = {"type": "text", "text": "t"}, {"type": "thinking", "thinking": "r"}
USE = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "42"}
# reading, task, row, code, words of the reason
REFUSED: dict[str, tuple[str, str, Row, str, str]] = {
    "image": (
        "openai",
        "sft",
        parts("user", {"type": "image", "source": {}}, TEXT),
        "unsupported_content",
        "'image'",
    ),
    "image_in_a_result": (
        "openai",
        "sft",
        parts("user", {**RESULT, "content": [{"type": "image", "source": {}}]}),
        "unsupported_content",
        "'image'",
    ),
    "inline_data": (
        "contents",
        "sft",
        {"contents": [{"role": "user", "parts": [{"inlineData": {"data": "x"}}]}]},
        "unsupported_content",
        "'inlineData'",
    ),
    "redacted": (
        "openai",
        "sft",
        parts("assistant", {"type": "redacted_thinking", "data": "x"}, TEXT),
        "unsupported_content",
        "redacted_thinking",
    ),
    "thought_behind": (
        "openai",
        "sft",
        parts("assistant", TEXT, THOUGHT),
        "unsupported_content",
        "after its answer",
    ),
    "text_behind_a_call": (
        "openai",
        "sft",
        parts("assistant", USE, TEXT),
        "unsupported_content",
        "after a tool call",
    ),
    "user_thinks": (
        "openai",
        "sft",
        parts("user", THOUGHT, TEXT),
        "unsupported_content",
        "only an assistant turn",
    ),
    "result_of_an_assistant": (
        "openai",
        "sft",
        parts("assistant", RESULT),
        "unsupported_content",
        "result",
    ),
    "result_object": (
        "contents",
        "sft",
        {
            "contents": [
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"name": "f", "response": {"a": 1, "b": 2}}}],
                }
            ]
        },
        "unsupported_content",
        "an object",
    ),
    "part_without_text": (
        "openai",
        "sft",
        parts("user", {"type": "text"}),
        "bad_column",
        "its text",
    ),
    "reasoning_twice": (
        "openai",
        "sft",
        {"messages": [Q, turn("assistant", [THOUGHT, TEXT], reasoning="other")]},
        "bad_column",
        "inside its content and next to it",
    ),
    "answer_goes_on": (
        "exchange_list",
        "sft",
        {"conversation": [{"input": "q", "output": "a", "need_eos_token": False}]},
        "unfinished_answer",
        "need_eos_token",
    ),
    "late_system": (
        "exchange_list",
        "sft",
        {
            "conversation": [
                {"input": "q", "output": "a"},
                {"system": "s", "input": "q", "output": "a"},
            ]
        },
        "bad_column",
        "in the middle",
    ),
    "two_questions": (
        "exchange_list",
        "sft",
        {"conversation": [{"input": "q", "question": "p", "output": "a"}]},
        "bad_column",
        "input and question",
    ),
    "side_as_json": (
        "preference",
        "rm",
        {"prompt": "q", "chosen": json.dumps([Q, A]), "rejected": json.dumps([Q, B])},
        "bad_column",
        "JSON text of turns",
    ),
    "two_rejected": (
        "rejected_response",
        "rm",
        {"messages": [Q, A], "rejected_response": "b", "rejected_messages": [Q, B]},
        "bad_column",
        "rejected_response and rejected_messages",
    ),
    "arguments_twice": (
        "openai",
        "sft",
        parts("assistant", {**USE, "arguments": {"x": 2}, "input": {"x": 1}}),
        "bad_tool_call",
        "arguments and input",
    ),
    "rejected_without_a_chosen": (
        "rejected_response",
        "rm",
        {"messages": [Q], "rejected_response": "b"},
        "no_answer",
        "has no answer",
    ),
}


@pytest.mark.parametrize(("name", "task", "row", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_trained_is_refused_by_its_name(
    name: str, task: str, row: Row, code: str, words: str
) -> None:
    """By its code, with a reason that names it."""
    with pytest.raises(RowError) as refused:
        formats.choose(name, kind_of(task)).read(row, FormatOptions())
    assert refused.value.code == code
    assert words in refused.value.detail


# format, then task, row, and words of what the build says
UNUSABLE: dict[str, tuple[str, Row, str]] = {
    "batch_lines": (
        "sft",
        {"custom_id": "1", "method": "POST", "url": "/v1/x", "body": {"messages": [Q]}},
        "lines of a batch file",
    ),
    "prompts_alone": (
        "rm",
        {
            "data_source": "d",
            "prompt": [Q],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "4"},
            "extra_info": {"index": 0},
        },
        "reinforcement learning",
    ),
    "segments": (
        "sft",
        {"segments": [{"text": "<s>q", "label": False}, {"text": "a</s>", "label": True}]},
        "segments with their own turn markers",
    ),
}
MORE: list[tuple[str, Row, str]] = [
    ("sft", {"custom_id": "1", "response": {"body": {"choices": []}}, "error": None}, "batch file"),
    ("sft", {"messages": [Q], "reference_answer": "4"}, "reinforcement learning"),
    ("sft", {"messages": [Q], "solution": "4"}, "reinforcement learning"),
    ("sft", {"conversations": [{"from": "human", "value": "q"}]}, "reinforcement learning"),
    ("sft", {"prompt": "q"}, "reinforcement learning"),
    ("rm", {"conversations": [Q, A], "kto_tag": True}, "unpaired data"),
    ("rm", {"prompt": "q", "completion": "a", "label": True}, "unpaired data"),
]


@pytest.mark.parametrize(("task", "row", "words"), [*UNUSABLE.values(), *MORE])
def test_data_for_another_kind_of_training_is_named(task: str, row: Row, words: str) -> None:
    """Detection says what the rows are for, and what to give instead."""
    with pytest.raises(DataError) as refused:
        detect([row] * 3, kind_of(task), "x.jsonl")
    assert words in refused.value.what
    assert refused.value.remedy


def test_one_row_without_an_answer_is_no_file_of_prompts() -> None:
    """Among rows with answers it is refused alone."""
    found = detect([{"messages": [Q, A]}] * 20 + [{"messages": [Q]}], kind_of("sft"), "x.jsonl")
    assert found.reading == "openai"


@pytest.mark.parametrize(
    ("name", "task", "row", "code"),
    [
        ("openai", "sft", {"messages": [Q]}, "no_answer"),
        ("sharegpt", "sft", {"conversations": [{"from": "human", "value": "q"}]}, "no_answer"),
        ("prompt_completion", "sft", {"prompt": "q"}, "bad_column"),
        ("alpaca", "sft", {"instruction": "q", "input": ""}, "bad_column"),
        ("query_response", "sft", {"question": "q"}, "bad_column"),
        ("prompt_completion", "sft", {"prompt": "q", "completion": ""}, "empty_answer"),
    ],
)
def test_a_row_without_an_answer_is_refused_by_the_code_of_its_format(
    name: str, task: str, row: Row, code: str
) -> None:
    """Where the rows around it have one; the page on formats lists these codes."""
    stage = Normalize(kind_of(task), formats.load(name), FormatOptions())
    assert stage([Record(0, 0, b"", row)]).column("reject_code").to_pylist() == [code]


EXTRA = "<extra_id_0>System\n{}\n\n<extra_id_1>User\nq\n<extra_id_1>Assistant"


@pytest.mark.parametrize(("system", "wanted"), [("s", [S, U]), ("", [U])])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_prompt_in_the_template_of_nemo_is_its_turns(
    system: str, wanted: list[Message], end: str
) -> None:
    """With a system text or an empty one, with the last line break or without."""
    found = templated.read(EXTRA.format(system) + end)
    assert found is not None
    assert found[0].name == "NeMo"
    assert templated.answered(*found, "a\n<extra_id_1>") == [*wanted, M]


def test_ratings_in_a_prompt_are_no_part_of_an_answer() -> None:
    """What ``<extra_id_2>`` opens steers the answer: such a text is not taken apart."""
    assert templated.read(EXTRA.format("s") + "\n<extra_id_2>quality:4\n") is None


def test_a_list_of_turns_without_a_name_says_what_it_must_be() -> None:
    """Other lists have no such remedy."""
    with pytest.raises(RowError) as refused:
        parse(json.dumps([Q, A]).encode())
    assert refused.value.detail.endswith('{"messages": [...]}')
    with pytest.raises(RowError) as refused:
        parse(b"[1]")
    assert "messages" not in refused.value.detail


PROGRAMS = (
    "TRL OpenRLHF axolotl LLaMA-Factory ms-swift verl NeMo-Aligner torchtune xtuner Unsloth "
    "Open-Instruct OpenAI Together Gemini Mistral Bedrock Cohere"
).split()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_page_says_which_documentation_was_read(program: str) -> None:
    """Behind the program's name, in parentheses."""
    page = (Path(__file__).parents[1] / "docs" / "formats.md").read_text("utf-8")
    section = page.partition("## What trainers and services document")[2]
    _, name, behind = section.partition(f"**{program}")
    assert name, f"nothing is said of {program}"
    pages = behind.partition("** (")[2].partition(")")[0]
    assert "`" in pages or '"' in pages


def test_what_a_part_says_beside_its_value_is_named_or_asked_about() -> None:
    """Keys of parts are columns like all others."""
    stage = Normalize(kind_of("sft"), formats.load("openai"), FormatOptions())
    row = parts("assistant", {**THOUGHT, "signature": "x"}, TEXT)
    assert stage([Record(0, 0, b"", row)]).column("reject_code").to_pylist() == [None]
    assert set(stage.tally.rows) == {"messages[].content[].signature"}
    row = parts("user", {"text": "q", "inlineData": {"data": "x"}})
    assert stage([Record(0, 0, b"", row)]).column("reject_code").to_pylist() == ["unread_column"]
    row = parts("user", {**TEXT, "cache_control": {"type": "ephemeral"}})
    assert stage([Record(0, 0, b"", row)]).column("reject_code").to_pylist() == ["unknown_flag"]


@pytest.mark.parametrize(
    ("value", "code"), [("A better one.", "unread_column"), (True, None), (2, None), ("a", None)]
)
def test_a_better_answer_beside_the_one_that_trains_is_asked_about(
    value: Any, code: str | None
) -> None:
    """A text is; whether there is one, how often, or the same answer again is only named."""
    stage = Normalize(kind_of("sft"), formats.load("alpaca"), FormatOptions())
    row = {"instruction": "q", "output": "a", "corrected": value}
    assert stage([Record(0, 0, b"", row)]).column("reject_code").to_pylist() == [code]
    assert set(stage.tally.rows) == ({"corrected"} if code is None else set())


@pytest.mark.parametrize("column", ["enable_thinking", "chat_template_kwargs"])
def test_arguments_of_the_template_are_asked_about(
    column: str, pipeline: Run, tmp_path: Path
) -> None:
    """A build renders all rows alike, so that a row that wants another way is not left unsaid."""
    row = {"messages": [Q, A], column: {"enable_thinking": False}}
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
    asked = pipeline("run", "sft", "x.jsonl", *MODEL, "-o", "out")
    assert asked.status == 3
    assert f"--ignore {column}" in asked.err
    done = pipeline("run", "sft", "x.jsonl", *MODEL, "-o", "out", "--ignore", column)
    assert done.status == 0, done.err


@pytest.mark.parametrize("task", ["sft", pytest.param("rm", marks=pytest.mark.slow)])
def test_each_documented_format_is_built(pipeline: Run, tmp_path: Path, task: str) -> None:
    """One file a shape, all in one build, and no row is refused."""
    names = [name for name, (_, its, _, wanted) in READ.items() if its == task]
    for name in names:
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(READ[name][2]) + "\n")
    files = [f"{name}.jsonl" for name in names]
    done = pipeline("run", task, *files, *PRINTS_ALL, "-o", "out", "--max-reject", "0")
    assert done.status == 0, done.err
    manifest = read_manifest(tmp_path / "out")
    assert manifest["rows"]["used"] == len(names)
    assert manifest["examples"]["rejected"] == 0
    assert [one["format"] for one in manifest["inputs"]] == [READ[name][0] for name in names]
