"""Record formats: what each kind of row says, and why a row is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import test_documented
import test_shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.tasks import kind_of
from stages import formats, readers
from stages.contract import (
    Conversation,
    Example,
    FormatOptions,
    Message,
    Pair,
    Record,
    Refused,
    Row,
    StepChain,
)
from stages.conversations import examples
from stages.detection.evidence import detect
from stages.errors import DataError, RowError, UsageError
from stages.normalize.stage import Normalize
from stages.rows.selection import renamed

SAMPLES = Path(__file__).parent.parent / "sample_data"
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


def user(content: str, **more: Any) -> Message:
    """A user's turn."""
    return Message("user", content, **more)


def said(content: str | None, **more: Any) -> Message:
    """An assistant's turn."""
    return Message("assistant", content, **more)


def turns(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    """Turns in the spelling of ``messages``."""
    return [{"role": role, "content": content} for role, content in pairs]


Q, A, B = ("user", "q"), ("assistant", "a"), ("assistant", "b")
STEPS = {"problem": "P", "steps": ["s", "t"]}

# format, task, row, examples
READ: dict[str, tuple[str, str, Row, list[Example]]] = {
    "openai": (
        "openai",
        "sft",
        {"messages": turns(("system", "be exact"), Q, A)},
        [Conversation([Message("system", "be exact"), user("q"), said("a")])],
    ),
    "openai_flags": (
        "openai",
        "sft",
        {"messages": [*turns(Q), {"role": "assistant", "content": "a", "weight": 0}, *turns(Q, B)]},
        [Conversation([user("q"), said("a", trained=False), user("q"), said("b")])],
    ),
    "openai_flag_spellings": (
        "openai",
        "sft",
        {
            "messages": [
                {"role": "user", "content": "q", "train": False},
                {"role": "assistant", "content": "a", "loss": True},
                {"role": "assistant", "content": "b", "weight": 1.0},
                {"role": "assistant", "content": "c", "weight": None},
            ]
        },
        [
            Conversation(
                [
                    user("q", trained=False),
                    said("a", trained=True),
                    said("b", trained=True),
                    said("c"),
                ]
            )
        ],
    ),
    "openai_tools": (
        "openai",
        "sft",
        {
            "messages": [
                *turns(Q),
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "content": "2", "name": "add"},
                {"role": "assistant", "content": "a", "reasoning_content": "hm"},
            ],
            "tools": [TOOL],
        },
        [
            Conversation(
                [
                    user("q"),
                    said(None, fields={"tool_calls": [CALL]}),
                    Message("tool", "2", {"name": "add"}),
                    said("a", fields={"reasoning_content": "hm"}),
                ],
                [TOOL],
            )
        ],
    ),
    "openai_parts": (
        "openai",
        "sft",
        {
            "messages": [
                {
                    "role": "developer",
                    "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "exact"}],
                },
                {"role": "user", "content": ["q", {"text": "!"}]},
                *turns(A),
            ]
        },
        [Conversation([Message("system", "be exact"), user("q!"), said("a")])],
    ),
    "openai_tools_as_text": (
        "openai",
        "sft",
        {"messages": turns(Q, A), "tools": json.dumps([TOOL])},
        [Conversation([user("q"), said("a")], [TOOL])],
    ),
    "openai_no_tools": (
        "openai",
        "sft",
        {"messages": turns(Q, A), "tools": ""},
        [Conversation([user("q"), said("a")])],
    ),
    "sharegpt": (
        "sharegpt",
        "sft",
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        [Conversation([user("q"), said("a")])],
    ),
    "sharegpt_system": (
        "sharegpt",
        "sft",
        {
            "conversations": [{"from": "HUMAN", "value": "q"}, {"from": "GPT", "value": "a"}],
            "system": "be exact",
        },
        [Conversation([Message("system", "be exact"), user("q"), said("a")])],
    ),
    "sharegpt_same_system_twice": (
        "sharegpt",
        "sft",
        {
            "conversations": [
                {"from": "system", "value": "own"},
                {"from": "human", "value": "q"},
                {"from": "bing", "value": "a"},
            ],
            "system": "own",
        },
        [Conversation([Message("system", "own"), user("q"), said("a")])],
    ),
    "sharegpt_calls": (
        "sharegpt",
        "sft",
        {
            "conversations": [
                {"from": "human", "value": "q"},
                {"from": "function_call", "value": json.dumps(CALL["function"])},
                {"from": "observation", "value": "2"},
                {"from": "gpt", "value": "a"},
            ],
            "tools": json.dumps([TOOL]),
        },
        [
            Conversation(
                [
                    user("q"),
                    said(None, fields={"tool_calls": [CALL]}),
                    Message("tool", "2"),
                    said("a"),
                ],
                [TOOL],
            )
        ],
    ),
    "alpaca": (
        "alpaca",
        "sft",
        {"instruction": "q", "input": "x", "output": "a"},
        [Conversation([user("q\n\nx"), said("a")])],
    ),
    "alpaca_without_input": (
        "alpaca",
        "sft",
        {"instruction": " q ", "input": "", "output": "a\n", "system": "s"},
        [Conversation([Message("system", "s"), user(" q "), said("a\n")])],
    ),
    "prompt_completion": (
        "prompt_completion",
        "sft",
        {"prompt": " q", "completion": " a "},
        [Conversation([user(" q"), said(" a ")])],
    ),
    "prompt_completion_turns": (
        "prompt_completion",
        "sft",
        {"prompt": turns(("system", "s"), Q), "completion": turns(A)},
        [Conversation([Message("system", "s"), user("q"), said("a")])],
    ),
    "question_answer": (
        "query_response",
        "sft",
        {"question": "q", "answer": "a"},
        [Conversation([user("q"), said("a")])],
    ),
    "problem_solution": (
        "query_response",
        "sft",
        {"problem": "q", "solution": "a", "question": None},
        [Conversation([user("q"), said("a")])],
    ),
    "text": ("text", "sft", {"text": " bare\n"}, [Conversation([Message("text", " bare\n")])]),
    "preference": (
        "preference",
        "rm",
        {"prompt": "q", "chosen": "a", "rejected": "b"},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "preference_margin": (
        "preference",
        "rm",
        {"question": "q", "chosen": "a", "rejected": "b", "margin": 2},
        [Pair([user("q")], [said("a")], [said("b")], 2.0)],
    ),
    "preference_scores": (
        "preference",
        "rm",
        {"prompt": "q", "chosen": "a", "rejected": "b", "score_chosen": 5, "score_rejected": 3.5},
        [Pair([user("q")], [said("a")], [said("b")], 1.5)],
    ),
    "preference_instruction": (
        "preference",
        "rm",
        {"instruction": "q", "input": "x", "output": "a", "chosen": "a", "rejected": "b"},
        [Pair([user("q\n\nx")], [said("a")], [said("b")])],
    ),
    "preference_prompt_turns": (
        "preference",
        "rm",
        {"prompt": turns(("system", "s"), Q), "chosen": turns(A), "rejected": turns(B)},
        [Pair([Message("system", "s"), user("q")], [said("a")], [said("b")])],
    ),
    "preference_history": (
        "preference",
        "rm",
        {
            "conversations": [{"from": "human", "value": "q"}],
            "chosen": {"from": "gpt", "value": "a"},
            "rejected": {"from": "gpt", "value": "b"},
        },
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "preference_implicit_prompt": (
        "preference",
        "rm",
        {"chosen": turns(Q, A, Q, A), "rejected": turns(Q, A, Q, B)},
        [Pair([user("q"), said("a"), user("q")], [said("a")], [said("b")])],
    ),
    "preference_sides_of_several_turns": (
        "preference",
        "rm",
        {
            "chosen": turns(Q, A, ("user", "more"), A),
            "rejected": turns(Q, A, ("user", "less"), B),
        },
        [
            Pair(
                [user("q")],
                [said("a"), user("more"), said("a")],
                [said("a"), user("less"), said("b")],
            )
        ],
    ),
    "math_shepherd": (
        "math_shepherd",
        "prm",
        {"input": "P Step 1: s ки\nStep 2: t ки", "label": "P Step 1: s +\nStep 2: t -"},
        [
            StepChain(
                "P ",
                ["Step 1: s ", "\nStep 2: t "],
                [1.0, 0.0],
                ["P Step 1: s ", "\nStep 2: t ", ""],
            )
        ],
    ),
    "openrlhf_prm_signs": (
        "openrlhf_prm",
        "prm",
        {"input": "P Step 1: s ки\nStep 2: t ки\n", "value": ["+", "-"]},
        [
            StepChain(
                "P ",
                ["Step 1: s ", "\nStep 2: t "],
                [1.0, 0.0],
                ["P Step 1: s ", "\nStep 2: t ", "\n"],
            )
        ],
    ),
    "openrlhf_prm_numbers": (
        "openrlhf_prm",
        "prm",
        {"input": "P Step 1: s<extra_0>Step 2: t<extra_0>", "labels": [0.25, None]},
        [
            StepChain(
                "P ",
                ["Step 1: s", "Step 2: t"],
                [0.25, None],
                ["P Step 1: s", "Step 2: t", ""],
            )
        ],
    ),
    "stepwise": (
        "stepwise",
        "prm",
        {"prompt": "P", "completions": [" s", "t "], "labels": [True, False]},
        [StepChain("P", [" s", "t "], [1.0, 0.0])],
    ),
    "stepwise_soft": (
        "stepwise",
        "prm",
        {"prompt": "P", "completions": ["s", "t", "u", "v"], "labels": [0.5, None, 1, "-"]},
        [StepChain("P", ["s", "t", "u", "v"], [0.5, None, 1.0, 0.0])],
    ),
    "openai_legacy_call": (
        "openai",
        "sft",
        {
            "messages": [
                *turns(Q),
                {
                    "role": "assistant",
                    "content": None,
                    "function_call": {"name": "add", "arguments": '{"a": 1}'},
                },
                {"role": "function", "name": "add", "content": "2"},
                {"role": "assistant", "content": "a", "reasoning": "hm", "tool_calls": None},
            ]
        },
        [
            Conversation(
                [
                    user("q"),
                    said(None, fields={"tool_calls": [CALL]}),
                    Message("tool", "2", {"name": "add"}),
                    said("a", fields={"reasoning_content": "hm"}),
                ]
            )
        ],
    ),
    "openai_system_column": (
        "openai",
        "sft",
        {"system": "s", "messages": turns(Q, A)},
        [Conversation([Message("system", "s"), user("q"), said("a")])],
    ),
    "alpaca_history": (
        "alpaca",
        "sft",
        {"instruction": "q", "output": "a", "history": [["q0", "a0"]], "system": "s"},
        [Conversation([Message("system", "s"), user("q0"), said("a0"), user("q"), said("a")])],
    ),
    "alpaca_context": (
        "alpaca",
        "sft",
        {"instruction": "q", "context": "x", "response": "a", "category": "c"},
        [Conversation([user("q\n\nx"), said("a")])],
    ),
    "input_output": (
        "query_response",
        "sft",
        {"ID": 3, "Label": 1, "input": "q", "output": "a"},
        [Conversation([user("q"), said("a")])],
    ),
    "message_thinking": (
        "message_thinking",
        "sft",
        {"problem": "q", "gtruth_answer": "1", "message_thinking": "hm", "message_content": "a"},
        [Conversation([user("q"), said("a", fields={"reasoning_content": "hm"})])],
    ),
    "message_thinking_without": (
        "message_thinking",
        "sft",
        {"problem": "q", "message_thinking": None, "message_content": "a"},
        [Conversation([user("q"), said("a")])],
    ),
    "preference_system": (
        "preference",
        "rm",
        {"system": "s", "question": "q", "chosen": "a", "rejected": "b"},
        [Pair([Message("system", "s"), user("q")], [said("a")], [said("b")])],
    ),
    "preference_ratings": (
        "preference",
        "rm",
        {"prompt": "q", "chosen": "a", "rejected": "b", "chosen_rating": 5, "rejected_rating": 3},
        [Pair([user("q")], [said("a")], [said("b")], 2.0)],
    ),
    "hh_rlhf": (
        "hh_rlhf",
        "rm",
        {
            "chosen": "\n\nHuman: q\n\nAssistant: a\n\nHuman: r\n\nAssistant: a \n",
            "rejected": "\n\nHuman: q\n\nAssistant: a\n\nHuman: r\n\nAssistant: b",
        },
        [Pair([user("q"), said("a"), user("r")], [said("a")], [said("b")])],
    ),
    "hh_rlhf_prompt": (
        "hh_rlhf",
        "rm",
        {"prompt": "\n\nHuman: q\n\nAssistant:", "chosen": " a", "rejected": " b"},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "history_pair": (
        "history_pair",
        "rm",
        {
            "system": "s",
            "history": [["q0", "a0"]],
            "question": "q",
            "response_chosen": "a",
            "response_rejected": "b",
        },
        [
            Pair(
                [Message("system", "s"), user("q0"), said("a0"), user("q")],
                [said("a")],
                [said("b")],
            )
        ],
    ),
    "history_pair_alone": (
        "history_pair",
        "rm",
        {
            "system": "",
            "history": None,
            "question": "q",
            "response_chosen": "a",
            "response_rejected": "b",
        },
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "indexed_pair": (
        "indexed_pair/1-based",
        "rm",
        {"input": "q", "output_1": "b", "output_2": "a", "label": 2},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "indexed_pair_from_0": (
        "indexed_pair/0-based",
        "rm",
        {"prompt": "q", "response_0": "a", "response_1": "b", "better_response_id": 0},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "indexed_pair_letter": (
        "indexed_pair",
        "rm",
        {"question": "q", "answer_a": "b", "answer_b": "a", "winner": "model_b"},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "indexed_pair_conversations": (
        "indexed_pair",
        "rm",
        {"conversation_a": turns(Q, A), "conversation_b": turns(Q, B), "winner": "A"},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "indexed_pair_list": (
        "indexed_pair/0-based",
        "rm",
        {"prompt": "q", "responses": ["b", "a"], "label": "1"},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "ranked": (
        "ranked",
        "rm",
        {"prompt": "q", "ranked": ["a", "b", "c"]},
        [
            Pair([user("q")], [said("a")], [said("b")]),
            Pair([user("q")], [said("b")], [said("c")]),
        ],
    ),
    "ranked_scores": (
        "ranked",
        "rm",
        {"prompt": "q", "responses": ["c", "a", "b"], "scores": [1, 9, 4.5]},
        [
            Pair([user("q")], [said("a")], [said("b")], 4.5),
            Pair([user("q")], [said("b")], [said("c")], 3.5),
        ],
    ),
    "ranked_ranks": (
        "ranked",
        "rm",
        {"prompt": "q", "responses": [{"text": "b", "rank": 2}, {"text": "a", "rank": 1}]},
        [Pair([user("q")], [said("a")], [said("b")])],
    ),
    "stepwise_steps": (
        "stepwise",
        "prm",
        {"problem": "P", "steps": ["s", "t"], "label": [1, 0]},
        [StepChain("P", ["s", "t"], [1.0, 0.0])],
    ),
    "error_list_from_1": (
        "error_list/1-based",
        "prm",
        {"question": "P", "steps": ["s", "t", "u", "v"], "error_steps": [2, 4]},
        [StepChain("P", ["s", "t", "u", "v"], [1.0, 0.0, None, 0.0])],
    ),
    "error_list_from_0": (
        "error_list/0-based",
        "prm",
        {"question": "P", "steps": ["s", "t", "u"], "error_steps": [0, 1]},
        [StepChain("P", ["s", "t", "u"], [0.0, 0.0, None])],
    ),
    "step_conversations": (
        "step_conversations",
        "prm",
        {
            "conversations": turns(
                ("user", "P Step 1: s"),
                ("assistant", "+"),
                ("user", "Step 2: t"),
                ("assistant", "-"),
            )
        },
        [StepChain("P ", ["Step 1: s", "Step 2: t"], [1.0, 0.0])],
    ),
    "tagged_messages": (
        "tagged_messages",
        "prm",
        {
            "messages": turns(("user", "P"), ("assistant", "s<extra_0>t<extra_0>\n")),
            "labels": [1, 0.25],
        },
        [StepChain("P", ["s", "t"], [1.0, 0.25])],
    ),
    "soft_prefix": (
        "soft_prefix",
        "prm",
        {"question": "P", "prefixes": ["s", "s\nt", "s\nt\nu"], "values": [0.75, 0.5, None]},
        [StepChain("P", ["s", "\nt", "\nu"], [0.75, 0.5, None])],
    ),
    "processbench_null": (
        "processbench",
        "prm",
        {**STEPS, "label": None},
        [StepChain("P", ["s", "t"], [1.0, 1.0])],
    ),
    "processbench_no_error": (
        "processbench",
        "prm",
        {**STEPS, "label": -1},
        [StepChain("P", ["s", "t"], [1.0, 1.0])],
    ),
    "processbench_first_error": (
        "processbench",
        "prm",
        {"problem": "P", "steps": ["s", "t", "u", "v"], "label": 1},
        [StepChain("P", ["s", "t", "u", "v"], [1.0, 0.0, None, None])],
    ),
    "processbench_error_at_once": (
        "processbench",
        "prm",
        {**STEPS, "label": 0},
        [StepChain("P", ["s", "t"], [0.0, None])],
    ),
    "processbench_error_at_the_end": (
        "processbench",
        "prm",
        {**STEPS, "label": 1},
        [StepChain("P", ["s", "t"], [1.0, 0.0])],
    ),
}


@pytest.mark.parametrize(("name", "task", "row", "wanted"), READ.values(), ids=READ)
def test_a_row_says_what_it_says(name: str, task: str, row: Row, wanted: list[Example]) -> None:
    """Each format turns its row into exactly these examples, and recognises the row."""
    found = formats.choose(name, kind_of(task))
    assert found.matches(row)
    assert found.read(row, FormatOptions()) == wanted


def test_every_format_is_tested() -> None:
    """No format is without an example here."""
    known = {
        found.name for task in ("sft", "rm", "prm") for found in formats.for_kind(kind_of(task))
    }
    tables = (READ, test_shapes.READ, test_documented.READ)
    read = {name.partition("/")[0] for table in tables for name, *_ in table.values()}
    refused = {name for name, *_ in test_shapes.REFUSED.values()} | test_documented.UNUSABLE.keys()
    assert read | refused | {"prm800k", "pretokenized"} >= known


def steps_row(**more: Any) -> Row:
    """A PRM800K row of one step."""
    return {"question": {"problem": "P"}, "label": {"steps": [more]}}


# format, task, row, code
REFUSED: dict[str, tuple[str, str, Row, str]] = {
    "sharegpt_another_system": (
        "sharegpt",
        "sft",
        {
            "conversations": [
                {"from": "system", "value": "own"},
                {"from": "human", "value": "q"},
                {"from": "gpt", "value": "a"},
            ],
            "system": "other",
        },
        "two_system_texts",
    ),
    "turns_missing": ("openai", "sft", {"messages": []}, "no_turns"),
    "turns_as_text": ("openai", "sft", {"messages": "hello"}, "no_turns"),
    "turn_as_text": ("openai", "sft", {"messages": ["hello"]}, "bad_column"),
    "role_unknown": ("openai", "sft", {"messages": turns(("narrator", "x"))}, "unknown_role"),
    "role_missing": ("openai", "sft", {"messages": [{"content": "x"}]}, "unknown_role"),
    "role_no_text": (
        "openai",
        "sft",
        {"messages": [{"role": 3, "content": "x"}]},
        "unknown_role",
    ),
    "content_number": (
        "openai",
        "sft",
        {"messages": [{"role": "user", "content": 3}]},
        "bad_column",
    ),
    "content_null_of_a_user": (
        "openai",
        "sft",
        {"messages": [{"role": "user", "content": None}]},
        "bad_column",
    ),
    "content_null_of_an_answer": (
        "openai",
        "sft",
        {"messages": [*turns(Q), {"role": "assistant", "content": None}]},
        "empty_answer",
    ),
    "content_image": (
        "openai",
        "sft",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        "unsupported_content",
    ),
    "content_part_number": (
        "openai",
        "sft",
        {"messages": [{"role": "user", "content": [3]}]},
        "unsupported_content",
    ),
    "weight_text": (
        "openai",
        "sft",
        {"messages": [*turns(Q), {"role": "assistant", "content": "a", "weight": "1"}]},
        "bad_weight",
    ),
    "weight_negative": (
        "openai",
        "sft",
        {"messages": [*turns(Q), {"role": "assistant", "content": "a", "weight": -1}]},
        "bad_weight",
    ),
    "tools_no_list": ("openai", "sft", {"messages": turns(Q, A), "tools": {"a": 1}}, "bad_tools"),
    "tools_no_json": ("openai", "sft", {"messages": turns(Q, A), "tools": "[{"}, "bad_tools"),
    "call_no_json": (
        "sharegpt",
        "sft",
        {"conversations": [{"from": "function_call", "value": "add(1)"}]},
        "bad_tool_call",
    ),
    "call_without_a_name": (
        "sharegpt",
        "sft",
        {"conversations": [{"from": "function_call", "value": '{"arguments": {}}'}]},
        "bad_tool_call",
    ),
    "instruction_number": ("alpaca", "sft", {"instruction": 1, "output": "a"}, "bad_column"),
    "input_list": (
        "alpaca",
        "sft",
        {"instruction": "q", "input": ["x"], "output": "a"},
        "bad_column",
    ),
    "output_null": ("alpaca", "sft", {"instruction": "q", "output": None}, "bad_column"),
    "prompt_and_completion_of_two_kinds": (
        "prompt_completion",
        "sft",
        {"prompt": "q", "completion": turns(("assistant", "a"))},
        "bad_column",
    ),
    "answer_missing": ("query_response", "sft", {"question": "q"}, "bad_column"),
    "text_null": ("text", "sft", {"text": None}, "bad_column"),
    "two_texts_without_a_prompt": (
        "preference",
        "rm",
        {"chosen": "a", "rejected": "b"},
        "no_prompt",
    ),
    "rejected_missing": ("preference", "rm", {"prompt": "q", "chosen": "a"}, "no_turns"),
    "margin_text": (
        "preference",
        "rm",
        {"prompt": "q", "chosen": "a", "rejected": "b", "margin": "1"},
        "bad_margin",
    ),
    "margin_boolean": (
        "preference",
        "rm",
        {"prompt": "q", "chosen": "a", "rejected": "b", "margin": True},
        "bad_margin",
    ),
    "equal_scores": (
        "preference",
        "rm",
        {"prompt": "q", "chosen": "a", "rejected": "b", "score_chosen": 1, "score_rejected": 1.0},
        "tie",
    ),
    "no_tag": ("math_shepherd", "prm", {"input": "P Step 1: s", "label": "P"}, "no_steps"),
    "texts_differ": (
        "math_shepherd",
        "prm",
        {"input": "P Step 1: s ки", "label": "P Step 1: x +"},
        "misaligned",
    ),
    "label_goes_on": (
        "math_shepherd",
        "prm",
        {"input": "P Step 1: s ки", "label": "P Step 1: s +\n+"},
        "misaligned",
    ),
    "label_no_sign": (
        "math_shepherd",
        "prm",
        {"input": "P Step 1: s ки", "label": "P Step 1: s *"},
        "bad_label",
    ),
    "label_ends_early": (
        "math_shepherd",
        "prm",
        {"input": "P Step 1: s ки", "label": "P Step 1: s "},
        "bad_label",
    ),
    "text_after_the_last_tag": (
        "math_shepherd",
        "prm",
        {"input": "P Step 1: s ки\nStep 2: t", "label": "P Step 1: s +\nStep 2: t"},
        "text_after_last_step",
    ),
    "no_first_step": (
        "openrlhf_prm",
        "prm",
        {"input": "P First: s ки", "value": ["+"]},
        "no_first_step",
    ),
    "first_step_behind_the_first_tag": (
        "openrlhf_prm",
        "prm",
        {"input": "P ки Step 1: s ки", "value": ["+", "+"]},
        "no_first_step",
    ),
    "labels_fewer_than_tags": (
        "openrlhf_prm",
        "prm",
        {"input": "P Step 1: s ки\nStep 2: t ки", "value": ["+"]},
        "label_count",
    ),
    "rating_beyond_one": (
        "openrlhf_prm",
        "prm",
        {"input": "P Step 1: s ки", "value": [1.5]},
        "bad_label",
    ),
    "rating_negative": (
        "stepwise",
        "prm",
        {"prompt": "P", "completions": ["s"], "labels": [-1]},
        "bad_label",
    ),
    "rating_word": (
        "stepwise",
        "prm",
        {"prompt": "P", "completions": ["s"], "labels": ["good"]},
        "bad_label",
    ),
    "labels_more_than_steps": (
        "stepwise",
        "prm",
        {"prompt": "P", "completions": ["s"], "labels": [True, False]},
        "label_count",
    ),
    "step_number": (
        "stepwise",
        "prm",
        {"prompt": "P", "completions": [1], "labels": [True]},
        "bad_column",
    ),
    "tool_calls_text": (
        "openai",
        "sft",
        {"messages": [*turns(Q), {"role": "assistant", "content": None, "tool_calls": "add(1)"}]},
        "bad_tool_call",
    ),
    "tool_arguments_broken": (
        "openai",
        "sft",
        {
            "messages": [
                *turns(Q),
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"name": "f", "arguments": '{"a": 1'}],
                },
            ]
        },
        "bad_tool_call",
    ),
    "tools_with_a_key_twice": (
        "openai",
        "sft",
        {"messages": turns(Q, A), "tools": '[{"name": "f", "name": "g"}]'},
        "bad_tools",
    ),
    "tools_with_a_big_integer": (
        "openai",
        "sft",
        {"messages": turns(Q, A), "tools": '[{"name": 123456789012345678901234567890}]'},
        "bad_tools",
    ),
    "tools_with_nan": (
        "openai",
        "sft",
        {"messages": turns(Q, A), "tools": '[{"name": NaN}]'},
        "bad_tools",
    ),
    "tools_of_two_values": (
        "openai",
        "sft",
        {"messages": turns(Q, A), "tools": '[], "more": []'},
        "bad_tools",
    ),
    "tool_calls_nameless": (
        "openai",
        "sft",
        {"messages": [*turns(Q), {"role": "assistant", "content": "", "tool_calls": [{}]}]},
        "bad_tool_call",
    ),
    "history_of_threes": (
        "alpaca",
        "sft",
        {"instruction": "q", "output": "a", "history": [["x", "y", "z"]]},
        "bad_column",
    ),
    "system_number": (
        "query_response",
        "sft",
        {"question": "q", "answer": "a", "system": 3},
        "bad_column",
    ),
    "instances_text": (
        "alpaca/instances",
        "sft",
        {"instruction": "q", "instances": "x"},
        "bad_column",
    ),
    "instances_of_no_output": (
        "alpaca/instances",
        "sft",
        {"instruction": "q", "instances": [{"input": "x"}]},
        "bad_column",
    ),
    "thinking_number": (
        "message_thinking",
        "sft",
        {"problem": "q", "message_thinking": 3, "message_content": "a"},
        "bad_column",
    ),
    "tokens_text": ("pretokenized", "sft", {"input_ids": ["a"]}, "bad_column"),
    "tokens_boolean": ("pretokenized", "sft", {"input_ids": [True, 1]}, "bad_column"),
    "tokens_without_labels": ("pretokenized", "sft", {"input_ids": [1, 2]}, "no_labels"),
    "tokens_of_other_labels": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2], "labels": [1]},
        "label_count",
    ),
    "tokens_of_another_mask": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2], "loss_mask": [1]},
        "label_count",
    ),
    "tokens_mask_of_twos": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2], "loss_mask": [1, 2]},
        "bad_mask",
    ),
    "tokens_hidden_inside": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "attention_mask": [1, 0, 1]},
        "bad_mask",
    ),
    "tokens_all_hidden": (
        "pretokenized",
        "sft",
        {"input_ids": [1], "labels": [1], "attention_mask": [0]},
        "no_tokens",
    ),
    "tokens_negative": (
        "pretokenized",
        "sft",
        {"input_ids": [1, -5], "labels": [1, -100]},
        "id_outside_vocabulary",
    ),
    "tokens_label_minus_one": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 5], "labels": [-1, 5]},
        "bad_label",
    ),
    "tokens_packed": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "position_ids": [0, 1, 0]},
        "packed_row",
    ),
    "tokens_positions_that_begin_later": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "position_ids": [1, 2, 3]},
        "bad_column",
    ),
    "tokens_positions_of_fewer": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "position_ids": [0, 1]},
        "label_count",
    ),
    "tokens_of_another_length": (
        "pretokenized",
        "sft",
        {"input_ids": [1, 2, 3], "labels": [1, 2, 3], "seq_lengths": [2]},
        "bad_column",
    ),
    "dialogue_of_nobody": (
        "hh_rlhf",
        "rm",
        {"chosen": "Assistant: a", "rejected": "Assistant: b"},
        "no_turns",
    ),
    "history_pair_without_an_answer": (
        "history_pair",
        "rm",
        {"question": "q", "response_chosen": "a"},
        "no_turns",
    ),
    "index_of_no_answer": (
        "indexed_pair/1-based",
        "rm",
        {"input": "q", "output_1": "a", "output_2": "b", "label": 0},
        "bad_label",
    ),
    "index_null": (
        "indexed_pair/1-based",
        "rm",
        {"input": "q", "output_1": "a", "output_2": "b", "label": None},
        "bad_label",
    ),
    "index_tie": (
        "indexed_pair",
        "rm",
        {"input": "q", "output_1": "a", "output_2": "b", "winner": "tie"},
        "tie",
    ),
    "index_of_three": (
        "indexed_pair/0-based",
        "rm",
        {"prompt": "q", "responses": ["a", "b", "c"], "label": 0},
        "bad_column",
    ),
    "ranked_one": ("ranked", "rm", {"prompt": "q", "ranked": ["a"]}, "bad_column"),
    "ranked_scores_missing": (
        "ranked",
        "rm",
        {"prompt": "q", "responses": ["a", "b"], "scores": [1]},
        "bad_margin",
    ),
    "ranked_score_text": (
        "ranked",
        "rm",
        {"prompt": "q", "responses": ["a", "b"], "scores": [1, "2"]},
        "bad_margin",
    ),
    "ranked_equal": (
        "ranked",
        "rm",
        {"prompt": "q", "responses": ["a", "b"], "scores": [1, 1.0]},
        "tie",
    ),
    "errors_beyond_the_steps": (
        "error_list/1-based",
        "prm",
        {**STEPS, "error_steps": [3]},
        "bad_label",
    ),
    "errors_below_the_steps": (
        "error_list/1-based",
        "prm",
        {**STEPS, "error_steps": [0]},
        "bad_label",
    ),
    "errors_text": ("error_list/0-based", "prm", {**STEPS, "error_steps": "1"}, "bad_label"),
    "steps_and_ratings_out_of_turn": (
        "step_conversations",
        "prm",
        {"messages": turns(("user", "P Step 1: s"), ("user", "Step 2: t"), ("assistant", "+"))},
        "bad_column",
    ),
    "steps_rated_by_words": (
        "step_conversations",
        "prm",
        {"messages": turns(("user", "P Step 1: s"), ("assistant", "fine"))},
        "bad_label",
    ),
    "steps_behind_a_system_text": (
        "step_conversations",
        "prm",
        {"messages": turns(("system", "x"), ("user", "P Step 1: s"), ("assistant", "+"))},
        "system_text",
    ),
    "tags_fewer_than_labels": (
        "tagged_messages",
        "prm",
        {"messages": turns(("user", "P"), ("assistant", "s<step>")), "labels": [1, 0]},
        "label_count",
    ),
    "tags_and_more": (
        "tagged_messages",
        "prm",
        {"messages": turns(("user", "P"), ("assistant", "s<step>t")), "labels": [1]},
        "text_after_last_step",
    ),
    "prefixes_of_another_solution": (
        "soft_prefix",
        "prm",
        {"question": "P", "prefixes": ["s", "t"], "values": [1, 1]},
        "not_cumulative",
    ),
    "prefix_value_two": (
        "soft_prefix",
        "prm",
        {"question": "P", "prefixes": ["s"], "values": [2]},
        "bad_label",
    ),
    "error_beyond_the_steps": ("processbench", "prm", {**STEPS, "label": 2}, "bad_label"),
    "error_below_minus_one": ("processbench", "prm", {**STEPS, "label": -2}, "bad_label"),
    "error_boolean": ("processbench", "prm", {**STEPS, "label": True}, "bad_label"),
    "rating_two": (
        "prm800k",
        "prm",
        steps_row(completions=[{"text": "s", "rating": 2}], chosen_completion=0),
        "bad_label",
    ),
    "chosen_beyond_the_completions": (
        "prm800k",
        "prm",
        steps_row(completions=[{"text": "s", "rating": 1}], chosen_completion=1),
        "bad_column",
    ),
    "chosen_negative": (
        "prm800k",
        "prm",
        steps_row(completions=[{"text": "s", "rating": 1}], chosen_completion=-1),
        "bad_column",
    ),
    "completion_text": (
        "prm800k",
        "prm",
        steps_row(completions=["s"], chosen_completion=0),
        "bad_column",
    ),
    "steps_missing": ("prm800k", "prm", {"question": {"problem": "P"}, "label": {}}, "bad_column"),
    "problem_missing": ("prm800k", "prm", {"label": {"steps": []}}, "bad_column"),
}


