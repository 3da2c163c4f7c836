"""What a row says is used or refuses the row: no column, flag, call or turn goes by itself."""

from __future__ import annotations

from typing import Any

import pytest
from rows import normalizing

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import (
    Columns,
    Conversation,
    Example,
    FormatOptions,
    Message,
    Record,
    Row,
    StepChain,
)
from stages.errors import DataError, RowError
from stages.format import Format
from stages.normalize.evidence import detect
from stages.normalize.stage import Normalize

TEMPLATED = "<|im_start|>user\nP<|im_end|>\n<|im_start|>assistant\n"
STEPS = {"completions": ["s", "t"], "labels": [True, False]}


def read(name: str, row: Row, **options: Any) -> list[Example]:
    """The examples of a row."""
    found = formats.load(name)
    return found.read(row, FormatOptions(**options))


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


def test_an_instruction_that_says_nothing_is_none() -> None:
    """Beside a question; ``--map`` would be needed where it said something."""
    (found,) = read("query_response", {"instruction": "", "question": "q", "answer": "a"})
    assert found == Conversation([Message("user", "q"), Message("assistant", "a")])


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
    door = normalizing("sft", "query_response")
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
