"""Data formats that trainers and services document: each is read, asked about, or refused by name.

The rows are our own; each has the columns that the documentation of its trainer names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rows import normalizing, of
from support import Run, read_manifest

from pipeline.tasks import kind_of
from stages.contract import Message, Record, Row
from stages.errors import RowError
from stages.files.strict_json import parse
from stages.normalize.evidence import detect
from stages.rows import stop_text

MODEL = ("--model", "qwen2-1.5b")
PRINTS_ALL = ("--model", "qwen3-0.6b")  # its template has a place for tools and for reasoning
S, U, M = Message("system", "s"), Message("user", "q"), Message("assistant", "a")


def turn(role: str, content: Any, **more: Any) -> Row:
    """A turn in the spelling of ``messages``."""
    return {"role": role, "content": content, **more}


Q, A = turn("user", "q"), turn("assistant", "a")


def parts(role: str, *content: Row) -> Row:
    """Rows with one message of parts among plain ones."""
    asked = [turn(role, list(content)), A] if role == "user" else [Q, turn(role, list(content))]
    return {"messages": asked}


TEXT, THOUGHT = {"type": "text", "text": "t"}, {"type": "thinking", "thinking": "r"}


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
    stage = normalizing(task, name)
    assert stage([Record(0, 0, b"", row)]).column("reject_code").to_pylist() == [code]


EXTRA = "<extra_id_0>System\n{}\n\n<extra_id_1>User\nq\n<extra_id_1>Assistant"


@pytest.mark.parametrize(("system", "wanted"), [("s", [S, U]), ("", [U])])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_prompt_in_the_template_of_nemo_is_its_turns(
    system: str, wanted: list[Message], end: str
) -> None:
    """With a system text or an empty one, with the last line break or without."""
    found = stop_text.read(EXTRA.format(system) + end)
    assert found is not None
    assert found[0].name == "NeMo"
    assert stop_text.answered(*found, "a\n<extra_id_1>") == [*wanted, M]


def test_ratings_in_a_prompt_are_no_part_of_an_answer() -> None:
    """What ``<extra_id_2>`` opens steers the answer: such a text is not taken apart."""
    assert stop_text.read(EXTRA.format("s") + "\n<extra_id_2>quality:4\n") is None


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
    stage = normalizing("sft", "openai")
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
    stage = normalizing("sft", "alpaca")
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
    pipeline("run", "sft", "x.jsonl", *MODEL, "-o", "out", "--ignore", column).ended()


@pytest.mark.parametrize("task", ["sft", pytest.param("rm", marks=pytest.mark.slow)])
def test_each_documented_format_is_built(pipeline: Run, tmp_path: Path, task: str) -> None:
    """One file a shape, all in one build, and no row is refused."""
    cases = of("documented", task)
    for name, case in cases.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(case.row) + "\n")
    files = [f"{name}.jsonl" for name in cases]
    pipeline("run", task, *files, *PRINTS_ALL, "-o", "out", "--max-reject", "0").ended()
    manifest = read_manifest(tmp_path / "out")
    assert manifest["rows"]["used"] == len(cases)
    assert manifest["examples"]["rejected"] == 0
    assert [one["format"] for one in manifest["inputs"]] == [
        case.reading for case in cases.values()
    ]