@pytest.mark.parametrize(("name", "task", "row", "code"), REFUSED.values(), ids=REFUSED)
def test_a_row_that_says_nothing_clear_is_refused(
    name: str, task: str, row: Row, code: str
) -> None:
    """Each fault has its code, and nobody guesses what was meant."""
    with pytest.raises(RowError) as caught:
        formats.choose(name, kind_of(task)).read(row, FormatOptions())
    assert caught.value.code == code


@pytest.mark.parametrize("margin", [1e300, -1e300, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["margin", "scores"])
def test_a_margin_that_no_stored_number_can_hold_is_refused(margin: float, name: str) -> None:
    """A margin is stored as float32; one that is infinite there, or no number, is not a margin."""
    told = {"score_chosen": margin, "score_rejected": 0.0} if name == "scores" else {name: margin}
    row = {"prompt": "q", "chosen": "a", "rejected": "b", **told}
    door = Normalize(kind_of("rm"), formats.load("preference"), FormatOptions())
    assert door([Record(0, 0, b"", row)])["reject_code"].to_pylist() == ["bad_margin"]


def test_a_prompt_that_the_sides_repeat_stands_once() -> None:
    """Beside whole conversations a prompt column is not a turn of its own (UltraFeedback's way)."""
    row = {"prompt": "q", "chosen": turns(Q, A), "rejected": turns(Q, B)}
    (pair,) = formats.load("preference").read(row, FormatOptions())
    assert isinstance(pair, Pair)
    assert [*pair.prompt, *pair.chosen] == [user("q"), said("a")]
    assert [*pair.prompt, *pair.rejected] == [user("q"), said("b")]


def test_a_prompt_that_the_sides_do_not_repeat_is_no_prompt_of_theirs() -> None:
    """A prompt column that stands in neither conversation contradicts them."""
    row = {"prompt": "other", "chosen": turns(Q, A), "rejected": turns(Q, B)}
    with pytest.raises(RowError) as caught:
        formats.load("preference").read(row, FormatOptions())
    assert caught.value.code == "prompt_differs"


def test_sides_that_go_on_over_several_turns_keep_their_prompt() -> None:
    """A prompt in front of sides that begin with an answer is theirs, whoever speaks later."""
    row = {
        "prompt": turns(("system", "s"), Q),
        "chosen": turns(A, ("user", "more"), A),
        "rejected": turns(B, ("user", "more"), B),
    }
    (pair,) = formats.load("preference").read(row, FormatOptions())
    assert pair == Pair(
        [Message("system", "s"), user("q")],
        [said("a"), user("more"), said("a")],
        [said("b"), user("more"), said("b")],
    )


# The same solution in three spellings.
PROBLEM = "Ann has 2 + 3 apples and eats 1 - 0. How many are left?"
SOLUTION = ["Step 1: 2 + 3 = 5", "Step 2: 5 - 1 = 4 +", "Step 3: The answer is: -4 + 8"]
SIGNS = ["+", "-", "+"]


def joined(marks: list[str]) -> str:
    """The problem and its steps, a mark behind each."""
    steps = "\n".join(f"{step} {mark}" for step, mark in zip(SOLUTION, marks, strict=True))
    return f"{PROBLEM} {steps}"


def chains(name: str, row: Row, **options: Any) -> list[StepChain]:
    """The row's examples as they go on to rendering."""
    found = formats.choose(name, kind_of("prm")).read(row, FormatOptions(**options))
    return [examples.chain(one) for one in found if isinstance(one, StepChain)]


def content(chain: StepChain) -> tuple[str, list[str], list[float | None]]:
    """What a chain says, without its spelling."""
    return chain.problem, chain.steps, chain.labels


def test_equal_solutions_are_equal_examples_in_every_format() -> None:
    """Aligned texts, a tagged text with a list, and lists of steps give the same example."""
    shepherd = {"input": joined(["ки"] * 3), "label": joined(SIGNS)}
    openrlhf = {"input": joined(["ки"] * 3), "value": SIGNS}
    stepwise = {"prompt": PROBLEM, "completions": SOLUTION, "labels": [True, False, True]}
    wanted = (PROBLEM, SOLUTION, [1.0, 0.0, 1.0])
    for name, row in (
        ("math_shepherd", shepherd),
        ("openrlhf_prm", openrlhf),
        ("stepwise", stepwise),
    ):
        assert [content(chain) for chain in chains(name, row)] == [wanted]


def test_arithmetic_signs_are_never_labels() -> None:
    """Only the character at a tag's place is a rating, however many signs stand around it."""
    row = {
        "input": "1+1-1? Step 1: 1+1=+2 ки\nStep 2: +2-1=+1 - ки\nStep 3: + ки",
        "label": "1+1-1? Step 1: 1+1=+2 -\nStep 2: +2-1=+1 - +\nStep 3: + -",
    }
    (chain,) = chains("math_shepherd", row)
    assert chain.problem == "1+1-1?"
    assert chain.steps == ["Step 1: 1+1=+2", "Step 2: +2-1=+1 -", "Step 3: +"]
    assert chain.labels == [0.0, 1.0, 0.0]


SIGNED_TEXT = st.text(st.sampled_from("+- 1a\n"), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(SIGNED_TEXT, st.sampled_from("+-")), min_size=1, max_size=5),
    problem=SIGNED_TEXT,
    tag=st.sampled_from(["ки", "<extra_0>", "<step>"]),
)
def test_ratings_are_read_at_the_tags_whatever_the_texts_hold(
    steps: list[tuple[str, str]], problem: str, tag: str
) -> None:
    """For any texts, aligned input and label give back the ratings that they were made from."""
    pieces = [f"Step {i}: {text}" for i, (text, _) in enumerate(steps, 1)]
    signs = [sign for _, sign in steps]
    row = {
        "input": problem + "".join(piece + tag for piece in pieces),
        "label": problem + "".join(p + sign for p, sign in zip(pieces, signs, strict=True)),
    }
    (found,) = formats.load("math_shepherd").read(row, FormatOptions())
    assert isinstance(found, StepChain)
    assert found.labels == [1.0 if sign == "+" else 0.0 for sign in signs]
    assert (found.problem, found.steps) == (problem, pieces)
    assert found.pieces == [problem + pieces[0], *pieces[1:], ""]


