"""What a message offers for rows that no format fits: only what shows, and never a guess."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.tasks import kind_of
from stages.contract import Row
from stages.errors import DataError
from stages.normalize.evidence import detect
from stages.normalize.survey import answered, offer

TURNS = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]


OFFERS: list[tuple[Row, str]] = [
    ({"dialogue": TURNS, "n": 1}, "Did you mean --map messages=dialogue?"),
    ({"one": TURNS, "two": TURNS}, ""),  # two lists of turns: nothing says which
    ({"dialogue": [{"from": "human"}, {"from": "gpt"}]}, ""),  # turns without texts
    ({"dialogue": TURNS[:1]}, ""),  # nobody answers
    ({"query": "q", "targets": "a"}, "Did you mean --map prompt=query --map completion=targets?"),
    ({"prompt": "q", "generation": "a"}, "Did you mean --map completion=generation?"),
    ({"query": "q", "task": "t", "targets": "a", "summary": "b"}, ""),  # two answers
    ({"query": "q", "gold_answer": "4", "id": "x"}, ""),  # to check against
    ({"left": "q", "right": "a", "third": "x"}, ""),  # three texts
    ({"left": "q", "right": " "}, ""),  # an empty text answers nothing
    ({"left": 1, "right": 2}, ""),
]


def test_an_offer_rests_on_a_sign() -> None:
    """Turns, names that ask and answer, or two texts, in every row; and nothing where more than one
    would do."""
    for row, offered in OFFERS:
        assert offer([row], kind_of("sft")) == offered, row
        assert offer([row], kind_of("rm")) == "", row
    assert offer([{"left": "q", "right": "a"}, {"left": "q"}], kind_of("sft")) == ""
    assert answered([{"query": "q", "targets": "a"}, {"query": "q", "targets": 1}]) == ""
    both_ways = offer([{"left": "q", "right": "a", "n": 3}], kind_of("sft"))
    assert "--map prompt=left --map completion=right" in both_ways
    assert "--map prompt=right --map completion=left" in both_ways


def test_rows_of_single_turns_are_told_as_such() -> None:
    """An array of turns in a file of its own is read as rows; role and text are no two texts."""
    assert offer(TURNS, kind_of("sft")).startswith("Each row is one turn")
    assert offer([{"role": "user", "content": "q"}], kind_of("sft")).startswith(
        "Each row is one turn"
    )
    assert "--map" in offer([{"role": "a clown", "content": "q"}], kind_of("sft"))


@given(st.dictionaries(st.text("abxy_", min_size=1), st.text(max_size=3) | st.integers()))
def test_what_is_offered_names_columns_of_the_rows(row: dict[str, Any]) -> None:
    """Whatever the columns are called."""
    for word in shlex.split(offer([row], kind_of("sft"))) if row else []:
        name, sign, column = word.partition("=")
        if sign:
            assert name in ("prompt", "completion", "messages")
            assert column.rstrip(",.?") in row


def test_an_answer_by_another_name_is_no_data_for_reinforcement_learning() -> None:
    """A prompt alone is; a prompt beside a column that may answer it is asked about. A column that
    a format knows under a rare name says nothing about the rows."""
    with pytest.raises(DataError) as caught:
        detect([{"prompt": "q", "generation": "a"}], kind_of("sft"), "x.jsonl")
    assert "--map completion=generation" in caught.value.remedy
    with pytest.raises(DataError, match="reinforcement learning"):
        detect([{"prompt": "q", "level": "3"}], kind_of("sft"), "x.jsonl")
    with pytest.raises(DataError) as caught:
        detect([{"text": "q a"}], kind_of("rm"), "x.jsonl")
    assert "message_tree, but" not in caught.value.what
