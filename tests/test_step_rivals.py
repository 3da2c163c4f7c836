"""Two columns that rate the same steps say the same, or the build asks which one is meant."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import kind_of, table

from stages import formats
from stages.contract import FormatOptions, Refused, Row, StepChain
from stages.errors import AskError, DataError, RowError
from stages.normalize.evidence import detect
from stages.rows.column_names import Watched
from stages.rows.selection import Selection

PROBLEM = {"problem": "P", "steps": ["s", "t", "u"]}
TAGGED = [{"role": "user", "content": "P"}, {"role": "assistant", "content": "s<step>t<step>"}]
ASKED = {"role": "user", "content": "P"}
# What says the same as the ratings of a row, and what says something else.
ROWS: dict[str, Row] = {one["reading"]: one for one in table("step_rivals.jsonl")}
SECONDS = [
    (reading, name)
    for reading, one in ROWS.items()
    for name in formats.load(reading).columns[one["meaning"]]
    if name not in one["row"]
]


def read(reading: str, row: Row, **columns: str) -> list[Any]:
    """A row's examples."""
    return list(formats.load(reading).read(row, FormatOptions(columns=columns)))


@pytest.mark.parametrize(("reading", "name"), SECONDS)
def test_a_second_rating_that_differs_is_asked_about(reading: str, name: str) -> None:
    """It refuses its row, and asks about a file of such rows; each way that is offered works."""
    row, meaning, odd = (ROWS[reading][name] for name in ("row", "meaning", "others"))
    mine = next(one for one in formats.load(reading).columns[meaning] if one in row)
    for value in odd:
        both = {**row, name: value}
        with pytest.raises(AskError, match=f"{name} could|{name} and .* could") as refused:
            read(reading, both)
        doubt = formats.load(reading).doubt([row, both], {})
        assert doubt is not None
        assert doubt[1] == refused.value.remedy
        assert f"--ignore {mine}" in doubt[1]
        assert f"--ignore {name}" in doubt[1]
        assert read(reading, Selection(ignore=(name,)).read(both)) == read(reading, row)
        assert read(reading, both, **{mine: mine}) == read(reading, row)


@pytest.mark.parametrize(("reading", "name"), SECONDS)
def test_a_second_rating_that_says_the_same_counts_as_read(reading: str, name: str) -> None:
    """The example is the same, and the column is not reported."""
    row, same = ROWS[reading]["row"], ROWS[reading]["same"]
    for value in same:
        both = Watched({**row, name: value})
        assert read(reading, both) == read(reading, row)
        assert name in both.read_columns or value in ([None, None], [0.5])
        assert formats.load(reading).doubt([dict(both)], {}) is None


@pytest.mark.parametrize("reading", ["stepwise", "stepwise/signed"])
def test_signs_say_what_1_and_minus_1_say(reading: str) -> None:
    """Written as + and -, or as numbers, ratings are compared by what they mean."""
    row = {"prompt": "P", "completions": ["s", "t"], "labels": [1, -1], "scores": ["+", "-"]}
    if reading == "stepwise":
        row["labels"], row["scores"] = row["scores"], row["labels"]
    assert read(reading, row) == [StepChain("P", ["s", "t"], [1.0, 0.0])]


def test_nulls_alone_rate_nothing() -> None:
    """The column that holds ratings is read, whichever comes first."""
    row = {"prompt": "P", "completions": ["s", "t"], "labels": [None, None], "scores": [1, 0]}
    assert read("stepwise", row) == [StepChain("P", ["s", "t"], [1.0, 0.0])]
    alone = {"prompt": "P", "completions": ["s", "t"], "labels": [None, None]}
    assert read("stepwise", alone) == [StepChain("P", ["s", "t"], [None, None])]


def test_ratings_of_a_solution_among_several() -> None:
    """They refuse that solution alone, and the file is asked about with the path of the list."""
    good = {"steps": ["s", "t"], "labels": [1, 0], "scores": [True, False]}
    odd = {"steps": ["s", "t"], "labels": [1, 1], "rewards": [1, 0]}
    row = {"problem": "P", "solutions": [good, odd]}
    chain, refused = read("nested_steps", row)
    assert chain == StepChain("P", ["s", "t"], [1.0, 0.0])
    assert isinstance(refused, Refused)
    assert "labels and rewards could each be the rating of each step" in refused.detail
    with pytest.raises(DataError) as caught:
        detect([row], kind_of("prm"), "x.jsonl")
    ways = "--ignore 'solutions[].rewards' or --ignore 'solutions[].labels'"
    assert ways in caught.value.remedy