def test_the_step_tag_and_the_separator_can_be_named() -> None:
    """A tag and a separator that nobody knows are read when they are named."""
    row = {"input": "P|| s #\nt #", "value": ["+", "-"]}
    (chain,) = chains("openrlhf_prm", row, step_tag="#", prompt_separator="||")
    assert content(chain) == ("P", ["|| s", "t"], [1.0, 0.0])


def completion(text: str, rating: int | None) -> dict[str, Any]:
    """One alternative."""
    return {"text": text, "rating": rating, "flagged": None}


ALTERNATIVES: Row = {
    "question": {"problem": "P"},
    "label": {
        "steps": [
            {
                "completions": [completion("a", 1), completion("b", -1), completion("c", 0)],
                "chosen_completion": 0,
                "human_completion": None,
            },
            {
                "completions": [completion("d", -1), completion("e", 0)],
                "chosen_completion": 1,
                "human_completion": None,
            },
            {
                "completions": [completion("f", -1)],
                "chosen_completion": None,
                "human_completion": {"text": "g", "rating": None},
            },
            {"completions": None, "chosen_completion": None, "human_completion": "h"},
            {
                "completions": [completion("i", -1), completion("j", 1)],
                "chosen_completion": None,
                "human_completion": None,
            },
            {"completions": [completion("k", 1)], "chosen_completion": 0},
        ]
    },
}


