"""What a row leaves open is asked about; what makes no example is counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import table

from stages import formats
from stages.contract import Example, FormatOptions, Pair, Refused, Row
from stages.errors import AskError, RowError
from stages.rows import examples
from stages.rows.selection import lookup, rest

# reading: a row, and by meaning a value that says something else
ROWS: dict[str, tuple[Row, dict[str, Any]]] = {
    one["reading"]: (one["row"], one["others"]) for one in table("second_columns.jsonl")
}
SECONDS = {
    reading: [
        (meaning, name)
        for meaning in values
        for name in formats.load(reading).columns[meaning]
        if name not in row and name not in ("labels", "responses", "answers")
    ]
    for reading, (row, values) in ROWS.items()
}


def read(reading: str, row: Row, **columns: str) -> list[Example]:
    """A row's examples."""
    return formats.load(reading).read(row, FormatOptions(columns=columns))


def _as_held(reading: str, name: str, value: Any) -> Any:
    """A value as the column can hold it: lists of two answers, ranks with the best lowest."""
    if name in ("rank", "ranks"):
        return value[::-1]
    ends = ("responses", "answers", "completions", "outputs", "candidates", "summaries")
    return [value, "b"] if reading == "indexed_pair" and name in ends else value


@pytest.mark.parametrize("reading", ROWS)
def test_a_second_column_of_one_meaning_is_not_chosen_between(reading: str) -> None:
    """With another value it refuses the row, and asks about a file of such rows; null, an empty
    text, and the value that the row has already change nothing."""
    row, values = ROWS[reading]
    found = formats.load(reading)
    wanted = read(reading, row)
    assert len(wanted) == 1
    for meaning, name in SECONDS[reading]:
        odd = {**row, name: _as_held(reading, name, values[meaning])}
        with pytest.raises(AskError, match=name) as refused:
            read(reading, odd)
        assert "--" in refused.value.remedy
        doubt = found.doubt([row, odd], {})
        assert doubt is not None
        assert name in doubt[0]
        for empty in (None, "") if meaning not in ("margin", "numbers") else (None,):
            assert read(reading, {**row, name: empty}) == wanted, name
        mine = next((one for one in found.columns[meaning] if one in row), None)
        if meaning not in ("answers", "margin") and mine is not None:
            assert read(reading, {**row, name: _as_held(reading, name, row[mine])}) == wanted, name


def test_what_map_names_is_what_is_read() -> None:
    """The doubt's own options settle it, for the row and for the file."""
    row = {"query": "q", "response": "a", "output": "z", "rejected_response": "b"}
    (pair,) = read("rejected_response", row, output="output")
    assert isinstance(pair, Pair)
    assert pair.chosen[0].content == "z"
    found = formats.load("rejected_response")
    assert found.doubt([row], {"output": "output"}) is None


SCORES = st.lists(st.sampled_from([None, 0, 1, 2.5]), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(SCORES, st.sampled_from(["", "all", "extremes"]), st.booleans())
def test_answers_without_a_number_are_counted_and_never_ordered(
    scores: list[float | None], which: str, inside: bool
) -> None:
    """Each pair has the higher score in front; every answer is in one, or counted by name."""
    answers = [f"answer {place}" for place in range(len(scores))]
    row: Row = {"prompt": "q", "responses": answers, "scores": scores}
    if inside:
        objects = [{"text": a, "score": s} for a, s in zip(answers, scores, strict=True)]
        row = {"prompt": "q", "responses": objects}
    known = {a: s for a, s in zip(answers, scores, strict=True) if s is not None}
    reading = f"ranked/{which}" if which else "ranked"
    if len(known) < 2 or len(set(known.values())) < 2:
        with pytest.raises(RowError) as refused:
            read(reading, row)
        assert refused.value.code == ("unrated_answer" if len(known) < 2 else "tie")
        return
    made = read(reading, row)
    pairs = [one for one in made if isinstance(one, Pair)]
    for one in pairs:
        better, worse = known[str(one.chosen[0].content)], known[str(one.rejected[0].content)]
        assert better > worse
        assert one.margin == better - worse
    codes = [one.code for one in made if isinstance(one, Refused)]
    assert codes.count("unrated_answer") == len(scores) - len(known)
    assert codes.count("not_an_extreme") == (len(known) - 2 if which == "extremes" else 0)
    if which == "all":
        assert len(pairs) + codes.count("tie") == len(known) * (len(known) - 1) // 2


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4))
def test_answers_behind_the_first_are_counted(chosen: int, rejected: int) -> None:
    """One pair, and one refused sequence for every other answer."""
    row = {
        "prompt": "q",
        "chosen": [f"c{i}" for i in range(chosen)],
        "rejected": [f"r{i}" for i in range(rejected)],
    }
    pair, *others = read("answer_lists/first", row)
    assert isinstance(pair, Pair)
    assert [one.code for one in others if isinstance(one, Refused)] == ["not_the_first"] * (
        chosen + rejected - 2
    )


def _leaves(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from _leaves(one, f"{path}.{key}")
    else:
        yield path


VALUES = st.recursive(
    st.integers(1, 9),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(VALUES, st.data())
def test_a_path_leaves_exactly_the_rest(value: Any, data: st.DataObject) -> None:
    """Every leaf is under a path that was taken, or under one that is left; never both."""
    paths = list(_leaves(value, "ask"))
    taken = data.draw(st.lists(st.sampled_from(paths), unique=True, min_size=1))
    left = dict(rest("ask", value, taken))
    assert all(lookup({"ask": value}, path) == one for path, one in left.items())
    found = list(itertools.chain.from_iterable(_leaves(one, path) for path, one in left.items()))
    assert sorted(found + taken) == sorted(paths)


EMPTY_SIDES: dict[str, Row] = {
    "rejected_response": {"query": "q", "response": "a", "rejected_response": ""},
    "strength_pair": {"p": 1, "response_1": "a", "response_2": "", "preference_strength": -1},
    "indexed_pair": {"prompt": "q", "response_a": "", "response_b": "b", "winner": "A"},
    "history_pair": {"prompt": "q", "response_chosen": "a", "response_rejected": ""},
}


def test_an_empty_answer_is_refused_as_one() -> None:
    """Not as a column that is missing."""
    for reading, row in EMPTY_SIDES.items():
        (made,) = read(reading, {"prompt": "q", **row})
        assert isinstance(made, Pair)
        with pytest.raises(RowError, match="does not end with an answer"):
            examples.pair(made)


def test_few_rows_that_ask_are_left_to_be_refused() -> None:
    """One row in a hundred stops no file; each is refused with the options that settle it."""
    row, _ = ROWS["history_pair"]
    odd = {**row, "chosen_response": "z"}
    found = formats.load("history_pair")
    assert found.doubt([row] * 99 + [odd], {}) is None
    assert found.doubt([row] * 98 + [odd], {}) is not None
    with pytest.raises(AskError, match="--ignore chosen_response"):
        read("history_pair", odd)


def test_an_index_behind_a_sample_of_letters_is_no_guess() -> None:
    """Where the file's answers are named, a number may count from 0 or from 1."""
    row = {"prompt": "q", "response_a": "a", "response_b": "b", "winner": 1}
    with pytest.raises(RowError, match="an index from 0, an index from 1"):
        read("indexed_pair", row)
    with pytest.raises(RowError, match="names neither answer"):
        read("indexed_pair", {**row, "winner": "  "})
