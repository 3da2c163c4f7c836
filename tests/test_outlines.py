"""Rows of one outline become columns together, and come out as each of them does alone."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import come_out_the_same, records
from support import table

from stages import formats, kinds
from stages.contract import Example, FormatOptions, Row
from stages.normalize.stage import Normalize
from stages.rows import stop_text
from stages.rows.selection import Selection

TEXTS: list[str] = table("odd_texts.toml")["pairs"]
texts: st.SearchStrategy[Any] = st.sampled_from(TEXTS[:4]) | st.sampled_from(TEXTS)
odd: st.SearchStrategy[Any] = st.none() | st.sampled_from([0, True, 0.5, [], {}, [[]], "[]", ["x"]])
CALL = {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": None}}}]}
USER, ASSISTANT = ("user", "human"), ("assistant", "gpt")


@st.composite
def turns(draw: st.DrawFn, first: int, least: int = 1) -> Any:
    """Turns that mostly alternate, begun by the user (0) or by the assistant (1)."""
    who, said = draw(st.sampled_from([("role", "content"), ("from", "value")]))
    made: list[Any] = [
        {who: (USER, ASSISTANT)[number % 2][who == "from"], said: draw(texts)}
        for number in range(first, first + draw(st.integers(least, 3)))
    ]
    if first == 0 and draw(st.booleans()):
        made.insert(0, {who: "system", said: "s"})
    for turn in made:
        if draw(st.integers(0, 30)) == 0:
            more = [{"weight": 1}, {"name": "n"}, {said: None}, {who: "tool"}, {who: "User"}, CALL]
            turn |= draw(st.sampled_from(more))
    return made


opening = st.sampled_from([0, 0, 0, 1]).flatmap(turns)


@st.composite
def sides(draw: st.DrawFn) -> dict[str, Any]:
    """A pair: two texts, turns or single turns behind a prompt, or two whole conversations."""
    shape = draw(st.sampled_from(["texts", "turns", "turn", "whole"]))
    names = st.sampled_from(["prompt", "question", "conversations", "messages"])
    name, row = draw(names), {}
    if shape == "whole":
        start = draw(opening)
        row = {side: [*start, *draw(turns(len(start) % 2))] for side in ("chosen", "rejected")}
        if draw(st.booleans()):
            row["prompt"] = draw(st.just(start) | st.sampled_from(start).map(_said) | texts)
    else:
        own = {"texts": texts, "turns": turns(1), "turn": turns(1).map(lambda made: made[0])}[shape]
        row = {"chosen": draw(own), "rejected": draw(own), name: draw(opening | texts)}
    if draw(st.integers(0, 9)) == 0:
        row[draw(st.sampled_from([*row]))] = draw(odd | texts)
    return row


def _said(turn: dict[str, Any]) -> Any:
    return turn.get("content", turn.get("value"))


BESIDE: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(0, 3) | st.none(),
    "meta": st.sampled_from([{}, [CALL], CALL, {"a": 1}]),
    "margin": st.sampled_from([None, "", 1, 0.5, float("nan")]),
    "score_chosen": st.sampled_from([None, 1, "x"]),
    "score_rejected": st.sampled_from([None, 0, 1]),
    "system": st.sampled_from([None, "", "s"]),
    "history": st.sampled_from([None, [], [["a", "b"]]]),
    "tools": st.sampled_from([None, [], "", [{"type": "function"}]]),
    "preference": st.sampled_from([None, 1, "x"]),
    "chosen_score_of_somebody": st.sampled_from([None, 1]),
    "context": st.sampled_from([None, "", "c"]),
    "instruction": st.sampled_from([None, "i"]),
    "weight": st.sampled_from([None, 1]),
}
beside: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=BESIDE)
beside = st.just({}) | st.just({}) | beside
labels: st.SearchStrategy[Any] = st.sampled_from(
    [True, False, 1, 0, 1.0, -0.0, 0.25, None, "+", "-", " + "]
)
labels |= st.sampled_from([True, False]) | st.sampled_from([2, "x", [], float("nan"), float("inf")])
steps: st.SearchStrategy[Any] = st.sampled_from(
    ["x", " x", "x\n", "\nx ", "\n\nx", "  \tx\r\n", "\u3000x", "x </s>", ""]
)
steps |= st.sampled_from(["x", "y z", "z", "\nw "])
ratings = labels | st.sampled_from([0, 1, 0.25, True])


@st.composite
def lists(draw: st.DrawFn) -> dict[str, Any]:
    """A problem, a list of steps and a list of ratings."""
    own = draw(st.lists(steps, max_size=4))
    rated = draw(st.lists(ratings, min_size=len(own), max_size=len(own)))
    row = {"prompt": draw(texts), "completions": own, "labels": rated}
    if draw(st.integers(0, 9)) == 0:
        row["scores"] = draw(st.just(rated) | st.lists(labels, max_size=3))
    if draw(st.integers(0, 9)) == 0:
        row[draw(st.sampled_from([*row]))] = draw(odd | st.lists(labels | steps, max_size=3))
    return row


def with_others(rows: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Rows with columns beside their own."""
    return st.tuples(rows, beside).map(lambda both: {**both[1], **both[0]})


