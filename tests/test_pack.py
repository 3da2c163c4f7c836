"""Layouts: an example is in one pack or row, nothing is changed by it, and it comes out again."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages import columns, errors
from stages.tokens import packed as packed_layout
from stages.tokens import padded, ragged
from stages.tokens.packed import pack

PAD = 151643
SIDES = st.sampled_from(["left", "right"])
IDS = st.lists(st.integers(0, 99), min_size=1, max_size=7)
RATINGS = st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0]), max_size=3)


def ints(values: list[int]) -> columns.Ints:
    """Numbers as the plan takes them."""
    return np.array(values, np.int64)


@st.composite
def loads(draw: st.DrawFn, most: int = 60) -> tuple[list[int], int]:
    """Lengths and a capacity that each of them fits."""
    capacity = draw(st.integers(1, 64))
    return draw(st.lists(st.integers(1, capacity), max_size=most)), capacity


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


def check_valid(lengths: list[int], capacity: int, packs: columns.Ints) -> list[int]:
    """Every example has one pack, packs are full at most, and numbered by their first example.

    Returns:
        The tokens of each pack.
    """
    assert packs.dtype == np.int64
    assert len(packs) == len(lengths)
    fills = [int(total) for total in np.bincount(packs, weights=lengths)] if lengths else []
    assert all(0 < fill <= capacity for fill in fills)
    firsts = list(dict.fromkeys(packs.tolist()))
    assert firsts == list(range(len(firsts)))
    return fills


@settings(max_examples=150)
@given(load=loads())
@example(load=([], 8))
@example(load=([8] * 5, 8))
@example(load=([1] * 20, 8))
@example(load=([5, 4, 3, 4], 8))
def test_every_example_is_in_exactly_one_pack(load):
    """The plan names one pack for each example, none above the capacity, in input order.

    Placing equal lengths in bulk fills packs exactly as the textbook does, one by one.
    """
    lengths, capacity = load
    fills = check_valid(lengths, capacity, packed_layout.plan(ints(lengths), capacity))
    assert sorted(fills) == best_fit_decreasing(lengths, capacity)
    assert packed_layout.lower_bound(ints(lengths), capacity) <= len(fills)


@given(load=loads(), limit=st.integers(1, 12), packs_per_bucket=st.integers(1, 3))
def test_a_plan_in_buckets_is_valid_as_well(load, limit, packs_per_bucket):
    """Beyond the limit examples are planned by bucket, under the same law."""
    lengths, capacity = load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_layout, "PACKS_PER_BUCKET", packs_per_bucket)
        packs = packed_layout.plan(ints(lengths), capacity, limit)
    check_valid(lengths, capacity, packs)


def test_buckets_cost_little():
    """A plan in several buckets of enough packs needs hardly more packs than one over all."""
    lengths = np.clip(np.random.default_rng(0).lognormal(5, 1, 40_000), 1, 2048).astype(np.int64)
    whole = packed_layout.plan(lengths, 2048)
    parts = packed_layout.plan(lengths, 2048, 4_000)
    check_valid(lengths.tolist(), 2048, parts)
    assert not np.array_equal(whole, parts)
    assert parts.max() + 1 <= 1.01 * (whole.max() + 1)
    assert packed_layout.lower_bound(lengths, 2048) >= 0.98 * (whole.max() + 1)


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=7), capacity=st.integers(5, 9))
def test_the_bound_is_below_the_best_packing(lengths, capacity):
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


def test_examples_of_which_no_two_fit_bind_the_bound():
    """Where every example is longer than half a pack, each needs its own."""
    for lengths, packs in (([5, 5, 5], 3), ([4, 4, 4], 2), ([], 0)):
        assert packed_layout.lower_bound(ints(lengths), 8) == packs


def table(**values: Any) -> pa.Table:
    """Columns of their declared types."""
    return pa.table({k: pa.array(v, columns.TYPES[k]) for k, v in values.items()})


def examples(found: list[list[int]], ratings: list[list[float | None]] | None = None) -> pa.Table:
    """SFT examples, or PRM ones whose steps stand at their own number."""
    values: dict[str, Any] = {
        "row_id": [f"x:{i}" for i in range(len(found))],
        "input_ids": found,
        "labels": [[columns.IGNORED, *ids[1:]] for ids in found],
    }
    if ratings is not None:
        steps = [row[: len(ids)] for row, ids in zip(ratings, found, strict=True)]
        values["step_positions"] = [list(range(len(row))) for row in steps]
        values["step_labels"] = steps
    return table(**values)


@given(
    found=st.lists(st.tuples(IDS, RATINGS), min_size=1, max_size=9),
    with_steps=st.booleans(),
    data=st.data(),
)
def test_splitting_packs_gives_back_the_examples(found, with_steps, data):
    """Cut at ``seq_lengths``, a pack is its examples: ids, labels, names, positions and ratings.

    Positions of steps count from the pack's start.
    """
    ids, ratings = ([one[i] for one in found] for i in (0, 1))
    whole = examples(ids, ratings if with_steps else None)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(found)), max_size=4)) - {len(found)})
    sizes = np.diff([0, *cuts, len(found)])
    packed = pack(whole, sizes)
    assert packed.num_rows == len(sizes)
    wanted = iter(whole.to_pylist())
    for row in packed.to_pylist():
        assert sum(row["seq_lengths"]) == len(row["input_ids"]) == len(row["labels"])
        at = step = 0
        for name, length in zip(row["row_ids"], row["seq_lengths"], strict=True):
            one = next(wanted)
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
        assert not with_steps or step == len(row["step_labels"])
    assert next(wanted, None) is None


def unpadded(row: dict[str, Any], ids: str, mask: str) -> list[int]:
    """The tokens where the mask is 1."""
    return [token for token, real in zip(row[ids], row[mask], strict=True) if real]


@given(
    found=st.lists(IDS | st.just([PAD]), min_size=1, max_size=6),
    side=SIDES,
    more=st.integers(0, 5),
    data=st.data(),
)
def test_the_mask_undoes_the_padding(found, side, more, data):
    """Where the mask is 1 stands the example, where it is 0 the pad token and the label -100.

    Padding is on one side only, and steps point at the tokens they pointed at.
    """
    ratings = data.draw(st.lists(RATINGS, min_size=len(found), max_size=len(found)))
    before = examples(found, ratings)
    size = max(map(len, found)) + more
    after = padded.pad(before, size, side, PAD)
    for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
        assert len(new["input_ids"]) == len(new["labels"]) == len(new["attention_mask"]) == size
        assert unpadded(new, "input_ids", "attention_mask") == old["input_ids"]
        assert unpadded(new, "labels", "attention_mask") == old["labels"]
        missing, mask = size - len(old["input_ids"]), [1] * len(old["input_ids"])
        padding = [0] * missing
        assert new["attention_mask"] == (padding + mask if side == "left" else mask + padding)
        added = slice(0, missing) if side == "left" else slice(size - missing, size)
        assert new["input_ids"][added] == [PAD] * missing
        assert new["labels"][added] == [columns.IGNORED] * missing
        assert new["row_id"] == old["row_id"]
        assert new["step_labels"] == old["step_labels"]
        pointed = [old["input_ids"][i] for i in old["step_positions"]]
        assert [new["input_ids"][i] for i in new["step_positions"]] == pointed


@given(pairs=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5), side=SIDES)
def test_both_sides_of_a_pair_have_one_width(pairs, side):
    """Chosen and rejected are padded alike, each with its own mask; the prompt's length stays."""
    before = table(
        row_id=[f"x:{i}" for i in range(len(pairs))],
        chosen_ids=[chosen for chosen, _ in pairs],
        rejected_ids=[rejected for _, rejected in pairs],
        prompt_length=[1] * len(pairs),
    )
    size = max(len(ids) for pair in pairs for ids in pair)
    after = padded.pad(before, size, side, PAD)
    for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
        for name in ("chosen", "rejected"):
            assert len(new[f"{name}_ids"]) == size
            mask = f"{name}_attention_mask"
            assert unpadded(new, f"{name}_ids", mask) == old[f"{name}_ids"]
        assert new["prompt_length"] == 1


