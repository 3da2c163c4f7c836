"""What judges say is read under any names, or asked about: the better answer is the better one.

Files of votes, marks and rated steps are rows of ``tables/files_read.jsonl``, see test_detection.
"""

import itertools
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import few, raised, table

from pipeline.options.ways import ways
from pipeline.tasks import kind_of
from stages import formats
from stages.contract import FormatOptions, Row
from stages.errors import DataError, RowError
from stages.formats import _ratings
from stages.normalize import evidence
from stages.normalize.survey import survey
from stages.rows import judgements, shapes, signals
from stages.rows.selection import Selection, condition, lookup, renamed

ROWS = range(24)
GOOD, BAD = "It is {}, since both are added.", "Nobody can know that of {}."
LISTS = ["generations", "responses", "samples", "candidate_answers"]
JUDGED = ["is_correct", "passed", "math_verified", "success", "judge_score"]
Options = Mapping[str, str]


def _asked(i: int) -> str:
    return f"What is {i} and {i * 7} together, in words?"


def _answers(i: int) -> tuple[str, str]:
    """Two answers, of which the first is the better one in even rows."""
    both = GOOD.format(i), BAD.format(i)
    return both if i % 2 == 0 else both[::-1]


def _read(rows: Sequence[Row], task: str, columns: Options | None = None) -> list[list[Any]]:
    """The examples of each row, as they are detected among all formats."""
    mapping = columns or {}
    told, given = FormatOptions(columns=mapping), [renamed(row, mapping) for row in rows]
    found = evidence.detect(given, kind_of(task), "x.jsonl", told).format
    options = found.told(told)
    return [found.read(renamed(row, found.renamed), options) for row in given]


def _maps(error: DataError) -> Options:
    """What the first way of an error's remedy maps."""
    words = shlex.split(error.remedy.partition(", or ")[0].rstrip("."))
    pairs = itertools.pairwise(words)
    return dict(value.split("=", 1) for flag, value in pairs if flag == "--map")


def _refused(rows: Sequence[Row]) -> tuple[str, list[Any]]:
    """The one option that pairs which are refused leave, and their errors."""
    found = evidence.detect(rows, kind_of("rm"), "x.jsonl").format
    given = [renamed(row, found.renamed) for row in rows]
    left = survey(given, found, kind_of("rm"), found.told(FormatOptions()), Selection())
    ((remedy, errors),) = left.refused.items()
    return remedy, errors


@pytest.mark.parametrize(("_", "name", "some", "odd"), table("no_winners.jsonl"))
def test_rows_that_prefer_neither_are_left_out_by_the_option_that_is_named(_, name, some, odd):
    """As many votes for each, no verdict, equal scores, a word: one condition for all of them."""
    rows: list[Row] = []
    for i in ROWS:
        verdict = odd if i % 6 == 4 else some[i % 2]
        rows.append({"request": _asked(i), "candidates": [*_answers(i)], name: verdict})
    remedy, errors = _refused(rows)
    assert len(errors) == 4
    where = condition(shlex.split(remedy)[-1])
    assert [where.holds(row) for row in rows] == [i % 6 != 4 for i in ROWS]


@given(names=st.sampled_from(["chosen rejected", "response_w response_l", "good_reply bad_reply"]))
@settings(max_examples=6)
def test_scores_that_contradict_the_order_are_asked_about(names):
    """Under the names of a format and under any others, with both ways on."""
    one, other = names.split()
    scores = f"{one}_score", f"{other}_score"
    rows = [
        {"prompt": _asked(i), one: GOOD.format(i), other: BAD.format(i)}
        | dict(zip(scores, (1.0, 2.0) if i % 5 == 0 else (2.0, 1.0), strict=True))
        for i in ROWS
    ]
    remedy, errors = _refused(rows)
    assert [error.code for error in errors] == ["two_orders"] * 5
    where = condition(shlex.split(remedy.partition(", or")[0])[-1])
    assert [where.holds(row) for row in rows] == [i % 5 != 0 for i in ROWS]
    assert f"--ignore {scores[0]} --ignore {scores[1]}" in remedy


@given(st.lists(st.sampled_from([0, 1, "A", "B", None, ""]), max_size=7))
def test_most_say_what_is_there_more_often_than_all_others(values):
    said = lookup({"votes": values}, "votes[most]")
    there = [one for one in values if one not in (None, "")]
    if said is None:
        assert not there
    elif said == judgements.TIE:
        counts = sorted(map(there.count, {*there}))
        assert counts[-1] == counts[-2]
    else:
        assert all(there.count(said) > there.count(one) for one in {*there} - {said})


@given(st.lists(st.floats(0, 100), min_size=2, max_size=5))
def test_the_best_is_the_place_of_the_highest(values):
    row = {"a": values[0], "b": values[1], "scores": values}
    said = lookup(row, "scores[best]")
    assert said == "tie" if len({*values}) == 1 else values[said] == max(values)
    assert lookup(row, "a,b[best]") == lookup({"s": values[:2]}, "s[best]")


def test_what_is_taken_with_an_ending_is_read():
    row = {"votes": [1, 1, 0], "steps": [{"marks": [1, 5]}]}
    assert renamed(row, {"label": "votes[most]"}) == {"label": 1, "steps": row["steps"]}
    assert lookup(row, "steps[].marks[mean][1..5]") == [0.5]
    assert lookup(row, "votes[least]") is None
    assert lookup({"preference": 1.5}, "preference[nearest]") == judgements.TIE
    # what holds no number is never taken for none
    assert judgements.together("between steps 1 and 2", "place") == "between steps 1 and 2"