@pytest.mark.parametrize(("neutral", "value"), [("null", None), ("good", 1.0), ("bad", 0.0)])
def test_alternatives_fan_out_in_the_published_order(neutral: str, value: float | None) -> None:
    """One example for each completion that was not chosen, then the chosen chain as a whole.

    A human step stands in for a missing chosen one and is good; the chain stops at a step with
    neither; rating 0 is what ``neutral`` says, in the chain too.
    """
    options = FormatOptions(neutral=neutral)
    found = formats.load("prm800k").read(ALTERNATIVES, options)
    before = [1.0, value, 1.0, 1.0]
    assert found == [
        StepChain("P", ["b"], [0.0]),
        StepChain("P", ["c"], [value]),
        StepChain("P", ["a", "d"], [1.0, 0.0]),
        StepChain("P", ["a", "e", "f"], [1.0, value, 0.0]),
        StepChain("P", ["a", "e", "g", "h", "i"], [*before, 0.0]),
        StepChain("P", ["a", "e", "g", "h", "j"], [*before, 1.0]),
        StepChain("P", ["a", "e", "g", "h"], before),
        Refused(
            "behind_chain_end",
            "step 6 completion 0: nothing was chosen at step 5, so no later step continues from it",
        ),
    ]


def test_a_chosen_completion_goes_before_a_human_one() -> None:
    """A human step beside a chosen one is not used, and counted."""
    row = steps_row(
        completions=[completion("a", -1)], chosen_completion=0, human_completion={"text": "h"}
    )
    detail = "step 1: a human wrote a completion, but another one is chosen"
    assert formats.load("prm800k").read(row, FormatOptions()) == [
        Refused("unrated_completion", detail),
        StepChain("P", ["a"], [0.0]),
    ]


