"""The plan: which examples stay, which side and which training row each goes to.

It sees numbers, never text: per example a length, a 128-bit digest and where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.options.config import PlanOptions
from pipeline.parts.part import PartReport, Work
from pipeline.shards import doubles, sides
from pipeline.shards.doubles import Digests
from pipeline.shards.sides import TEST, TRAIN, Groups, SplitRule
from stages import layouts, packing
from stages.columns import Ints, offsets_of
from stages.errors import PipelineError, UsageError
from stages.rows import groups

# About 64 MB of ids and labels. A constant, since shards are bytes we promise.
SHARD_TOKENS = 1 << 23

_COLUMNS = ("line", "length", "trained", "digest")  # of a part, that a plan is made from
_EVERY = slice(None)
Counts: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PlannedExamples:
    """Every example of the build, in input order: 32 bytes each.

    Attributes:
        starts: index of each part's first example, and the total.
        row: number of the input row, over all inputs; ascending.
        length, trained: tokens.
        digest: 16 bytes each.
        group: what decides its side of a split; None without one.
    """

    starts: Ints
    row: Ints
    length: Counts
    trained: Counts
    digest: Digests
    group: Groups | None = None

    def __len__(self) -> int:
        return len(self.row)

    def rows(self, which: npt.NDArray[np.bool_] | slice = _EVERY) -> int:
        """How many input rows some of the examples come from."""
        # Examples of one row stand side by side, so a row begins wherever the number changes.
        row = self.row[which]
        return int(np.count_nonzero(row[1:] != row[:-1])) + bool(len(row))


@dataclass(frozen=True, slots=True)
class Side:
    """One dataset split (``train`` or ``test``), laid out.

    Attributes:
        order: examples in the order in which they are stored.
        sizes: how many of them each training row holds.
        shards: where each shard's training rows start, and their number.
        apart: how many packings were made apart from each other.
    """

    name: str
    order: Ints
    sizes: Ints
    shards: Ints
    apart: int = 1

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
        rule: how the sides were made; None where there is one side.
    """

    examples: PlannedExamples
    duplicate: npt.NDArray[np.bool_]
    kept: npt.NDArray[np.bool_]
    sides: tuple[Side, ...]
    width: int
    lower_bound: int
    rule: SplitRule | None = None