def test_a_word_says_one_thing():
    assert judgements.GOOD.isdisjoint(judgements.BAD)
    assert judgements.NEUTRAL.isdisjoint(judgements.GOOD | judgements.BAD)
    assert all(_ratings.rating(word, "") == 1 for word in judgements.GOOD)
    assert all(_ratings.rating(word.upper(), "") == 0 for word in judgements.BAD)


@pytest.mark.parametrize("verdicts", [(True, False), (1, 0), ("correct", "wrong"), (0.9, 0.2)])
@pytest.mark.parametrize("several", few(LISTS, 2))
@pytest.mark.parametrize("verdict", few(JUDGED, 2))
@pytest.mark.parametrize("inside", [False, True])
def test_of_several_answers_a_good_one_is_trained(verdicts, several, verdict, inside):
    """The command that is printed takes the first that is good, and no row without one."""
    rows: list[Row] = []
    for i in ROWS:
        texts, said = (
            [*_answers(i)],
            [verdicts[1]] * 2 if i % 5 == 4 else [*verdicts][:: 1 - 2 * (i % 2)],
        )
        each = [{"text": text, verdict: one} for text, one in zip(texts, said, strict=True)]
        beside = {several: each} if inside else {several: texts, verdict: said}
        rows.append({"question": _asked(i), **beside})
    asked = raised(DataError, evidence.detect, rows, kind_of("sft"), "x.jsonl")
    ((*_, (flag, text)),) = ways(asked.remedy)
    assert flag == "--where"
    kept = [row for row in rows if condition(text).holds(row)]
    made = _read(kept, "sft", _maps(asked))
    assert [one[0].messages[1].content for one in made] == [
        _answers(i)[i % 2] for i in ROWS if i % 5 != 4
    ]


@pytest.mark.parametrize("name", ["useless_section_number", "changed", "modified_steps"])
def test_lists_of_other_steps_than_the_wrong_ones_are_asked_about(name):
    """Whatever they are called; what numbers the same steps, or no steps, says nothing new."""
    steps = [f"We take step {at}." for at in range(1, 6)]
    for others, asks in (([2, 5], True), ([4], False), ([4, 90], False)):
        rows: list[Row] = [
            {"problem": _asked(i), "steps": steps, "error_steps": [4], name: others} for i in ROWS
        ]
        read = formats.load("error_list/1-based")
        seen = survey(rows, read, kind_of("prm"), FormatOptions(), Selection())
        assert (name in seen.asked) == asks, others


def test_a_verdict_names_no_model():
    """The name of what judges is no verdict, though it has the word for one."""
    for value in ("meta-llama/Llama-Guard-3-8B", "quality-judge-7b", "score-model 2"):
        assert not signals.is_rating(value)
    for value in ("very poor", "not safe", "problem not solved"):
        assert shapes.keeping("quality", ["good", value] * 3) == "--where quality=good"


_SAID = st.sampled_from(
    ["A-is-clearly-better", "A is better", "B-is-slightly-better", "response_b", "Tie", "both bad"]
)


@given(st.lists(_SAID, min_size=1, max_size=4), st.lists(_SAID, min_size=1, max_size=4))
def test_judges_of_two_lists_vote_together(one: list[str], other: list[str]) -> None:
    """However strongly each says it, the side that most name is better; none is where two are as
    many, or most say so."""
    row = {name: [{"verdict": said} for said in some] for name, some in (("x", one), ("y", other))}
    found = lookup(row, "x[].verdict,y[].verdict[most]")
    sides = [judgements.side_of(said) for said in (*one, *other)]
    often = sorted((sides.count(side), str(side)) for side in (0, 1, None))
    tied = often[-1][0] == often[-2][0] or often[-1][1] == "None"
    assert judgements.is_tie(found) == tied
    assert tied or str(judgements.side_of(found)) == often[-1][1]


@pytest.mark.parametrize("share", few([3, 6, 9], 1))
@pytest.mark.parametrize("names", [("question", "chain", "marks"), ("Ask", "steps_shown", "ok")])
def test_few_lists_of_another_length_hide_no_steps(share: int, names: tuple[str, ...]) -> None:
    """They are refused for their length; of other rows each step is as good as it was called. Where
    single words stand beside numbers, nothing says that they are steps."""

    def rows(step: str) -> list[Row]:
        each = [(i, [step.format(n) for n in range(3)], [1, i % 2, 0]) for i in range(100)]
        odd = {i for i in range(100) if i % (100 // share) == 5}
        return [
            dict(zip(names, (_asked(i), steps, [*marks, *[1] * (i in odd)]), strict=True))
            for i, steps, marks in each
        ]

    given = rows("Add {} to what was found.")
    found = evidence.detect(given, kind_of("prm"), "x.jsonl").format
    for row in given:
        own = renamed(row, found.renamed)
        if len(row[names[2]]) == 3:
            (chain,) = found.read(own, found.told(FormatOptions()))
            assert chain.labels == row[names[2]]
        else:
            with pytest.raises(RowError, match="3 steps and 4 labels"):
                found.read(own, found.told(FormatOptions()))
    raised(DataError, evidence.detect, rows("w{}"), kind_of("prm"), "x.jsonl")


@pytest.mark.parametrize("name", ["prior_labels", "earlier_step_ratings", "previous_scores"])
@pytest.mark.parametrize("marks", [[1, 0], ["good", "bad"], [True, True]])
def test_ratings_of_steps_that_are_read_without_them_are_asked_about(name, marks):
    """Only the next step would have one."""
    own = {"problem": "Add.", "prior_steps": ["One and one.", "It is two."], "label": 1}
    rows = [{**own, "next_step": f"So it is {i}.", name: marks} for i in ROWS]
    found = evidence.detect(rows, kind_of("prm"), "x.jsonl").format
    left = survey(rows, found, kind_of("prm"), FormatOptions(), Selection())
    assert left.asked == {name}
