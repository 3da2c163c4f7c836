"""Plain rows become columns many at once, and come out as if they had passed one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import normalizing

from pipeline.tasks import kind_of
from stages import formats
from stages.contract import Record
from stages.normalize import plain
from stages.normalize.stage import Normalize
from stages.rows import stop_text

CHARS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ODD = [*("", " \n", "a</s>", "b <|im_end|>\n", "<think>\nx", "<think>x</think>y", "### Response:")]
ODD += ["<|im_start|>user\nx<|im_end|>\n", "a [INST]", "USER: x ASSISTANT: y"]
texts = CHARS | st.just("an ordinary text") | st.sampled_from(ODD)
values = texts | st.none() | st.integers(0, 2) | st.booleans()
BESIDE = {
    "system": texts | st.none() | st.sampled_from([[], {}]),
    "history": st.sampled_from([[], {}, "", [["a", "b"]]]),
    "tools": st.just([]) | st.just("") | st.none(),
    "id": st.integers(0, 9),
    "label": values,
    "weight": values,
    "note": values,
}


def turn(names: tuple[str, str]) -> st.SearchStrategy[Any]:
    """A turn with two keys; now and then with another, or with odd values."""
    roles = st.sampled_from(["user", "assistant"]) | st.sampled_from(
        ["human", "gpt", "system", "User", "tool", "nobody"]
    )
    plain_turn = st.fixed_dictionaries({names[0]: roles, names[1]: texts})
    return plain_turn | st.fixed_dictionaries(
        {names[0]: roles, names[1]: values}, optional={"weight": values, "name": texts}
    )


def talk(names: tuple[str, str]) -> st.SearchStrategy[Any]:
    """Turns that mostly alternate."""
    pair = st.tuples(texts, texts).map(
        lambda both: [
            {names[0]: "user", names[1]: both[0]},
            {names[0]: "assistant", names[1]: both[1]},
        ]
    )
    talks = st.lists(pair, min_size=1, max_size=3)
    ordered = talks.map(lambda pairs: [turn for both in pairs for turn in both])
    led = ordered.map(lambda turns: [{names[0]: "system", names[1]: "s"}, *turns])
    return ordered | led | st.lists(turn(names), max_size=4) | values


ROWS = {
    "query_response": st.fixed_dictionaries(
        {"question": values, "answer": values}, optional={"query": values, **BESIDE}
    ),
    "prompt_completion": st.fixed_dictionaries(
        {"prompt": values, "completion": values}, optional=BESIDE
    ),
    "alpaca": st.fixed_dictionaries(
        {"instruction": values, "output": values},
        optional={"input": values, "context": values, "response": values, **BESIDE},
    ),
    "openai": st.fixed_dictionaries(
        {"messages": talk(("role", "content"))}, optional={"prompt": values, **BESIDE}
    ),
    "sharegpt": st.fixed_dictionaries(
        {"conversations": talk(("from", "value"))},
        optional={"conversation": talk(("role", "content")), "mask": values, **BESIDE},
    ),
}


def records(rows: list[Any]) -> list[Record]:
    """Rows as a reader gives them; None for one that could not be parsed."""
    bad = ("bad_json", "no object")
    return [
        Record(line, None, b"", row, None if row is not None else bad)
        for line, row in enumerate(rows)
    ]


def normalize(name: str, **options: Any) -> Normalize:
    """Normalize for SFT rows of a format."""
    return normalizing("sft", name, **options)


def require_same(one: Normalize, rows: list[Any]) -> None:
    """Columns and what was left out are the same both ways."""
    one.restart()
    quick = one(records(rows))
    counted = (one.tally.rows, one.tally.bytes)
    one.restart()
    careful = one._one_by_one(records(rows))
    assert quick.to_pylist() == careful.to_pylist()
    assert quick.schema.equals(careful.schema)
    assert counted == (one.tally.rows, one.tally.bytes)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(ROWS)).flatmap(
        lambda name: st.tuples(st.just(name), st.lists(ROWS[name] | st.none(), max_size=7))
    ),
    st.sampled_from(["assistant", "last"]),
    st.sampled_from(stop_text.POLICIES),
)
def test_both_ways_give_the_same_columns(
    found: tuple[str, list[Any]], train_on: str, stops: str
) -> None:
    name, rows = found
    require_same(normalize(name, train_on=train_on, stop_text=stops), rows)


PLAIN = {
    "query_response": {"question": "x", "answer": "y"},
    "prompt_completion": {"prompt": "x", "completion": "y"},
    "alpaca": {"instruction": "x", "input": "i", "output": "y"},
    "openai": {
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    },
    "sharegpt": {"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]},
}


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_plain_rows_take_the_short_way_beside_others(name: str) -> None:
    """Rows that are not plain leave only a few of their neighbours to the other way."""
    rows: list[Any] = [PLAIN[name] | {"id": number} for number in range(64)]
    rows[7] = None
    rows[40] = {**PLAIN[name], "system_prompt": "s"}
    kind = kind_of("sft")
    taken = [number for some in plain.find(rows, formats.load(name), kind) for number in some.rows]
    assert sorted(taken) == [number for number in range(64) if number not in (7, 40)]
    require_same(normalize(name), rows)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_text_that_is_not_plain_takes_few_along(name: str) -> None:
    """A batch is halved until what is not plain stands among few rows."""
    rows: list[Any] = [PLAIN[name]] * 64
    answer = [key for key in PLAIN[name] if key in ("answer", "completion", "output")]
    odd = {answer[0]: "<think> x"} if answer else {next(iter(PLAIN[name])): []}
    rows[20] = {**PLAIN[name], **odd}
    found = plain.find(rows, formats.load(name), kind_of("sft"))
    taken = [number for some in found for number in some.rows]
    assert 20 not in taken
    assert len(taken) >= 48
    require_same(normalize(name), rows)
