"""What a row leaves open is asked about, as are two columns that rate the same steps and differ;
what makes no example is counted."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import kind_of, raised, table

from stages import formats
from stages.contract import FormatOptions, Pair, Refused, Row, StepChain
from stages.errors import AskError, DataError, RowError
from stages.normalize.evidence import detect
from stages.rows import column_names, selection

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


def read(reading: str, row: Row, **columns: str) -> list[Any]:
    """A row's examples."""
    return list(formats.load(reading).read(row, FormatOptions(columns=columns)))


def _as_held(reading: str, name: str, value: Any) -> Any:
    """A value as the column can hold it: lists of two answers, ranks with the best lowest."""
    if name in ("rank", "ranks"):
        return value[::-1]
    ends = ("responses", "answers", "completions", "outputs", "candidates", "summaries")
    return [value, "b"] if reading == "indexed_pair" and name in ends else value


@pytest.mark.parametrize("reading", ROWS)
def test_a_second_column_of_one_meaning_is_not_chosen_between(reading):
    """With another value it refuses the row, and asks about a file of such rows; null, an empty
    text, and the value that the row has already change nothing."""
    row, values = ROWS[reading]
    found = formats.load(reading)
    wanted = read(reading, row)
    assert len(wanted) == 1
    for meaning, name in SECONDS[reading]:
        odd = {**row, name: _as_held(reading, name, values[meaning])}
        refused = raised(AskError, read, reading, odd, says=name)
        assert "--" in refused.remedy
        doubt = found.doubt([row, odd], {})
        assert name in doubt[0]
        for empty in (None, "") if meaning not in ("margin", "numbers") else (None,):
            assert read(reading, {**row, name: empty}) == wanted, name
        mine = next((one for one in found.columns[meaning] if one in row), None)
        if meaning not in ("answers", "margin") and mine is not None:
            assert read(reading, {**row, name: _as_held(reading, name, row[mine])}) == wanted, name


SCORES = st.lists(st.sampled_from([None, "N/A", float("nan"), 0, "1", 2.5]), min_size=2, max_size=6)


@given(SCORES, st.sampled_from(["", "all", "extremes"]), st.booleans())
def test_answers_without_a_number_are_counted_and_never_ordered(scores, which, inside):
    """Each pair has the higher score in front; every answer is in one, or counted by name."""
    answers = [f"answer {place}" for place in range(len(scores))]
    row: Row = {"prompt": "q", "responses": answers, "scores": scores}
    if inside:
        objects = [{"text": a, "score": s} for a, s in zip(answers, scores, strict=True)]
        row = {"prompt": "q", "responses": objects}
    known = {a: float(s) for a, s in zip(answers, scores, strict=True) if s in (0, "1", 2.5)}
    reading = f"ranked/{which}" if which else "ranked"
    if len(known) < 2 or len(set(known.values())) < 2:
        refused = raised(RowError, read, reading, row)
        assert refused.code == ("unrated_answer" if len(known) < 2 else "tie")
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
def test_answers_behind_the_first_are_counted(chosen, rejected):
    """One pair, and one refused sequence for every other answer."""
    row = {
        "prompt": "q",
        "chosen": [f"c{i}" for i in range(chosen)],
        "rejected": [f"r{i}" for i in range(rejected)],
    }
    _, *others = read("answer_lists/first", row)
    assert [one.code for one in others if isinstance(one, Refused)] == ["not_the_first"] * (
        chosen + rejected - 2
    )


def test_few_rows_that_ask_are_left_to_be_refused():
    """One row in a hundred stops no file; each is refused with the options that settle it."""
    row, _ = ROWS["preference"]
    odd = {**row, "chosen_response": "z"}
    found = formats.load("preference")
    assert found.doubt([row] * 99 + [odd], {}) is None
    assert found.doubt([row] * 98 + [odd], {}) is not None
    raised(AskError, read, "preference", odd, says="--ignore chosen_response")


PROBLEM = {"problem": "P", "steps": ["s", "t", "u"]}
# What says the same as the ratings of a row, and what says something else.
RIVALS: dict[str, Row] = {one["reading"]: one for one in table("step_rivals.jsonl")}


