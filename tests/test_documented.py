"""Data formats that trainers and services document: each is read, asked about, or refused by name.

The rows are our own; each has the columns that the documentation of its trainer names.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from rows import normalizing
from support import ROOT

from pipeline.tasks import kind_of
from stages.contract import Message, Record, Row
from stages.errors import RowError
from stages.files.strict_json import parse
from stages.normalize.evidence import detect
from stages.rows import templated


def turn(role: str, content: Any, **more: Any) -> Row:
    """A turn in the spelling of ``messages``."""
    return {"role": role, "content": content, **more}


Q, A = turn("user", "q"), turn("assistant", "a")


def judged(name: str, row: Row) -> tuple[str | None, set[str]]:
    """What a row is refused with, and what of it is not read."""
    stage = normalizing("sft", name)
    (code,) = stage([Record(0, 0, b"", row)]).column("reject_code").to_pylist()
    return code, set(stage.tally.rows)


def test_a_row_without_an_answer_is_refused_by_the_code_of_its_format() -> None:
    """Where the rows around it have one, alone; the page on formats lists these codes."""
    found = detect([{"messages": [Q, A]}] * 20 + [{"messages": [Q]}], kind_of("sft"), "x.jsonl")
    assert found.reading == "openai"
    rows: list[tuple[str, Row, str]] = [
        ("openai", {"messages": [Q]}, "no_answer"),
        ("sharegpt", {"conversations": [{"from": "human", "value": "q"}]}, "no_answer"),
        ("prompt_completion", {"prompt": "q"}, "bad_column"),
        ("alpaca", {"instruction": "q", "input": ""}, "bad_column"),
        ("query_response", {"question": "q"}, "bad_column"),
        ("prompt_completion", {"prompt": "q", "completion": ""}, "empty_answer"),
    ]
    for name, row, code in rows:
        assert judged(name, row)[0] == code, name


EXTRA = "<extra_id_0>System\n{}\n\n<extra_id_1>User\nq\n<extra_id_1>Assistant"


def test_a_prompt_in_the_template_of_nemo_is_its_turns() -> None:
    """With a system text or an empty one, with the last line break or without; what
    ``<extra_id_2>`` opens steers the answer, so that such a text is not taken apart."""
    talk = [Message("system", "s"), Message("user", "q"), Message("assistant", "a")]
    for system, end in itertools.product(("s", ""), ("\n", "")):
        found = templated.read(EXTRA.format(system) + end)
        assert found is not None
        assert found[0].name == "NeMo"
        assert templated.answered(*found, "a\n<extra_id_1>") == talk[not system :]
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


def test_the_page_says_which_documentation_was_read() -> None:
    """Behind the program's name, in parentheses."""
    page = (ROOT / "docs" / "formats.md").read_text("utf-8")
    section = page.partition("## What trainers and services document")[2]
    for program in PROGRAMS:
        pages = section.partition(f"**{program}")[2].partition("** (")[2].partition(")")[0]
        assert "`" in pages or '"' in pages, program


def test_what_a_part_says_beside_its_value_is_named_or_asked_about() -> None:
    """Keys of parts are columns like all others."""
    text, thought = {"type": "text", "text": "t"}, {"type": "thinking", "thinking": "r"}
    answer = turn("assistant", [{**thought, "signature": "x"}, text])
    found = judged("openai", {"messages": [Q, answer]})
    assert found == (None, {"messages[].content[].signature"})
    for part, code in (
        ({"text": "q", "inlineData": {"data": "x"}}, "unread_column"),
        ({**text, "cache_control": {"type": "ephemeral"}}, "unknown_flag"),
    ):
        assert judged("openai", {"messages": [turn("user", [part]), A]})[0] == code


def test_what_stands_beside_an_answer_is_asked_about_or_named() -> None:
    """A better answer is asked about, and so are arguments of the template, since a build renders
    all rows alike; whether there is one, how often, or the same answer again is only named."""
    row = {"instruction": "q", "output": "a"}
    asked = judged("alpaca", {**row, "corrected": "A better one."})
    assert asked == ("unread_column", set())
    for value in (True, 2, "a"):
        assert judged("alpaca", {**row, "corrected": value}) == (None, {"corrected"})
    for column in ("enable_thinking", "chat_template_kwargs"):
        told = {"messages": [Q, A], column: {"enable_thinking": False}}
        assert judged("openai", told)[0] == "unread_column"