def columns_of(path: Path, names: Sequence[str]) -> pa.Table:
    """Some columns of a part, mapped: no byte of the others is read."""
    with pa.memory_map(str(path)) as source:
        schema = pa.ipc.open_file(source).schema
        wanted = [schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        return pa.ipc.open_file(source, options=options).read_all()


def read_examples(
    works: list[Work], reports: list[PartReport], grouped: bool = False
) -> PlannedExamples:
    """The planning columns of all parts.

    Args:
        grouped: the parts have the groups of their rows.

    Raises:
        PipelineError: the examples of a part are not in the order of its rows.
    """
    names = (*_COLUMNS, groups.NAME) if grouped else _COLUMNS
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
    base = 0  # lines of the parts before: a part counts from the start of its split
    for work, report in zip(works, reports, strict=True):
        table = columns_of(work.path, names)
        line = table.column("line").to_numpy()
        if (line[1:] < line[:-1]).any():
            raise PipelineError(f"{work}: the examples are not in the order of their rows.")
        columns["line"].append(line + base)
        for name in set(names) - {"line", "digest"}:
            columns[name].append(table.column(name).to_numpy())
        columns["digest"].append(doubles.digests_of(table.column("digest")))
        base += report.lines
    return PlannedExamples(
        starts=offsets_of(np.array([len(line) for line in columns["line"]], np.int64)),
        row=_joined(columns, "line", np.dtype(np.int64)),
        length=_joined(columns, "length", np.dtype(np.int32)),
        trained=_joined(columns, "trained", np.dtype(np.int32)),
        digest=_joined(columns, "digest", doubles.DIGEST),
        group=_joined(columns, groups.NAME, np.dtype(np.uint64)) if grouped else None,
    )


def _joined(
    columns: dict[str, list[npt.NDArray[Any]]], name: str, kind: np.dtype[Any]
) -> npt.NDArray[Any]:
    """One column of all parts, whose pieces are given up."""
    return np.concatenate([np.zeros(0, kind), *columns.pop(name)], dtype=kind)


def _within_parts(
    chosen: Ints, lengths: Ints, options: PlanOptions, starts: Ints
) -> tuple[Ints, Ints]:
    """Rows of one part each: what ``layout.plan`` gives, made part by part.

    The rows stand in the order of their first examples, as those of a whole build do.
    """
    layout = layouts.load(options.layout)
    part = part_of(starts, chosen)
    by_part = np.argsort(part, kind="stable")
    bounds = np.searchsorted(part[by_part], np.arange(len(starts)))
    places, sizes = [], []
    for first, last in pairwise(bounds.tolist()):
        own = by_part[first:last]
        inside, counts = layout.plan(lengths[own], options.max_length)
        places.append(own[inside])
        sizes.append(counts)
    place, size = np.concatenate(places), np.concatenate(sizes)
    row = np.argsort(place[offsets_of(size)[:-1]], kind="stable")
    if not (row[1:] > row[:-1]).all():  # after a shuffle the parts are mixed
        rank = np.empty(len(row), np.int64)
        rank[row] = np.arange(len(row))
        place = place[np.argsort(np.repeat(rank, size), kind="stable")]
    return place, size[row]


def lay_out(
    name: str,
    chosen: Ints,
    lengths: npt.NDArray[np.integer[Any]],
    options: PlanOptions,
    width: int,
    starts: Ints | None = None,
) -> Side:
    """Training rows and shards of one dataset split.

    Args:
        chosen: its examples, in the order to be kept.
        lengths: tokens of every example of the build.
        starts: index of each part's first example, and the total; None where there are no parts.
    """
    own = lengths[chosen].astype(np.int64)
    apart = 1
    if starts is not None and options.pack_within == "part":
        apart = int(np.count_nonzero(np.bincount(part_of(starts, chosen))))
        places, sizes = _within_parts(chosen, own, options, starts)
    else:
        places, sizes = layouts.load(options.layout).plan(own, options.max_length)
    # Tokens before each row's first example.
    before = offsets_of(np.full(len(sizes), width) if width else own[places])
    if not width:
        before = before[offsets_of(sizes)]
    # A row is of the shard that its first token falls into, so a shard's size depends on the rows
    # before it alone. A shard begins where that number changes.
    before //= SHARD_TOKENS
    begins = np.flatnonzero(before[1:-1] != before[:-2]) + 1
    shards = np.concatenate([[0], begins, [len(sizes)]]).astype(np.int64)
    return Side(name=name, order=chosen[places], sizes=sizes, shards=shards, apart=apart)


def _split(
    chosen: Ints, examples: PlannedExamples, options: PlanOptions
) -> tuple[dict[str, Ints], SplitRule | None]:
    """The examples of each dataset split that has some, and how it was decided.

    Raises:
        UsageError: all of them are for the test split.
    """
    if examples.group is None or not len(chosen):
        return {TRAIN: chosen} if len(chosen) else {}, None
    group = examples.group[chosen]
    in_test = sides.in_test(group, options.test_size, options.seed)
    if in_test.all():
        raise UsageError(
            f"--test-size {options.test_size:g} leaves nothing to train on.",
            "Give a smaller one, or more data.",
        )
    split = {TRAIN: chosen[~in_test], TEST: chosen[in_test]}
    rule = sides.outcome(group, in_test, options.test_size)
    return {name: own for name, own in split.items() if len(own)}, rule


def make_plan(options: PlanOptions, examples: PlannedExamples) -> ShardPlan:
    """Drop duplicates if asked to, split, shuffle, pack; every step off unless asked for."""
    # Of equal examples the first in input order stays, whatever the order is later.
    duplicate = doubles.repeats(examples.digest)
    kept = ~duplicate if options.dedup else np.ones(len(examples), bool)
    chosen = np.flatnonzero(kept)
    if options.shuffle:
        chosen = chosen[np.argsort(sides.mixed(chosen, options.seed), kind="stable")]
    longest = int(examples.length[chosen].max(initial=0))
    width = layouts.load(options.layout).width(options.pad_to, longest, options.max_length)
    # Only now: duplicates that are dropped are no rows of a test split, and shuffling moves none.
    split, rule = _split(chosen, examples, options)
    del chosen  # each split has its own
    laid = [
        lay_out(
            name,
            split[name],
            lengths=examples.length,
            options=options,
            width=width,
            starts=examples.starts,
        )
        for name in split
    ]
    bound = sum(packing.lower_bound(examples.length[s.order], options.max_length) for s in laid)
    return ShardPlan(
        examples=examples,
        duplicate=duplicate,
        kept=kept,
        sides=tuple(laid),
        width=width,
        lower_bound=bound,
        rule=rule,
    )


def part_of(starts: Ints, index: Ints) -> Ints:
    """The part that holds each example."""
    return np.searchsorted(starts, index, side="right") - 1