@pytest.mark.parametrize("reading", RIVALS)
def test_a_second_rating_that_differs_is_asked_about(reading):
    """It refuses its row, and asks about a file of such rows, and each way that is offered works;
    one that says the same counts as read."""
    row, meaning, same, odd = (RIVALS[reading][key] for key in ("row", "meaning", "same", "others"))
    form, wanted = formats.load(reading), read(reading, row)
    mine = next(one for one in form.columns[meaning] if one in row)
    for name in form.columns[meaning]:
        if name in row:
            continue
        for value in odd:
            both = {**row, name: value}
            with pytest.raises(AskError, match=f"{name} could|{name} and .* could") as refused:
                read(reading, both)
            doubt = form.doubt([row, both], {})
            assert doubt[1] == refused.value.remedy
            assert f"--map {mine}={mine}" in doubt[1]
            assert f"--map {name}={name}" in doubt[1]
            assert read(reading, selection.Selection(ignore=(name,)).read(both)) == wanted
            assert read(reading, both, **{mine: mine}) == wanted
        for value in same:
            one = column_names.Watched({**row, name: value})
            assert read(reading, one) == wanted
            assert name in one.read_columns or value in ([None, None], [0.5])
            assert form.doubt([dict(one)], {}) is None


# Where a step stands by itself: the row, the path of the step, and the name of its rating.
PLACES: dict[str, tuple[Callable[[Row], Row], str, str]] = {
    "rated_steps": (lambda step: {"steps": [step]}, "steps[]", "rating"),
    "nested_steps": (
        lambda step: {"rollouts": [{"steps": [step]}]},
        "rollouts[].steps[]",
        "rating",
    ),
    "step_tree": (lambda step: {"tree": {"children": [step]}}, "tree.**", "value"),
}


@pytest.mark.parametrize("reading", PLACES)
@pytest.mark.parametrize("other", ["text", "content", "thought"])
def test_no_text_of_a_step_is_dropped(reading, other):
    """A second text that differs is asked about, and what is offered keeps the other one; one that
    is empty or says the same is not."""
    placed, place, rating = PLACES[reading]

    def row(**more: str | None) -> Row:
        return {"problem": "P", **placed({"step": "s", rating: 1, **more})}

    for same in ("s", " s\n", "", None):
        watched = column_names.Watched(row(**{other: same}))
        (chain,) = read(reading, watched)
        assert [text.strip() for text in chain.steps] == ["s"]
        assert not list(watched.unread())
    assert read(reading, row(**{"step": "", other: "s"})) == [StepChain("P", ["s"], [1.0])]
    both = row(**{other: "all of s"})
    doubt = formats.load(reading).doubt([both], {})
    assert "could each be the text of a" in doubt[0]
    for dropped, kept in ((other, "s"), ("step", "all of s")):
        assert f"--ignore '{place}.{dropped}'" in doubt[1]
        if "*" not in place:
            left = selection.Selection(ignore=(f"{place}.{dropped}",)).read(both)
            assert read(reading, left) == [StepChain("P", [kept], [1.0])]
    if reading == "nested_steps":
        (refused,) = read(reading, both)
        assert isinstance(refused, Refused)
    else:
        raised(RowError, read, reading, both, says="text of a")


@given(
    firsts=st.lists(st.integers(-1, 2), min_size=1, max_size=5),
    base=st.sampled_from([0, 1]),
    name=st.sampled_from(formats.load("processbench").columns["first error"][1:]),
)
def test_an_index_counts_as_the_file_shows(firsts, base, name):
    """From 0 where a step 0 occurs, from 1 where a last step does; else the build asks."""
    rows = [{**PROBLEM, name: first + base if first >= 0 else None} for first in firsts]
    if set(firsts) == {-1}:  # read alike from 0 and from 1
        assert detect(rows, kind_of("prm"), "x.jsonl").reading == "processbench"
        return
    shown = {0, -1} <= set(firsts) if base == 0 else 2 in firsts
    if not shown:
        caught = raised(DataError, detect, rows, kind_of("prm"), "x.jsonl", says="from 0 or from 1")
        for way in ("0-based", "1-based"):
            assert f"--format processbench/{way}" in caught.remedy
        return
    found = detect(rows, kind_of("prm"), "x.jsonl")
    assert found.reading == f"processbench/{base}-based"
    for row, first in zip(rows, firsts, strict=True):
        (chain,) = read(found.reading, row)
        wanted = [1.0] * 3 if first < 0 else [1.0] * first + [0.0] + [None] * (2 - first)
        assert chain.labels == wanted