@given(st.data())
def test_every_completion_is_in_an_example_or_refused_by_name(data: st.DataObject) -> None:
    """Whatever was chosen, rated or written, each completion's text ends a chain or has a code."""
    steps: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(1, 4))):
        ratings = data.draw(st.lists(st.sampled_from([-1, 0, 1, None]), max_size=3))
        made = [completion(f"{number}.{i}", rating) for i, rating in enumerate(ratings)]
        chosen = data.draw(st.one_of(st.none(), st.integers(0, len(made) - 1))) if made else None
        human = data.draw(st.sampled_from([None, {"text": f"{number}.h"}]))
        steps.append(
            {"completions": made or None, "chosen_completion": chosen, "human_completion": human}
        )
    row = {"question": {"problem": "P"}, "label": {"steps": steps}}
    found = formats.load("prm800k").read(row, FormatOptions())
    chains = [one for one in found if isinstance(one, StepChain)]
    used = {text for chain in chains for text in chain.steps}
    written = sum(len(step["completions"] or []) for step in steps)
    written += sum(step["human_completion"] is not None for step in steps)
    assert len(used) + sum(isinstance(one, Refused) for one in found) == written


def test_alternatives_without_any_chosen_step_still_give_their_own_examples() -> None:
    """Where the first step has neither a chosen nor a human completion there is no chain."""
    row = steps_row(completions=[completion("a", -1), completion("b", 1)], chosen_completion=None)
    assert formats.load("prm800k").read(row, FormatOptions()) == [
        StepChain("P", ["a"], [0.0]),
        StepChain("P", ["b"], [1.0]),
    ]


