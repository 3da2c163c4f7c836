"""Plain rows become columns many at once, and come out as if they had passed one by one."""

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import records
from support import table

from pipeline.tasks import kind_of
from stages import formats, kinds
from stages.contract import Example, FormatOptions, Row
from stages.normalize.stage import Normalize
from stages.rows import stop_text

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
pairs = st.tuples(sides(), beside).map(lambda both: {**both[1], **both[0]})

labels: st.SearchStrategy[Any] = st.sampled_from(
    [True, False, 1, 0, 1.0, -0.0, 0.25, None, "+", "-", " + "]
)
labels |= st.sampled_from([True, False]) | st.sampled_from([2, "x", [], float("nan"), float("inf")])
steps: st.SearchStrategy[Any] = st.sampled_from(
    ["x", " x", "x\n", "\nx ", "\n\nx", "  \tx\r\n", "\u3000x", "x </s>", ""]
)
steps |= st.sampled_from(["x", "y z"])


@st.composite
def lists(draw: st.DrawFn) -> dict[str, Any]:
    """A problem, a list of steps and a list of ratings."""
    own = draw(st.lists(steps, max_size=4))
    rated = draw(st.lists(labels, min_size=len(own), max_size=len(own)))
    row = {"prompt": draw(texts), "completions": own, "labels": rated}
    if draw(st.integers(0, 9)) == 0:
        row[draw(st.sampled_from([*row]))] = draw(odd | st.lists(labels | steps, max_size=3))
    return row


@st.composite
def tagged(draw: st.DrawFn, aligned: bool) -> dict[str, Any]:
    """A text with a tag behind each step, and the ratings in a list or in a second text."""
    tag = draw(st.sampled_from(["ки", "<extra_0>", "<step>"]))
    first = draw(st.sampled_from([" Step 1: x", "Step 1: x", "", "Step 1: x Step 2: y", "Step 1"]))
    problem = draw(texts | st.just("Step 1: Step 2: q?") | st.just("Do Step 1: "))
    pieces = [
        problem + first + draw(st.sampled_from(["", " ", "\n"])),
        *draw(st.lists(steps, max_size=3)),
    ]
    pieces.append(draw(st.sampled_from(["", " \n", "", "tail"])))
    if draw(st.integers(0, 9)) == 0:
        pieces[0] += draw(st.sampled_from(["ки", "<step>"]))
    text = tag.join(pieces)
    if aligned:
        signs = draw(
            st.lists(st.sampled_from("++--x "), min_size=len(pieces), max_size=len(pieces))
        )
        label: Any = "".join(p + s for p, s in zip(pieces, signs, strict=True))
        label = label[: len(label) - draw(st.sampled_from([1, 1, 1, 0, 2]))]
    else:
        label = draw(st.lists(labels, min_size=len(pieces) - 1, max_size=len(pieces) - 1))
    row = {"input": text, "label": label}
    if draw(st.integers(0, 9)) == 0:
        row[draw(st.sampled_from([*row]))] = draw(odd | texts)
    return row