@pytest.mark.parametrize("other", ["text", "content", "step_text", "thought"])
def test_no_text_of_a_step_is_dropped(other: str) -> None:
    """A second text that differs is asked about; one that is empty or says the same is not."""
    step = {"step": "s", "rating": 1}
    for same in ("s", " s\n", "", None):
        row = Watched({"problem": "P", "steps": [{**step, other: same}]})
        (chain,) = read("rated_steps", row)
        assert [text.strip() for text in chain.steps] == ["s"]
        assert not list(row.unread())
    filled = {"problem": "P", "steps": [{**step, "step": "", other: "s"}]}
    assert read("rated_steps", filled) == [StepChain("P", ["s"], [1.0])]
    steps = [step, {**step, other: "all of s"}]
    for reading, row, place in (
        ("rated_steps", {"problem": "P", "steps": steps}, "steps[]"),
        ("nested_steps", {"problem": "P", "rollouts": [{"steps": steps}]}, "rollouts[].steps[]"),
    ):
        doubt = formats.load(reading).doubt([row], {})
        assert doubt is not None
        assert "could each be the text of a step" in doubt[0]
        assert f"--ignore '{place}.step'" in doubt[1]
        assert f"--ignore '{place}.{other}'" in doubt[1]
    both = {"problem": "P", "steps": steps[1:]}
    for dropped, kept in (("step", "all of s"), (other, "s")):
        row = Selection(ignore=(f"steps[].{dropped}",)).read(both)
        assert read("rated_steps", row) == [StepChain("P", [kept], [1.0])]
    with pytest.raises(AskError, match="text of a step in steps"):
        read("rated_steps", {"problem": "P", "steps": steps})
    (refused,) = read("nested_steps", {"problem": "P", "rollouts": [{"steps": steps}]})
    assert isinstance(refused, Refused)


@pytest.mark.parametrize("other", ["text", "content", "thought", "action"])
def test_no_text_of_a_node_is_dropped(other: str) -> None:
    """The same of a node in a tree."""

    def tree(**more: str | None) -> Row:
        return {"problem": "P", "tree": {"children": [{"step": "s", "value": 1, **more}]}}

    for same in ("s", " s\n", "", None):
        row = Watched(tree(**{other: same}))
        (chain,) = read("step_tree", row)
        assert [text.strip() for text in chain.steps] == ["s"]
        assert not list(row.unread())
    assert read("step_tree", tree(**{"step": "", other: "s"})) == [StepChain("P", ["s"], [1.0])]
    both = tree(**{other: "all of s"})
    doubt = formats.load("step_tree").doubt([both], {})
    assert doubt is not None
    assert f"--ignore 'tree.**.{other}'" in doubt[1]
    with pytest.raises(RowError, match="two texts"):
        read("step_tree", both)


@pytest.mark.parametrize(
    "rows",
    [
        [{"label": 1, "first_error": -1}] * 3,
        [{"label": 0, "first_error": 2}],
        [{"label": 3, "first_error": -1}],
        [{"label": True, "first_error": 1}],
        [{"label": "math", "first_error": 1}],
    ],
)
def test_a_verdict_beside_the_first_error_is_no_index(rows: list[Row]) -> None:
    """Whatever the label holds, the file is asked about before anything is trained."""
    with pytest.raises(DataError, match="label and first_error could each be the index"):
        detect([{**PROBLEM, **row} for row in rows], kind_of("prm"), "x.jsonl")


def test_an_index_that_another_column_repeats_is_no_verdict() -> None:
    """Four rows of 0 and 1 are a question only where nothing else says that they are indices."""
    rows = [{**PROBLEM, "label": n % 2} for n in range(4)]
    with pytest.raises(DataError, match="verdict"):
        detect(rows, kind_of("prm"), "x.jsonl")
    both = [{**row, "first_error": row["label"]} for row in rows]
    assert detect(both, kind_of("prm"), "x.jsonl").reading == "processbench"