@pytest.mark.parametrize(
    "row",
    [
        {"question": {"problem": "P"}, "label": {"steps": ["s"]}},
        {"question": {"problem": "P"}, "label": {"steps": [None]}},
        {"question": {"problem": "P"}, "label": {"steps": [{"completions": 5}]}},
        {"question": "P", "label": {"steps": []}},
        {"question": {"problem": "P"}, "label": "x"},
        {"question": {"problem": "P"}, "label": ["x"]},
        {"question": {"problem": "P"}, "label": {"steps": [{"human_completion": 5}]}},
    ],
    ids=[
        "step_text",
        "step_null",
        "completions_number",
        "question_text",
        "label_text",
        "label_list",
        "human_number",
    ],
)
def test_misshapen_alternatives_are_refused_as_a_row(row: Row) -> None:
    """A row of another shape in a PRM800K file is refused by name and stops nothing."""
    door = Normalize(kind_of("prm"), formats.load("prm800k"), FormatOptions())
    (found,) = door([Record(0, 0, b"", row)]).to_pylist()
    assert found["reject_code"] in ("bad_column", "malformed_row")
    assert found["reject_detail"]


KEYS = (
    "messages conversations prompt completion completions chosen rejected text input output "
    "instruction label labels value question answer steps problem system tools margin "
    "score_chosen score_rejected role content from rating chosen_completion human_completion "
    "weight train loss tool_calls name type instances history response_chosen response_rejected "
    "output_1 output_2 winner ranked responses scores rank error_steps first_error prefixes "
    "input_ids loss_mask attention_mask message_thinking message_content reasoning function_call "
    "arguments better_response_id context"
).split()
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "user", "gpt", "tool", "function_call", "+", "[]", "{", "null"])
    | st.sampled_from(["P Step 1: a ки", "P Step 1: a +", '{"name": "f"}', "text"])
)
SHAPES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_calls_one_after_another_are_one_turn() -> None:
    """Turns whose role is a call are made at once, as where they are documented; no turn ends
    between them, and what one of them says alone refuses the row."""

    def call(town: str, **more: object) -> Row:
        said = json.dumps({"name": "weather", "arguments": {"town": town}})
        return {"role": "tool_call", "content": said, **more}

    asked = {"role": "user", "content": "Where is it warmer?"}
    answer = {"role": "assistant", "content": "In Brig."}
    results = [{"role": "tool_response", "content": town} for town in ("9", "4")]
    row = {"messages": [asked, call("Brig"), call("Olten"), *results, answer]}
    (found,) = formats.load("openai").read(row, FormatOptions())
    assert isinstance(found, Conversation)
    assert [turn.role for turn in found.messages] == [
        *("user", "assistant", "tool", "tool", "assistant")
    ]
    calls = (found.messages[1].fields or {})["tool_calls"]
    assert [one["function"]["arguments"]["town"] for one in calls] == ["Brig", "Olten"]
    row = {"messages": [asked, call("Brig"), call("Olten", weight=0), *results, answer]}
    with pytest.raises(RowError, match="their other fields differ") as caught:
        formats.load("openai").read(row, FormatOptions())
    assert caught.value.code == "bad_tool_call"


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(row=st.dictionaries(st.sampled_from(KEYS), SHAPES, max_size=6), raw=st.booleans())
def test_no_row_crashes_the_door(row: Row, raw: bool) -> None:
    """Any object comes out of any format's door once or refused; nothing else is raised."""
    for task in ("sft", "rm", "prm"):
        for base in formats.for_kind(kind_of(task)):
            for found in (base, *base.variants.values()):
                door = Normalize(kind_of(task), found, FormatOptions(), raw=raw, reasoning=None)
                batch = door([Record(0, 0, b"", row)])
                assert batch.num_rows == 1 or found.fans_out
                assert found.matches(row) is None or isinstance(found.matches(row), str)


