"""The plan: which examples stay, which side and which training row each goes to.

It sees numbers, never text: per example a length, a 128-bit digest and where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipeline.options.config import PlanOptions
from pipeline.parts.part import PLAN_COLUMNS, PartReport, Work
from stages import layouts, packing
from stages.columns import Ints, offsets_of
from stages.errors import UsageError

# About 64 MB of ids and labels. A constant, since shards are bytes we promise.
SHARD_TOKENS = 1 << 23


@dataclass(frozen=True, slots=True)
class PlannedExamples:
    """Every example of the build, in input order.

    Attributes:
        starts: index of each part's first example, and the total.
        row: number of the input row, over all inputs.
        length, trained: tokens.
        digest: 16 bytes each.
    """

    starts: Ints
    row: Ints
    length: Ints
    trained: Ints
    digest: npt.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class Side:
    """One dataset split (``train`` or ``test``), laid out.

    Attributes:
        order: examples in the order in which they are stored.
        sizes: how many of them each training row holds.
        shards: where each shard's training rows start, and their number.
    """

    name: str
    order: Ints
    sizes: Ints
    shards: Ints

    def pieces(self) -> Iterator[tuple[str, Ints, Ints]]:
        """Each shard: its path in the build, its part of ``order`` and its part of ``sizes``."""
        bounds = offsets_of(self.sizes)  # where each training row's examples start in the order
        count = len(self.shards) - 1
        for index, (first, last) in enumerate(pairwise(self.shards.tolist())):
            path = f"{self.name}/data-{index:05d}-of-{count:05d}.arrow"
            yield path, self.order[bounds[first] : bounds[last]], self.sizes[first:last]


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """What the gather does.

    Attributes:
        duplicate: which examples equal an earlier one (dropped only with ``--dedup``).
        width: of padded rows, in tokens; 0 otherwise.
    """

    examples: PlannedExamples
    duplicate: npt.NDArray[np.bool_]
    kept: npt.NDArray[np.bool_]
    sides: tuple[Side, ...]
    width: int
    lower_bound: int


def read_examples(works: list[Work], reports: list[PartReport]) -> PlannedExamples:
    """The planning columns of all parts, through memory maps."""
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in PLAN_COLUMNS}
    counts = []
    base = 0  # lines of the parts before: a part counts from the start of its split
    for work, report in zip(works, reports, strict=True):
        with pa.memory_map(str(work.path)) as source:
            table = pa.ipc.open_file(source).read_all()
            counts.append(table.num_rows)
            for name in PLAN_COLUMNS[:-1]:
                values = table.column(name).to_numpy().astype(np.int64)
                columns[name].append(values + base if name == "line" else values)
            columns["digest"].append(_digests(table.column("digest")))
        base += report.lines
    joined: dict[str, npt.NDArray[Any]] = {
        n: np.concatenate(v) if v else np.zeros(0, np.int64) for n, v in columns.items()
    }
    return PlannedExamples(
        starts=offsets_of(np.array(counts, np.int64)),
        row=joined["line"],
        length=joined["length"],
        trained=joined["trained"],
        digest=joined["digest"],
    )


def _digests(column: pa.ChunkedArray) -> npt.NDArray[np.void]:
    """Fixed-size binary as pairs of 64-bit numbers, which sort and compare without objects."""
    kind = np.dtype([("a", "<u8"), ("b", "<u8")])
    chunks = [c for c in column.chunks if len(c)]
    if not chunks:
        return np.zeros(0, kind)
    views = [
        np.frombuffer(c.buffers()[1], kind)[c.offset : c.offset + len(c)].copy() for c in chunks
    ]
    return np.concatenate(views)


def _mixed(values: Ints, seed: int) -> npt.NDArray[np.uint64]:
    """SplitMix64 of each number: an order that looks random and depends on the seed alone."""
    # Sums and products wrap at 64 bits: the constants are those of the published generator.
    mixed = values.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 1) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _test_rows(rows: Ints, size: float, seed: int) -> npt.NDArray[np.bool_]:
    """Which examples go to the test side: all sequences of a row together."""
    # Rows are ranked by a hash of their number, not drawn one after another, so that a larger size
    # takes the same rows and more.
    distinct = np.unique(rows)
    wanted = int(size) if size >= 1 else round(size * len(distinct))
    ranked = distinct[np.argsort(_mixed(distinct, seed), kind="stable")]
    return np.isin(rows, ranked[:wanted])


def lay_out(name: str, chosen: Ints, lengths: Ints, options: PlanOptions, width: int) -> Side:
    """Training rows and shards of one dataset split.

    Args:
        chosen: its examples, in the order to be kept.
        lengths: tokens of every example of the build.
    """
    places, sizes = layouts.load(options.layout).plan(lengths[chosen], options.max_length)
    order = chosen[places]
    # Tokens before each row's first example; their differences are what each row stores.
    before = offsets_of(lengths[order])[offsets_of(sizes)]
    stored = np.full(len(sizes), width) if width else np.diff(before)
    # A row is of the shard that its first token falls into, so a shard's size depends on the rows
    # before it alone. A shard begins where that number changes.
    shard = offsets_of(stored)[:-1] // SHARD_TOKENS
    starts = np.concatenate([[0], np.flatnonzero(np.diff(shard)) + 1, [len(sizes)]])
    return Side(name=name, order=order, sizes=sizes, shards=starts.astype(np.int64))


def make_plan(options: PlanOptions, examples: PlannedExamples) -> ShardPlan:
    """Drop duplicates if asked to, split, shuffle, pack; every step off unless asked for."""
    # Of equal examples the first in input order stays, whatever the order is later.
    pairs = pl.DataFrame({"a": examples.digest["a"], "b": examples.digest["b"]})
    first = pairs.select(pl.struct("a", "b").is_first_distinct()).to_series().to_numpy()
    duplicate = ~first if len(examples) else np.zeros(0, bool)
    kept = ~duplicate if options.dedup else np.ones(len(examples), bool)
    chosen = np.flatnonzero(kept)
    if options.shuffle:
        chosen = chosen[np.argsort(_mixed(chosen, options.seed), kind="stable")]
    longest = int(examples.length[chosen].max(initial=0))
    width = layouts.load(options.layout).width(options.pad_to, longest, options.max_length)
    # Only now: duplicates that are dropped are no rows of a test split, and shuffling moves none.
    in_test = _test_rows(examples.row[chosen], options.test_size, options.seed)
    if len(in_test) and in_test.all():
        raise UsageError(
            f"--test-size {options.test_size:g} leaves nothing to train on.",
            "Give a smaller one.",
        )
    sides = [
        lay_out(name, chosen[mask], lengths=examples.length, options=options, width=width)
        for name, mask in (("train", ~in_test), ("test", in_test))
        if mask.any()
    ]
    bound = sum(packing.lower_bound(examples.length[s.order], options.max_length) for s in sides)
    return ShardPlan(
        examples=examples,
        duplicate=duplicate,
        kept=kept,
        sides=tuple(sides),
        width=width,
        lower_bound=bound,
    )


def part_of(starts: Ints, index: Ints) -> Ints:
    """The part that holds each example."""
    return np.searchsorted(starts, index, side="right") - 1