def normalize(name: str, options: FormatOptions | None = None, **more: Any) -> Normalize:
    """Normalize for rows of a format, for the task that reads it."""
    kind = kinds.load(formats.load(name).kinds[0])
    return Normalize(kind, formats.load(name), options or FormatOptions(), **more)


@given(
    st.lists(with_others(sides()) | st.none(), max_size=6),
    st.sampled_from(stop_text.POLICIES),
    st.booleans(),
)
def test_marks_stand_for_every_text_of_a_pair(rows, stops, typed):
    come_out_the_same(normalize("preference", stop_text=stops), rows, typed)


MAPS = table("outline_maps.jsonl")


@given(
    st.lists(with_others(sides()) | st.none(), max_size=6),
    st.sampled_from(MAPS) | st.just({}),
    st.sets(st.sampled_from([*BESIDE, "prompt", "question"]), max_size=4),
)
def test_marks_stand_for_texts_of_columns_that_are_named_and_left_out(rows, named, ignored):
    selection = Selection(ignore=tuple(sorted(ignored)))
    one = normalize("preference", FormatOptions(columns=named), selection=selection)
    come_out_the_same(one, rows)


def test_a_key_of_many_objects_is_left_out_of_one_row():
    """Beside keys that are taken from inside of the same objects."""
    rows = [
        {
            "prompt": f"Q{n}",
            "parts": [{"say": f"step {n}.{k}", "ok": k % 2, "seen": k + 1} for k in range(3)],
        }
        for n in range(4)
    ]
    named = {"completions": "parts[].say", "labels": "parts[].ok"}
    assert any(come_out_the_same(normalize("stepwise", FormatOptions(columns=named)), rows))


@given(
    st.lists(with_others(lists()) | st.none(), max_size=6),
    st.sampled_from(stop_text.POLICIES),
    st.booleans(),
    st.sampled_from(["stepwise", "stepwise/signed"]),
)
def test_marks_stand_for_every_step_and_its_rating(rows, stops, raw, reading):
    come_out_the_same(normalize(reading, stop_text=stops, raw=raw), rows)


def talk(*said: str) -> list[dict[str, str]]:
    """Turns of a user and an assistant."""
    return [{"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(said)]


COMMON = [(one["format"], one["row"]) for one in table("outlined_rows.jsonl")]


@pytest.mark.parametrize(("name", "row"), COMMON)
def test_common_rows_have_an_outline_beside_others(name, row):
    """Rows that are read alone leave none of their neighbours to it."""
    rows: list[Any] = [{**row, "id": number} for number in range(16)]
    rows[7], rows[12] = None, {**rows[12], "history": [["q", "a"]]}
    one = normalize(name)
    assert come_out_the_same(one, rows) == [at not in (7, 12) for at in range(16)]
    for odd_value in ("<think> x", 5, [], "<|im_start|>user\nx"):
        rows = [row] * 16
        rows[9] = {**row, [*row][-1]: odd_value}
        assert come_out_the_same(one, rows)[:9] == [True] * 9


def test_sides_that_begin_with_one_answer_come_out_the_same_in_every_order():
    """Whole conversations and answers behind a prompt; alone in a batch."""
    one = normalize("preference")
    codes = set()
    for chosen, rejected in itertools.product(["ara", "bra"], itertools.product("ab", "rs", "ab")):
        for sizes in itertools.product((1, 3), repeat=2):
            said = [
                tuple(side[:size]) for side, size in zip((chosen, rejected), sizes, strict=True)
            ]
            whole = [talk("q", *side) for side in said]
            for row in (
                {"chosen": whole[0], "rejected": whole[1]},
                {"prompt": "q", "chosen": whole[0][1:], "rejected": whole[1][1:]},
            ):
                come_out_the_same(one, [row])
                [found] = one(records([row])).column("reject_code").to_pylist()
                two = said[0][0] == said[1][0] and said[0][1:2] != said[1][1:2]
                same = "identical_pair" if said[0] == said[1] else None
                assert found == ("questions_differ" if two else same)
                codes.add(found)
    assert codes == {None, "questions_differ", "identical_pair"}


class OwnPairs(kinds.Pairs):
    """A kind that changes what becomes of a pair."""

    name = "own_pairs"


@pytest.mark.parametrize("name", ["preference", "prompt_completion", "openai"])
def test_a_format_that_reads_rows_anew_says_anew_what_it_passes_on(name):
    base: Any = type(formats.load(name))

    class Own(base):
        name = "own"

        def read(self, row: Row, options: FormatOptions) -> list[Example]:
            raise AssertionError

    class Same(base):
        name = "own"

    assert not Own.passes_on
    assert Same.passes_on == base.passes_on != ()


def test_a_kind_derived_from_another_says_anew_that_it_passes_texts_on():
    """What it overrides may look into them."""
    one = Normalize(OwnPairs(), formats.load("preference"), FormatOptions())
    assert kinds.Pairs.passes_on
    assert one._outlines is None