def test_width_follows_what_is_asked_for():
    """The longest example rounded up to a multiple of 8, never above the limit; or as named."""
    for longest, most in itertools.product((1, 8, 9, 99, 100), (100, 4096)):
        wanted = min(-(-longest // 8) * 8, most)
        assert padded.LAYOUT.width("longest", longest, most) == wanted
        assert padded.LAYOUT.width("max-length", longest, most) == most
        assert padded.LAYOUT.width("512", longest, most) == 512


def test_an_example_wider_than_the_width_is_refused():
    """Nothing is cut off to fit a width."""
    with pytest.raises(errors.UsageError, match="3 tokens"):
        padded.pad(examples([[1, 2, 3], [1]]), 2, "left", PAD)


@pytest.mark.parametrize("with_steps", [False, True])
def test_rows_have_their_declared_columns(with_steps):
    """Names, order and types are those of the layout; no rows make no rows."""
    steps = ["step_positions", "step_labels"] if with_steps else []
    found = examples([[1, 2]], [[1.0]] if with_steps else None)
    names = columns.schema(["row_ids", "input_ids", "labels", "seq_lengths", *steps])
    assert pack(found, ints([1])).schema == pack(found.slice(1), ints([])).schema == names
    names = columns.schema(["row_id", "input_ids", "attention_mask", "labels", *steps])
    empty = padded.pad(found.slice(1), 8, "left", PAD)
    assert padded.pad(found, 8, "left", PAD).schema == empty.schema == names
    assert empty.num_rows == 0


def test_pairs_have_their_declared_columns():
    """The margin stays where there is one."""
    found = table(
        margin=[0.5], rejected_ids=[[2]], chosen_ids=[[1]], prompt_length=[1], row_id=["x:1"]
    )
    order = ["row_id", "chosen_ids", "rejected_ids", "prompt_length", "margin"]
    assert ragged.ordered(found).schema == columns.schema(order)
    for at, side in ((2, "chosen"), (4, "rejected")):
        order.insert(at, f"{side}_attention_mask")
    assert padded.pad(found, 1, "right", PAD).schema == columns.schema(order)


@given(found=st.lists(IDS, min_size=1, max_size=6), cut=st.integers(0, 6))
def test_ragged_rows_are_the_examples(found, cut):
    """Ragged rows hold what was stored, from a column in any number of pieces; ours come first."""
    whole = examples(found).add_column(0, "length", pa.array([7] * len(found), pa.int32()))
    pieces = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    rows = [{**row, "length": 7} for row in examples(found).to_pylist()]
    assert ragged.ordered(pieces).to_pylist() == rows
    assert ragged.ordered(pieces).column_names == ["row_id", "input_ids", "labels", "length"]
