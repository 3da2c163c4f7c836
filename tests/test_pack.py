"""Packing: every example in exactly one pack, no pack too full, and nothing changed by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages import columns
from stages.columns import IGNORED, Ints
from stages.tokens import packed as packed_layout
from stages.tokens.packed import pack


def ints(values: list[int]) -> Ints:
    """Numbers as the plan takes them."""
    return np.array(values, np.int64)


@st.composite
def loads(draw: st.DrawFn, most: int = 60) -> tuple[list[int], int]:
    """Lengths and a capacity that each of them fits."""
    capacity = draw(st.integers(1, 64))
    return draw(st.lists(st.integers(1, capacity), max_size=most)), capacity


def first_fit_decreasing(lengths: list[int], capacity: int) -> int:
    """Packs of the textbook algorithm."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        at = next((i for i, room in enumerate(rooms) if room >= length), None)
        if at is None:
            rooms.append(capacity - length)
        else:
            rooms[at] -= length
    return len(rooms)


def best_fit_decreasing(lengths: list[int], capacity: int) -> list[int]:
    """Fills of the textbook algorithm, one example at a time."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [(room, i) for i, room in enumerate(rooms) if room >= length]
        if fitting:
            rooms[min(fitting)[1]] -= length
        else:
            rooms.append(capacity - length)
    return sorted(capacity - room for room in rooms)


def fills(lengths: list[int], packs: Ints) -> list[int]:
    """Tokens of each pack."""
    return [int(total) for total in np.bincount(packs, weights=lengths)] if lengths else []


def check_valid(lengths: list[int], capacity: int, packs: Ints) -> None:
    """Every example has one pack, packs are full at most, and numbered by their first example."""
    assert packs.dtype == np.int64
    assert len(packs) == len(lengths)
    assert all(0 < fill <= capacity for fill in fills(lengths, packs))
    firsts = list(dict.fromkeys(packs.tolist()))
    assert firsts == list(range(len(firsts)))


@settings(max_examples=150, deadline=None)
@given(load=loads())
@example(load=([], 8))
@example(load=([8] * 5, 8))
@example(load=([1] * 20, 8))
@example(load=([5, 4, 3, 4], 8))
def test_every_example_is_in_exactly_one_pack(load: tuple[list[int], int]) -> None:
    """The plan names one pack for each example, none above the capacity, in input order."""
    lengths, capacity = load
    check_valid(lengths, capacity, packed_layout.plan(ints(lengths), capacity))


@settings(max_examples=150, deadline=None)
@given(load=loads())
def test_the_plan_is_as_good_as_the_textbook(load: tuple[list[int], int]) -> None:
    """Placing equal lengths in bulk fills packs exactly as placing them one by one would.

    So there are at least as many packs as the bound, and hardly more than first-fit decreasing.
    """
    lengths, capacity = load
    packs = packed_layout.plan(ints(lengths), capacity)
    made = len(set(packs.tolist()))
    assert sorted(fills(lengths, packs)) == best_fit_decreasing(lengths, capacity)
    assert packed_layout.lower_bound(ints(lengths), capacity) <= made
    assert made <= 1 + 1.05 * first_fit_decreasing(lengths, capacity)


@settings(max_examples=80, deadline=None)
@given(load=loads(), limit=st.integers(1, 12), packs_per_bucket=st.integers(1, 3))
def test_a_plan_in_buckets_is_valid_as_well(
    load: tuple[list[int], int], limit: int, packs_per_bucket: int
) -> None:
    """Beyond the limit examples are planned by bucket, under the same law."""
    lengths, capacity = load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_layout, "PACKS_PER_BUCKET", packs_per_bucket)
        packs = packed_layout.plan(ints(lengths), capacity, limit)
    check_valid(lengths, capacity, packs)
    assert packed_layout.lower_bound(ints(lengths), capacity) <= len(set(packs.tolist()))


def test_buckets_cost_little() -> None:
    """A plan in several buckets of enough packs needs hardly more packs than one over all."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5, 1, 40_000), 1, 2048).astype(np.int64)
    whole = packed_layout.plan(lengths, 2048)
    parts = packed_layout.plan(lengths, 2048, 4_000)
    check_valid(lengths.tolist(), 2048, parts)
    assert not np.array_equal(whole, parts)
    assert parts.max() + 1 <= 1.01 * (whole.max() + 1)
    assert packed_layout.lower_bound(lengths, 2048) >= 0.98 * (whole.max() + 1)


def test_equal_inputs_give_equal_plans() -> None:
    """The plan is a function of lengths and capacity alone."""
    lengths = np.random.default_rng(1).integers(1, 500, 3000)
    again = lengths.copy()
    assert np.array_equal(packed_layout.plan(lengths, 1000), packed_layout.plan(again, 1000))
    assert np.array_equal(lengths, again)


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=7), capacity=st.integers(5, 9))
def test_the_bound_is_below_the_best_packing(lengths: list[int], capacity: int) -> None:
    """No packing at all needs fewer packs than the bound."""

    def best(rest: tuple[int, ...], rooms: tuple[int, ...]) -> int:
        if not rest:
            return len(rooms)
        length, *others = rest
        tried = [
            best(tuple(others), (*rooms[:i], room - length, *rooms[i + 1 :]))
            for i, room in enumerate(rooms)
            if room >= length and room not in rooms[:i]
        ]
        return min([*tried, best(tuple(others), (*rooms, capacity - length))])

    assert packed_layout.lower_bound(ints(lengths), capacity) <= best(tuple(lengths), ())


