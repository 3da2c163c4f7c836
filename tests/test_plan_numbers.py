"""The plan sees numbers: equal examples, rows, packs within parts, the memory that all take."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.options.config import Config, PlanOptions
from pipeline.shards import doubles
from pipeline.shards import plan as planning
from pipeline.shards.choose import choose
from pipeline.shards.examples import PlannedExamples, part_of
from stages.columns import Ints

HALF = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])  # many equal halves, which real digests lack
Halves: TypeAlias = list[tuple[int, int]]
Parts: TypeAlias = tuple[list[int], list[int]]
DIGESTS = st.lists(st.tuples(HALF, HALF), max_size=30)


def digests(pairs: Halves) -> doubles.Digests:
    """Digests with these halves."""
    return np.array(pairs, doubles.DIGEST)


def planned(
    counts: list[int], lengths: list[int], fan_out: int = 1, grouped: bool = False
) -> PlannedExamples:
    """Examples of parts with so many each; each row has ``fan_out`` of them, and its own group."""
    size = np.array(lengths, np.int32)
    values = np.zeros(len(size), doubles.DIGEST)
    values["a"] = np.arange(len(size)) // 2  # every second one shares its first half
    values["b"] = np.arange(len(size))
    return PlannedExamples(
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        row=np.arange(len(size)) // fan_out,
        length=size,
        trained=size // 2,
        digest=values,
        source=np.zeros(len(size), np.int16),
        group=np.arange(1, len(size) + 1, dtype=np.uint64) if grouped else None,
    )


@given(DIGESTS)
def test_an_example_is_a_repeat_if_an_earlier_one_is_equal(pairs: Halves) -> None:
    wanted = [pair in pairs[:at] for at, pair in enumerate(pairs)]
    assert doubles.repeats(digests(pairs)).tolist() == wanted


@given(DIGESTS, DIGESTS)
def test_examples_of_one_side_are_counted_on_the_other(some: Halves, others: Halves) -> None:
    wanted = sum(pair in others for pair in some)
    assert doubles.count_in(digests(some), digests(others)) == wanted


def config(options: PlanOptions) -> Config:
    """A build with these options of its plan."""
    made = Config.of("sft", ("data.jsonl",), "qwen2-1.5b", Path("out"))
    return replace(made, plan=options)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_rows_are_counted_where_the_number_changes(rows: list[tuple[int, bool]]) -> None:
    rows = sorted(rows)
    examples = planned([len(rows)], [1] * len(rows))
    examples.row[:] = [row for row, _ in rows]
    chosen = np.array([keep for _, keep in rows], bool)
    assert examples.rows() == len({row for row, _ in rows})
    assert examples.rows(chosen) == len({row for row, keep in rows if keep})


@st.composite
def _parts(draw: st.DrawFn) -> Parts:
    """Examples of each part, and the length of every example."""
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=5))
    total = sum(counts)
    return counts, draw(st.lists(st.integers(1, 16), min_size=total, max_size=total))


def packs(examples: PlannedExamples, options: PlanOptions) -> dict[str, list[list[int]]]:
    """The examples of every pack, by dataset split."""
    found = {}
    choice = choose(config(options), examples)
    for side in planning.sides_of(options, examples, choice, 0):
        bounds = np.concatenate([[0], np.cumsum(side.sizes)]).tolist()
        found[side.name] = [side.order[first:last].tolist() for first, last in pairwise(bounds)]
    return found


@given(_parts(), st.booleans(), st.sampled_from([0.0, 0.3]), st.booleans())
def test_a_pack_within_a_part_holds_examples_of_that_part(
    parts: Parts, shuffle: bool, test: float, dedup: bool
) -> None:
    examples = planned(*parts, grouped=test > 0)
    options = PlanOptions(
        layout="packed",
        max_length=16,
        pack_within="part",
        shuffle=shuffle,
        test_size=test,
        dedup=dedup,
    )
    found = packs(examples, options)
    stored = sorted(index for side in found.values() for pack in side for index in pack)
    assert stored == list(range(len(examples)))
    for side in found.values():
        for pack in side:
            assert len(set(part_of(examples.starts, np.array(pack)).tolist())) == 1
            assert examples.length[pack].sum() <= 16
        firsts = [pack[0] for pack in side]
        if not shuffle:
            assert firsts == sorted(firsts)
            assert all(pack == sorted(pack) for pack in side)


@given(_parts(), st.lists(st.integers(1, 16), min_size=1, max_size=12))
def test_appended_parts_leave_the_packs_before_them(parts: Parts, more: list[int]) -> None:
    counts, lengths = parts
    options = PlanOptions(layout="packed", max_length=16, pack_within="part")
    before = packs(planned(counts, lengths), options).get("train", [])
    after = packs(planned([*counts, len(more)], lengths + more), options)["train"]
    assert after[: len(before)] == before


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_the_plan_takes_less_than_a_hundred_bytes_an_example(layout: str) -> None:
    """At its highest, all that it works with included; shards are made from it one by one."""
    count = 200_000
    draw = np.random.default_rng(0)
    lengths: Ints = np.clip(draw.lognormal(5, 0.5, count), 8, 4096).astype(np.int64)
    tracemalloc.start()
    try:
        examples = planned([count // 8] * 8, lengths.tolist(), grouped=True)
        options = PlanOptions(layout=layout, test_size=0.01)
        tracemalloc.reset_peak()
        choice = choose(config(options), examples)
        sides = planning.sides_of(options, examples, choice, 4096 if layout == "padded" else 0)
        shards = [len(order) for side in sides for _, order, _ in side.pieces()]
        assert sum(shards) == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (peak - 40 * max(shards)) / count < 100 + 8  # 8 for the split