@settings(max_examples=120, deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from(KEYS), SHAPES, max_size=6), max_size=4))
def test_no_rows_crash_detection(rows: list[Row]) -> None:
    """Any sample has one reading or is refused with a sentence; nothing else is raised."""
    for task in ("sft", "rm", "prm"):
        try:
            found = detect(rows, kind_of(task), "x.jsonl")
        except DataError as error:
            said = str(error)
        else:
            said = found.evidence
            assert kind_of(task).name in found.format.kinds
        assert "\n" not in said


def test_each_row_format_is_detected() -> None:
    """Rows of one format are recognised as that format among those of their task, with a reason."""
    for name, task, row, _ in READ.values():
        found = detect([row] * 3, kind_of(task), "x.jsonl")
        assert found.reading.startswith(name)
        assert "3 of 3" in found.evidence
    assert detect([ALTERNATIVES], kind_of("prm"), "x.jsonl").reading == "prm800k"


def test_the_format_of_most_rows_is_detected() -> None:
    """Some odd rows do not hide the format; their own refusal will name them."""
    good, odd = {"instruction": "q", "output": "a"}, {"id": 1}
    assert detect([good, odd, good], kind_of("sft"), "x.jsonl").reading == "alpaca"
    with pytest.raises(DataError, match="no format of conversations fits"):
        detect([good, odd, odd], kind_of("sft"), "x.jsonl")


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("sft", {"messages": turns(Q, A), "prompt": "q", "completion": "a"}),
        ("sft", {"text": "t", "instruction": "q", "output": "a"}),
        ("prm", {"input": "P ки", "label": "P +", "completions": ["s"], "labels": [True]}),
    ],
)
def test_rows_that_read_two_ways_are_not_guessed_at(task: str, row: Row) -> None:
    """Where two formats fit equally well the user says which."""
    with pytest.raises(DataError, match="reads as") as caught:
        detect([row], kind_of(task), "x.jsonl")
    assert "--format" in caught.value.remedy


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion": "a", "label": True},
        {"prompt": turns(Q), "completion": turns(A), "label": False},
    ],
)
def test_unpaired_data_is_refused_for_reward_models(row: Row) -> None:
    """One answer and a thumb up or down is no pair; the message says so."""
    with pytest.raises(DataError, match="unpaired") as caught:
        detect([row, row], kind_of("rm"), "x.jsonl")
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("task", ["sft", "rm", "prm"])
def test_undetectable_rows_are_refused_with_their_columns(task: str) -> None:
    """The message names the columns that were found and the formats that read rows."""
    with pytest.raises(DataError, match="alpha, beta") as caught:
        detect([{"beta": 1, "alpha": 2}], kind_of(task), "x.jsonl")
    names = {found.name for found in formats.usable_for(kind_of(task))}
    assert all(name in caught.value.remedy for name in names)
    refused = {found.name for found in formats.for_kind(kind_of(task))} - names
    assert not any(name in caught.value.remedy for name in refused)


