"""What a message offers for rows that no format fits: only what shows, and never a guess."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Run

from pipeline.tasks import kind_of
from stages.contract import Row
from stages.errors import DataError
from stages.normalize.evidence import detect
from stages.normalize.survey import answered, offer

MODEL = ("--model", "qwen2-1.5b")
BOTH = "Did you mean --map prompt=query --map completion=targets?"
TURNS = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]


@pytest.mark.parametrize(
    ("row", "offered"),
    [
        ({"dialogue": TURNS, "n": 1}, "Did you mean --map messages=dialogue?"),
        ({"one": TURNS, "two": TURNS}, ""),  # two lists of turns: nothing says which
        ({"dialogue": [{"from": "human"}, {"from": "gpt"}]}, ""),  # turns without texts
        ({"dialogue": TURNS[:1]}, ""),  # nobody answers
        (
            {"query": "q", "targets": "a"},
            "Did you mean --map prompt=query --map completion=targets?",
        ),
        ({"prompt": "q", "generation": "a"}, "Did you mean --map completion=generation?"),
        ({"query": "q", "task": "t", "targets": "a", "summary": "b"}, ""),  # two answers
        ({"query": "q", "gold_answer": "4", "id": "x"}, ""),  # to check against
        ({"left": "q", "right": "a", "third": "x"}, ""),  # three texts
        ({"left": "q", "right": " "}, ""),  # an empty text answers nothing
        ({"left": 1, "right": 2}, ""),
    ],
)
def test_an_offer_rests_on_a_sign(row: Row, offered: str) -> None:
    """Turns, names that ask and answer, or two texts; and nothing where more than one would do."""
    assert offer([row], kind_of("sft")) == offered
    assert offer([row], kind_of("rm")) == ""


def test_rows_of_single_turns_are_told_as_such() -> None:
    """An array of turns in a file of its own is read as rows; role and text are no two texts."""
    assert offer(TURNS, kind_of("sft")).startswith("Each row is one turn")
    assert offer([{"role": "user", "content": "q"}], kind_of("sft")).startswith(
        "Each row is one turn"
    )
    assert "--map" in offer([{"role": "a clown", "content": "q"}], kind_of("sft"))


def test_two_texts_are_offered_both_ways() -> None:
    """Nothing says which of them asks."""
    said = offer([{"left": "q", "right": "a", "n": 3}], kind_of("sft"))
    assert "--map prompt=left --map completion=right" in said
    assert "--map prompt=right --map completion=left" in said


def test_every_row_must_have_the_columns() -> None:
    """One row says nothing of the others."""
    assert offer([{"left": "q", "right": "a"}, {"left": "q"}], kind_of("sft")) == ""
    assert answered([{"query": "q", "targets": "a"}, {"query": "q", "targets": 1}]) == ""


@given(st.dictionaries(st.text("abxy_", min_size=1), st.text(max_size=3) | st.integers()))
def test_what_is_offered_names_columns_of_the_rows(row: dict[str, Any]) -> None:
    """Whatever the columns are called."""
    for word in shlex.split(offer([row], kind_of("sft"))) if row else []:
        name, sign, column = word.partition("=")
        if sign:
            assert name in ("prompt", "completion", "messages")
            assert column.rstrip(",.?") in row


def test_an_answer_by_another_name_is_no_data_for_reinforcement_learning() -> None:
    """A prompt alone is; a prompt beside a column that may answer it is asked about."""
    with pytest.raises(DataError) as caught:
        detect([{"prompt": "q", "generation": "a"}], kind_of("sft"), "x.jsonl")
    assert "--map completion=generation" in caught.value.remedy
    with pytest.raises(DataError, match="reinforcement learning"):
        detect([{"prompt": "q", "level": "3"}], kind_of("sft"), "x.jsonl")


def test_one_text_is_not_taken_for_a_tree() -> None:
    """A column that a format knows under a rare name says nothing about the rows."""
    with pytest.raises(DataError) as caught:
        detect([{"text": "q a"}], kind_of("rm"), "x.jsonl")
    assert "message_tree, but" not in caught.value.what


def test_columns_of_a_table_of_texts_are_asked_about(pipeline: Run, tmp_path: Path) -> None:
    """As those of rows of JSON are."""
    rows = [["left side", "right"], ["q, 1", 'a "b"'], ["q2", "a2"]]
    with (tmp_path / "the table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    refused = pipeline("run", "sft", "the table.csv", *MODEL, "-o", "out")
    assert refused.status == 3
    assert "--map" in refused.err