@settings(max_examples=80, deadline=None)
@given(
    firsts=st.lists(st.integers(-1, 2), min_size=1, max_size=5),
    base=st.sampled_from([0, 1]),
    name=st.sampled_from(formats.load("processbench").columns["first error"][1:]),
)
def test_an_index_counts_as_the_file_shows(firsts: list[int], base: int, name: str) -> None:
    """From 0 where a step 0 occurs, from 1 where a last step does; else the build asks."""
    rows = [{**PROBLEM, name: first + base if first >= 0 else None} for first in firsts]
    if set(firsts) == {-1}:  # read alike from 0 and from 1
        assert detect(rows, kind_of("prm"), "x.jsonl").reading == "processbench"
        return
    shown = {0, -1} <= set(firsts) if base == 0 else 2 in firsts
    if not shown:
        with pytest.raises(DataError, match="from 0 or from 1") as caught:
            detect(rows, kind_of("prm"), "x.jsonl")
        for way in ("0-based", "1-based"):
            assert f"--format processbench/{way}" in caught.value.remedy
        return
    found = detect(rows, kind_of("prm"), "x.jsonl")
    assert found.reading == f"processbench/{base}-based"
    for row, first in zip(rows, firsts, strict=True):
        (chain,) = read(found.reading, row)
        wanted = [1.0] * 3 if first < 0 else [1.0] * first + [0.0] + [None] * (2 - first)
        assert chain.labels == wanted


def test_a_0_may_say_that_no_step_is_wrong() -> None:
    """It proves a count from 0 only where -1 or null says that; else the build asks."""
    rows = [{**PROBLEM, "first_error_step": n} for n in (0, 0, 0, 1, 2, 1)]
    with pytest.raises(DataError, match="a 0 in 3 rows, which may be the first step or say"):
        detect(rows, kind_of("prm"), "x.jsonl")
    for none in (-1, None):
        more = [*rows, {**PROBLEM, "first_error_step": none}]
        assert detect(more, kind_of("prm"), "x.jsonl").reading == "processbench/0-based"


@pytest.mark.parametrize("none", [-1, None])
def test_solutions_without_errors_need_no_numbering(none: int | None) -> None:
    """They build, and a number that the sample did not have is refused, not guessed."""
    row = {**PROBLEM, "first_error_step": none}
    found = detect([row], kind_of("prm"), "x.jsonl")
    assert found.reading == "processbench"
    assert read(found.reading, row) == [StepChain("P", ["s", "t", "u"], [1.0, 1.0, 1.0])]
    with pytest.raises(RowError, match="--format processbench/0-based or"):
        read(found.reading, {**PROBLEM, "first_error_step": 2})


@pytest.mark.parametrize(
    ("meant", "own", "other", "reading"),
    [
        ("label", 0, 3, "processbench"),
        ("first_error", 3, 1, "processbench/1-based"),
        ("error_steps", [3], [0, 1], "error_list/1-based"),
        ("ratings", [1, 0, 1], [1, -1, 1], "stepwise"),
    ],
)
def test_only_what_map_names_shows_how_it_is_read(
    meant: str, own: Any, other: Any, reading: str
) -> None:
    """A second column with the meaning is not looked at."""
    second = {"label": "first_error_step", "first_error": "label"}.get(meant)
    second = second or {"error_steps": "errors", "ratings": "labels"}[meant]
    rows = [{**PROBLEM, meant: own, second: other}]
    columns = {meant: "own"}
    variant, _ = formats.load(reading.partition("/")[0]).settle(rows, columns)
    assert variant == reading.partition("/")[2]


def test_numbers_from_both_ends_are_asked_about() -> None:
    """A step 0 and one past the end: neither way of counting has both."""
    rows = [{**PROBLEM, "first_error_step": n} for n in (0, 3)]
    with pytest.raises(DataError, match="both a step 0 and a step past the end"):
        detect(rows, kind_of("prm"), "x.jsonl")
    for reading, row in zip(("processbench/1-based", "processbench/0-based"), rows, strict=True):
        with pytest.raises(RowError, match="is not a step of 3"):
            read(reading, row)


def test_label_counts_from_0_whatever_it_shows() -> None:
    """Where it is to count from 1, it is read under another name."""
    row = {**PROBLEM, "label": 2}
    assert detect([row, row], kind_of("prm"), "x.jsonl").reading == "processbench"
    assert read("processbench", row) == [StepChain("P", ["s", "t", "u"], [1.0, 1.0, 0.0])]
    with pytest.raises(RowError, match="--map first_error=label"):
        read("processbench/1-based", row)
    renamed = {**PROBLEM, "first_error": 2}
    (chain,) = read("processbench/1-based", renamed, first_error="label")
    assert chain.labels == [1.0, 0.0, None]


def test_what_map_names_is_the_index_also_where_it_is_null() -> None:
    """``label`` is not taken in its place."""
    row = {**PROBLEM, "label": 1, "first_error": None}
    (chain,) = read("processbench", row, first_error="first_error")
    assert chain.labels == [1.0, 1.0, 1.0]