def test_a_format_of_another_task_is_a_usage_error() -> None:
    """A format that cannot feed the task is refused, and so is one that does not exist."""
    with pytest.raises(UsageError, match="gives conversations, not preference pairs"):
        formats.choose("alpaca", kind_of("rm"))
    with pytest.raises(UsageError, match="alpacca") as caught:
        formats.choose("alpacca", kind_of("sft"))
    assert "alpaca" in caught.value.remedy


def test_columns_named_by_hand_reach_their_format() -> None:
    """A mapping renames columns, nested ones by their dotted path, and hides the old name."""
    row = {"data": {"ask": "q"}, "reply": "a", "question": "not this", "id": 7}
    mapping = {"question": "data.ask", "answer": "reply"}
    assert renamed(row, mapping) == {
        "data": {"ask": "q"},
        "question": "q",
        "answer": "a",
        "id": 7,
    }
    swapped = renamed(
        {"chosen": "b", "rejected": "a"}, {"chosen": "rejected", "rejected": "chosen"}
    )
    assert swapped == {"chosen": "a", "rejected": "b"}
    assert renamed({"x": 1}, {"prompt": "x.y.z"}) == {"x": 1, "prompt": None}


# file under sample_data, task, format, codes of the refused rows
SAMPLE_FILES: dict[str, tuple[str, str, str, list[str]]] = {
    "sft/chat.jsonl": ("sft", "openai", "17 rows", ["bad_json", "empty_answer", "no_user_turn"]),
    "sft/instructions.json": ("sft", "alpaca", "9 rows", []),
    "sft/turn_weights.jsonl": ("sft", "openai", "5 rows", []),
    "sft/word_problems.jsonl": ("sft", "query_response", "10 rows", []),
    "sft/zh_dialogues.jsonl": ("sft", "sharegpt", "5 rows", ["no_answer"]),
    "rm/pairs.jsonl": ("rm", "preference", "12 rows", ["empty_answer", "identical_pair"]),
    "rm/pairs_margin.jsonl": ("rm", "preference", "6 rows", []),
    "rm/pairs_messages.jsonl": ("rm", "preference", "11 rows", ["no_prompt"]),
    "prm/math_shepherd.jsonl": ("prm", "math_shepherd", "16 rows", ["misaligned", "no_steps"]),
    "prm/value_list.jsonl": ("prm", "openrlhf_prm", "15 rows", ["label_count"]),
    "prm/stepwise.jsonl": ("prm", "stepwise", "15 rows", ["label_count"]),
    "prm/stepwise_soft.jsonl": ("prm", "stepwise", "6 rows", []),
    "prm/first_error.json": ("prm", "processbench", "14 rows", []),
    "prm/alternatives.jsonl": ("prm", "prm800k", "2 rows", ["nothing_labelled"]),
}


def records(path: Path) -> list[Record]:
    """Every record of a sample file."""
    reader = readers.load(readers.suffixes()[path.suffix])
    return [
        record
        for split in reader.splits(str(path))
        for batch in reader.read(split)
        for record in batch.records
    ]


@pytest.mark.parametrize(
    ("name", "task", "format_name", "count", "codes"),
    [(name, *rest) for name, rest in SAMPLE_FILES.items()],
    ids=SAMPLE_FILES,
)
def test_sample_files_are_recognised_and_read(
    name: str, task: str, format_name: str, count: str, codes: list[str]
) -> None:
    """Each sample file has the format it shows; only the rows meant to be refused are refused."""
    found = records(SAMPLES / name)
    rows = [record.data for record in found if record.data is not None]
    detected = detect(rows, kind_of(task), name).format
    assert detected.name == format_name
    assert f"{len(found)} rows" == count
    batch = Normalize(kind_of(task), detected, FormatOptions())(found)
    refused = batch["reject_code"].drop_null().to_pylist()
    assert sorted(refused) == codes
    assert set(batch["line"].to_pylist()) == {record.line for record in found}


def test_every_sample_file_is_tested() -> None:
    """No sample file is left out above."""
    there = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.json*")}
    assert there == set(SAMPLE_FILES)


def test_equal_samples_give_equal_step_chains() -> None:
    """The same solutions, stored in three formats, give the same examples line by line."""
    made = []
    for name in ("math_shepherd", "value_list", "stepwise"):
        path = SAMPLES / "prm" / f"{name}.jsonl"
        found = formats.load(SAMPLE_FILES[f"prm/{name}.jsonl"][1])
        batch = Normalize(kind_of("prm"), found, FormatOptions())(records(path)[:14])
        made.append(batch.select(["problem", "steps", "step_labels"]).to_pylist())
    assert made[0] == made[1] == made[2]
    assert all(row["problem"] for row in made[0])


THINK = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("column", ["prompt", "question", "instruction"])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("opening", ["", "<think>\n", "So"])
def test_a_templated_prompt_of_a_pair_is_never_templated_again(
    column: str, listed: bool, opening: str
) -> None:
    """Refused unasked; read once with the option; what it begins goes into texts alone."""
    sides: list[Any] = [turns(A), turns(B)] if listed else ["a", "b"]
    row = {column: THINK + opening, "chosen": sides[0], "rejected": sides[1]}
    form = formats.load("preference")
    with pytest.raises(RowError, match="already carries a chat template") as caught:
        form.read(row, FormatOptions())
    assert caught.value.code == "already_templated"
    allowed = FormatOptions(already_templated=True)
    if listed and opening:
        with pytest.raises(RowError, match="begins the answer with"):
            form.read(row, allowed)
        return
    (pair,) = form.read(row, allowed)
    assert isinstance(pair, Pair)
    assert pair.prompt == [user("q")]
    wanted = ["a", "b"] if listed else [opening + side for side in sides]
    assert [pair.chosen[0].content, pair.rejected[0].content] == wanted


def test_an_input_has_no_place_behind_a_templated_instruction() -> None:
    """It would stand where the answer begins."""
    row = {"instruction": THINK, "input": "more", "output": "a"}
    with pytest.raises(RowError, match="input has no place after it"):
        formats.load("alpaca").read(row, FormatOptions(already_templated=True))


def test_a_format_that_crashes_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no format fits, the nearest one is asked what is wrong; it must not break down."""

    def broken(*_: object) -> list[Example]:
        raise TypeError("a fault of ours")

    with pytest.raises(DataError, match="but not its values"):
        detect([{"problem": 1, "steps": 2}] * 3, kind_of("prm"), "x.jsonl")
    for found in formats.usable_for(kind_of("prm")):
        monkeypatch.setattr(type(found), "read", broken)
    with pytest.raises(TypeError, match="a fault of ours"):
        detect([{"problem": 1, "steps": 2}] * 3, kind_of("prm"), "x.jsonl")


@pytest.mark.parametrize("value", ["User", "human", "gpt", "ASSISTANT"])
def test_a_masked_speaker_is_not_trained(value: str) -> None:
    """Whatever the spelling of the role, in the mask or in the turns."""
    said = [{"from": "human", "value": "q"}, {"from": "Assistant", "value": "a"}]
    row = {"mask": value, "conversations": said}
    (found,) = formats.load("sharegpt").read(row, FormatOptions())
    assert isinstance(found, Conversation)
    masked = "assistant" if value in ("gpt", "ASSISTANT") else "user"
    assert [turn.trained for turn in found.messages] == [
        False if turn.role == masked else None for turn in found.messages
    ]