def with_others(rows: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Rows with columns beside their own."""
    return st.tuples(rows, beside).map(lambda both: {**both[1], **both[0]})


CASES = {
    "preference": ("rm", pairs),
    "stepwise": ("prm", with_others(lists())),
    "math_shepherd": ("prm", with_others(tagged(aligned=True))),
    "openrlhf_prm": ("prm", with_others(tagged(aligned=False))),
}


def both(one: Normalize, rows: list[Any], typed: bool = False) -> None:
    """Columns and what was left out are the same both ways."""
    one.restart()
    quick = one(records(copy.deepcopy(rows), typed))  # --stop-text strip changes lists of steps
    quick.validate(full=True)
    counted = (one.tally.rows, one.tally.bytes)
    one.restart()
    careful = one._one_by_one(records(rows, typed))
    assert quick.schema.equals(careful.schema)
    assert quick.to_pylist() == careful.to_pylist()
    assert repr(quick.to_pylist()) == repr(careful.to_pylist())  # 0.0 and -0.0 are not the same
    assert counted == (one.tally.rows, one.tally.bytes)


def normalize(name: str, options: FormatOptions | None = None, **more: Any) -> Normalize:
    """Normalize for rows of a format, for the task that reads it."""
    task = CASES[name][0] if name in CASES else "sft"
    return Normalize(kind_of(task), formats.load(name), options or FormatOptions(), **more)


def columnar(one: Normalize, rows: list[Any]) -> list[int]:
    """The rows that do not go one by one."""
    return sorted(number for numbers, _ in one._plain(records(rows)) for number in numbers)


@given(
    st.sampled_from(sorted(CASES)).flatmap(
        lambda name: st.tuples(st.just(name), st.lists(CASES[name][1] | st.none(), max_size=6))
    ),
    st.sampled_from(stop_text.POLICIES),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["Step 1:", "Step", "1"]),
    st.sampled_from([None, "<step>"]),
)
def test_both_ways_give_the_same_columns(
    found: tuple[str, list[Any]],
    stops: str,
    raw: bool,
    typed: bool,
    separator: str,
    tag: str | None,
) -> None:
    name, rows = found
    options = FormatOptions(prompt_separator=separator, step_tag=tag)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.normalize.plain._FEW", 0)
        both(normalize(name, options, raw=raw, stop_text=stops), rows, typed)


def talk(*said: str) -> list[dict[str, str]]:
    """Turns of a user and an assistant."""
    return [{"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(said)]


PLAIN = [(one["format"], one["row"]) for one in table("plain_rows.jsonl")]


@pytest.mark.parametrize(("name", "row"), PLAIN)
def test_common_shapes_take_the_short_way_beside_others(name: str, row: dict[str, Any]) -> None:
    """Rows that are not plain leave only a few of their neighbours to the other way; so does one
    text, since a batch is halved until what is not plain stands among few rows."""
    rows: list[Any] = [{**row, "id": number} for number in range(64)]
    rows[7], rows[20] = None, {**rows[20], "system_prompt": "s"}
    one = normalize(name)
    assert columnar(one, rows) == [at for at in range(64) if at not in (7, 20)]
    both(one, rows)
    for odd_value in ("<think> x", 5, []):
        rows = [row] * 64
        rows[20] = {**row, [*row][-1]: odd_value}
        taken = columnar(one, rows)
        assert 20 not in taken
        assert len(taken) >= 48
        both(one, rows)


def test_turns_in_every_order_come_out_the_same() -> None:
    """Prompts of up to four turns, beside the answers and as a part of both; alone in a batch."""
    names = ("system", "user", "assistant")
    orders = [roles for size in range(5) for roles in itertools.product(names, repeat=size)]
    one = normalize("preference")
    read = set()
    for roles in orders:
        prompt = [{"role": role, "content": f"{at}"} for at, role in enumerate(roles)]
        answers = {"chosen": talk("", "a")[1:], "rejected": talk("", "b")[1:]}
        whole = {side: prompt + answer for side, answer in answers.items()}
        for row in ({"prompt": prompt, **answers}, whole):
            both(one, [row])
            read |= {roles} if columnar(one, [row]) else set()
    turns_of = (("user",), ("user", "assistant", "user"))
    assert read == {(*system, *rest) for system in ((), ("system",)) for rest in turns_of}


def test_conversations_are_split_where_they_differ() -> None:
    chosen = talk("q", "a", "r", "b")
    rows = [
        {"chosen": chosen, "rejected": talk("q", "a", "r", "c")},
        {"chosen": chosen, "rejected": talk("q", "a", "s", "b")},
        {"chosen": chosen, "rejected": talk("q", "c")},
        {"chosen": chosen, "rejected": talk("p", "a", "r", "b")},
        {"chosen": chosen, "rejected": chosen},
    ]
    one = normalize("preference")
    assert columnar(one, rows) == [0, 2]
    trained = one(records(rows)).column("chosen_messages").to_pylist()
    assert [[turn["trained"] for turn in trained[at]] for at in (0, 2)] == [
        [False, False, False, True],
        [False, True, False, True],
    ]
    both(one, rows)


def test_sides_that_begin_with_one_answer_come_out_the_same_in_every_order() -> None:
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
                both(one, [row])
                [found] = one(records([row])).column("reject_code").to_pylist()
                two = said[0][0] == said[1][0] and said[0][1:2] != said[1][1:2]
                same = "identical_pair" if said[0] == said[1] else None
                assert found == ("questions_differ" if two else same)
                codes.add(found)
    assert codes == {None, "questions_differ", "identical_pair"}


class OwnPairs(kinds.Pairs):
    """A kind that changes what becomes of a pair."""

    name = "own_pairs"


@pytest.mark.parametrize("name", ["preference", "stepwise", "prompt_completion", "openai"])
def test_a_format_derived_from_a_plain_one_reads_its_rows_itself(name: str) -> None:
    """Unless it reads them as the other one does."""
    base: Any = type(formats.load(name))

    class Own(base):
        name = "own"

        def read(self, row: Row, options: FormatOptions) -> list[Example]:
            raise AssertionError

    class Same(base):
        name = "own"

    hints = ("exchange", "dialogue", "answers", "step_lists", "step_text", "step_texts")
    assert not any(getattr(Own(), hint) for hint in hints)
    assert [getattr(Same(), hint) for hint in hints] == [getattr(base(), hint) for hint in hints]
    assert any(getattr(base(), hint) for hint in hints)


def test_a_kind_derived_from_a_plain_one_is_not_plain_itself() -> None:
    """What it overrides would not be called."""
    one = Normalize(OwnPairs(), formats.load("preference"), FormatOptions())
    assert kinds.Pairs.plain
    assert not columnar(one, [{"prompt": "q", "chosen": "a", "rejected": "b"}] * 40)