def test_examples_of_which_no_two_fit_bind_the_bound() -> None:
    """Where every example is longer than half a pack, each needs its own."""
    assert packed_layout.lower_bound(ints([5, 5, 5]), 8) == 3
    assert packed_layout.lower_bound(ints([4, 4, 4]), 8) == 2
    assert packed_layout.lower_bound(ints([]), 8) == 0


EXAMPLES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 99), min_size=1, max_size=7),
        st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0]), max_size=3),
    ),
    min_size=1,
    max_size=9,
)


def table(found: list[tuple[list[int], list[float | None]]], with_steps: bool) -> pa.Table:
    """Examples as the gather has them; each step stands at its own number."""
    ids = [ids for ids, _ in found]
    steps = [ratings[: len(ids)] for ids, ratings in found]
    values: dict[str, Any] = {
        "row_id": [f"x:{i}" for i in range(len(found))],
        "input_ids": ids,
        "labels": [[IGNORED, *row[1:]] for row in ids],
    }
    if with_steps:
        values["step_positions"] = [list(range(len(row))) for row in steps]
        values["step_labels"] = steps
    arrays = {name: pa.array(value, columns.TYPES[name]) for name, value in values.items()}
    return pa.table(arrays)


def sizes_of(packs: Ints) -> npt.NDArray[np.int64]:
    """How many examples each pack has."""
    return np.bincount(packs).astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(found=EXAMPLES, with_steps=st.booleans(), data=st.data())
def test_splitting_packs_gives_back_the_examples(
    found: list[tuple[list[int], list[float | None]]], with_steps: bool, data: st.DataObject
) -> None:
    """Cut at ``seq_lengths``, a pack is its examples: ids, labels, names, positions and ratings.

    Positions of steps count from the pack's start.
    """
    examples = table(found, with_steps)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(found)), max_size=4)) - {len(found)})
    bounds = [0, *cuts, len(found)]
    sizes = np.diff(bounds)
    packed = pack(examples, sizes)
    assert packed.num_rows == len(sizes)
    wanted = examples.to_pylist()
    seen = 0
    for row in packed.to_pylist():
        assert sum(row["seq_lengths"]) == len(row["input_ids"]) == len(row["labels"])
        assert len(row["row_ids"]) == len(row["seq_lengths"])
        at = step = 0
        for name, length in zip(row["row_ids"], row["seq_lengths"], strict=True):
            one = wanted[seen]
            assert name == one["row_id"]
            assert row["input_ids"][at : at + length] == one["input_ids"]
            assert row["labels"][at : at + length] == one["labels"]
            if with_steps:
                count = len(one["step_labels"])
                positions = [at + position for position in one["step_positions"]]
                assert row["step_positions"][step : step + count] == positions
                assert row["step_labels"][step : step + count] == one["step_labels"]
                step += count
            at += length
            seen += 1
        assert not with_steps or step == len(row["step_labels"])
    assert seen == len(found)


@pytest.mark.parametrize("with_steps", [False, True])
def test_packs_have_their_declared_columns(with_steps: bool) -> None:
    """Names, order and types are those of the packed layout."""
    steps = ["step_positions", "step_labels"] if with_steps else []
    names = ["row_ids", "input_ids", "labels", "seq_lengths", *steps]
    packed = pack(table([([1, 2], [1.0])], with_steps), ints([1]))
    assert packed.schema == columns.schema(names)
    empty = pack(table([([1, 2], [1.0])], with_steps).slice(1), ints([]))
    assert empty.schema == columns.schema(names)
    assert empty.num_rows == 0


@settings(max_examples=40, deadline=None)
@given(found=EXAMPLES)
def test_plan_and_packs_go_together(found: list[tuple[list[int], list[float | None]]]) -> None:
    """Examples gathered in the plan's order make packs within the capacity, none left out."""
    lengths = [len(ids) for ids, _ in found]
    packs = packed_layout.plan(ints(lengths), 8)
    order = np.argsort(packs, kind="stable")
    packed = pack(table(found, False).take(pa.array(order)), sizes_of(packs))
    names = packed["row_ids"].to_pylist()
    assert sorted(name for row in names for name in row) == sorted(
        f"x:{i}" for i in range(len(found))
    )
    assert max(len(ids) for ids in packed["input_ids"].to_pylist()) <= 8
    numbers = [[int(name.partition(":")[2]) for name in row] for row in names]
    assert all(row == sorted(row) for row in numbers)
    assert [row[0] for row in numbers] == sorted(row[0] for row in numbers)
