"""Plain exchanges are normalized by columns, and come out as if they had passed one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import FormatOptions, Record
from stages.conversations import stop_text
from stages.normalize import exchanges
from stages.normalize.stage import Normalize

QUERY_RESPONSE = formats.load("query_response")
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ODD = ["", " \n", "a</s>", "b <|im_end|>\n", "<think>\nx", "<think>x</think>y", "### Response:"]
rows = st.fixed_dictionaries(
    {"question": texts | st.just("a [INST]"), "answer": texts | st.sampled_from(ODD)},
    optional={
        "query": texts | st.none(),
        "system": texts,
        "history": st.just([["a", "b"]]),
        "tools": st.just([]),
        "id": st.integers(0, 9),
    },
)
templated = st.just({"question": "<|im_start|>user\nx<|im_end|>\n", "answer": "y"})


def _records(found: list[dict[str, Any]]) -> list[Record]:
    return [Record(line, None, b"", row) for line, row in enumerate(found)]


@settings(deadline=None)
@given(
    st.lists(rows | templated | st.none(), max_size=6),
    st.sampled_from(["assistant", "last"]),
    st.sampled_from(stop_text.POLICIES),
)
def test_both_ways_give_the_same_columns(found: list[Any], train_on: str, stops: str) -> None:
    door = Normalize(kind_of("sft"), QUERY_RESPONSE, FormatOptions(), train_on, stop_text=stops)
    assert door(_records(found)).equals(door._one_by_one(_records(found)))


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({"question": texts, "answer": texts}), min_size=1))
def test_plain_rows_take_the_short_way(found: list[dict[str, str]]) -> None:
    answers = [row["answer"] for row in found]
    filled = all(text.strip() and stop_text.ending_stop(text) is None for text in answers)
    short = exchanges.texts(found, kind_of("sft"), *QUERY_RESPONSE.exchange)
    assert (short is not None) == filled


@pytest.mark.parametrize(
    "row",
    [
        {"question": 1, "answer": "y"},
        {"question": "x", "answer": None},
        {"question": "x", "problem": "z", "answer": "y"},
        {"answer": "y"},
        {"question": "x", "answer": "y", "system_prompt": "s"},
    ],
)
def test_one_row_that_says_more_takes_the_batch_along(row: dict[str, Any]) -> None:
    plain = {"question": "x", "answer": "y"}
    names = QUERY_RESPONSE.exchange
    assert exchanges.texts([plain], kind_of("sft"), *names) is not None
    assert exchanges.texts([plain, row], kind_of("sft"), *names) is None
    door = Normalize(kind_of("sft"), QUERY_RESPONSE, FormatOptions())
    records = _records([plain, row])
    assert door(records).equals(door._one_by_one(records))
