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
from stages.rows.selection import Selection
from stages.rows.watched import Watched

PROBLEM = {"problem": "P", "steps": ["s", "t", "u"]}
# What says the same as the ratings of a row, and what says something else.
ROWS: dict[str, Row] = {one["reading"]: one for one in table("step_rivals.jsonl")}


def read(reading: str, row: Row, **columns: str) -> list[Any]:
    """A row's examples."""
    return list(formats.load(reading).read(row, FormatOptions(columns=columns)))


@pytest.mark.parametrize("reading", ROWS)
def test_a_second_rating_that_differs_is_asked_about(reading: str) -> None:
    """It refuses its row, and asks about a file of such rows, and each way that is offered works;
    one that says the same counts as read."""
    row, meaning, same, odd = (ROWS[reading][key] for key in ("row", "meaning", "same", "others"))
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
            assert doubt is not None
            assert doubt[1] == refused.value.remedy
            assert f"--ignore {mine}" in doubt[1]
            assert f"--ignore {name}" in doubt[1]
            assert read(reading, Selection(ignore=(name,)).read(both)) == wanted
            assert read(reading, both, **{mine: mine}) == wanted
        for value in same:
            watched = Watched({**row, name: value})
            assert read(reading, watched) == wanted
            assert name in watched.read_columns or value in ([None, None], [0.5])
            assert form.doubt([dict(watched)], {}) is None


def test_ratings_are_compared_by_what_they_mean() -> None:
    """Written as + and -, or as numbers; nulls alone rate nothing, and the column that holds
    ratings is read, whichever comes first."""
    row: Row = {"prompt": "P", "completions": ["s", "t"]}
    for reading, labels, scores, wanted in (
        ("stepwise", ["+", "-"], [1, -1], [1.0, 0.0]),
        ("stepwise/signed", [1, -1], ["+", "-"], [1.0, 0.0]),
        ("stepwise", [None, None], [1, 0], [1.0, 0.0]),
    ):
        found = read(reading, {**row, "labels": labels, "scores": scores})
        assert found == [StepChain("P", ["s", "t"], [*wanted])], (labels, scores)
    alone = read("stepwise", {**row, "labels": [None, None]})
    assert alone == [StepChain("P", ["s", "t"], [None, None])]


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


def test_a_verdict_beside_the_first_error_is_no_index() -> None:
    """Whatever the label holds, the file is asked about before anything is trained. Rows of 0 and 1
    are a question only where no other column says that they are indices."""
    for label, first, count in ((1, -1, 3), (0, 2, 1), (3, -1, 1), (True, 1, 1), ("math", 1, 1)):
        row = {**PROBLEM, "label": label, "first_error": first}
        with pytest.raises(DataError, match="label and first_error could each be the index"):
            detect([row] * count, kind_of("prm"), "x.jsonl")
    rows = [{**PROBLEM, "label": n % 2} for n in range(4)]
    with pytest.raises(DataError, match="verdict"):
        detect(rows, kind_of("prm"), "x.jsonl")
    both = [{**row, "first_error": row["label"]} for row in rows]
    assert detect(both, kind_of("prm"), "x.jsonl").reading == "processbench"


@settings(max_examples=60, deadline=None)
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


def test_solutions_without_errors_need_no_numbering() -> None:
    """They build, and a number that the sample did not have is refused, not guessed."""
    for none in (-1, None):
        row = {**PROBLEM, "first_error_step": none}
        found = detect([row], kind_of("prm"), "x.jsonl")
        assert found.reading == "processbench"
        assert read(found.reading, row) == [StepChain("P", ["s", "t", "u"], [1.0, 1.0, 1.0])]
        with pytest.raises(RowError, match="--format processbench/0-based or"):
            read(found.reading, {**PROBLEM, "first_error_step": 2})


def test_only_what_map_names_shows_how_it_is_read() -> None:
    """A second column with the meaning is not looked at, also where the first is null."""
    for meant, own, second, other, reading in (
        ("label", 0, "first_error_step", 3, "processbench"),
        ("first_error", 3, "label", 1, "processbench/1-based"),
        ("error_steps", [3], "errors", [0, 1], "error_list/1-based"),
        ("ratings", [1, 0, 1], "labels", [1, -1, 1], "stepwise"),
    ):
        rows = [{**PROBLEM, meant: own, second: other}]
        variant, _ = formats.load(reading.partition("/")[0]).settle(rows, {meant: "own"})
        assert variant == reading.partition("/")[2], meant
    row = {**PROBLEM, "label": 1, "first_error": None}
    (chain,) = read("processbench", row, first_error="first_error")
    assert chain.labels == [1.0, 1.0, 1.0]


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
