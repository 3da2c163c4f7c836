"""The plan: which training row, shard and side each used example goes to, window by window.

It sees numbers, never text.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.options.build_options import PlanOptions
from pipeline.options.config import Config
from pipeline.shards import collect, part, train_test
from pipeline.shards.examples import Choice, Numbers, PlannedExamples, part_of, read_numbers
from stages.columns import Ints, offsets_of
from stages.tokens import layouts, ragged

# About 64 MB of ids and labels. A constant, since shards are bytes we promise.
SHARD_TOKENS = 1 << 23


@dataclass(frozen=True, slots=True)
class Side:
    """One dataset split (``train`` or ``test``), laid out.

    Attributes:
        order: examples in the order in which they are stored.
        sizes: how many of them each training row holds.
        shards: where each shard's training rows start, and their number.
        apart: how many packings were made apart from each other.
        packs: of a build whose packs are an index: they hold examples by their places in ``order``,
            and are in the shards that packed rows would be in; None elsewhere.
    """

    name: str
    order: Ints
    sizes: Ints
    shards: Ints
    apart: int = 1
    packs: "Side | None" = None

    def pieces(self) -> Iterator[tuple[str, Ints, Ints]]:
        """Each shard: its path in the build, its part of ``order`` and its part of ``sizes``."""
        bounds = offsets_of(self.sizes)  # where each training row's examples start in the order
        count = len(self.shards) - 1
        for index, (first, last) in enumerate(pairwise(self.shards.tolist())):
            path = f"{self.name}/data-{index:05d}-of-{count:05d}.arrow"
            yield path, self.order[bounds[first] : bounds[last]], self.sizes[first:last]


def _packing(options: PlanOptions) -> ragged.Ragged:
    """The layout that says which examples share a row."""
    return layouts.load(layouts.PACKED if options.index_only else options.layout)


def _by_parts(chosen: Ints, lengths: Ints, options: PlanOptions, starts: Ints) -> tuple[Ints, Ints]:
    """Rows of one part each: what ``layout.plan`` gives, made part by part.

    The rows stand in the order of their first examples, as those of a whole build do.
    """
    layout = _packing(options)
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
        places, sizes = _by_parts(chosen, own, options, starts)
    else:
        places, sizes = _packing(options).plan(own, options.max_length)
    shards = _cut(own[places], sizes, width)
    return Side(name=name, order=chosen[places], sizes=sizes, shards=shards, apart=apart)


def _cut(lengths: Ints, sizes: Ints, width: int) -> Ints:
    """Where the shards of some training rows begin, and their number.

    Args:
        lengths: tokens of the examples, in stored order; ``sizes``: how many each row holds.
    """
    # Tokens before each row's first example.
    before = offsets_of(np.full(len(sizes), width) if width else lengths)
    if not width:
        before = before[offsets_of(sizes)]
    # A row is of the shard that its first token falls into, so a shard's size depends on the rows
    # before it alone. A shard begins where that number changes.
    before //= SHARD_TOKENS
    begins = np.flatnonzero(before[1:-1] != before[:-2]) + 1
    return np.concatenate([[0], begins, [len(sizes)]]).astype(np.int64)


def indexed(laid: Sequence[Side], choice: Choice, examples: PlannedExamples) -> list[Side]:
    """The same sides, with their examples stored once and their packs as an index of these.

    What only another budget would use is stored, too, so that another mixture is another index.
    """
    held, test = choice.held, choice.test
    on = {train_test.TRAIN: held & ~test, train_test.TEST: held & test}
    return [_indexed(side, np.flatnonzero(on[side.name]), examples.length) for side in laid]


def _indexed(packs: Side, held: Ints, lengths: npt.NDArray[np.integer[Any]]) -> Side:
    """A side whose examples are stored once, in input order, and whose packs name them.

    Args:
        held: its examples that are stored.
    """
    ones = np.ones(len(held), np.int64)
    return Side(
        name=packs.name,
        order=held,
        sizes=ones,
        shards=_cut(lengths[held].astype(np.int64), ones, 0),
        apart=packs.apart,
        packs=replace(packs, order=np.searchsorted(held, packs.order)),
    )


def keys_of(choice: Choice, first: int = 0, total: int = 0) -> dict[str, tuple[Ints, Ints]]:
    """The examples of each side, in the order to be kept without a shuffle, and the number of each
    that a shuffle goes by.

    What is stored several times follows in passes: all that is stored once, then all that is
    stored twice, and so on; only a shuffle mixes the passes.

    Args:
        first: the number of the first example in the build; ``total``: how many the build has.
    """
    train, test = (np.flatnonzero(choice.used & side) for side in (~choice.test, choice.test))
    times = choice.stored_times[train]
    again = [train[times > number] for number in range(int(times.max(initial=0)))]
    passes = np.repeat(np.arange(len(again)), [len(one) for one in again])
    own = np.concatenate([train[:0], *again])
    return {
        train_test.TRAIN: (own, own + first + passes * total),
        train_test.TEST: (test, test + first),
    }


def in_order(
    options: PlanOptions,
    keys: dict[str, tuple[Ints, Ints]],
    lengths: npt.NDArray[np.integer[Any]],
    starts: Ints,
    width: int,
) -> list[Side]:
    """The sides that have examples, laid out in the order that the options ask for.

    Args:
        keys: of each side, as ``keys_of`` has them; ``lengths``, ``starts``, ``width``: see
            ``lay_out``.
    """
    laid = []
    for name, (own, key) in keys.items():
        order = own
        if options.shuffle:
            order = own[np.argsort(train_test.mixed(key, options.seed), kind="stable")]
        if len(own):
            laid.append(lay_out(name, order, lengths, options, width=width, starts=starts))
    return laid


def sides_of(
    options: PlanOptions, examples: PlannedExamples, choice: Choice, width: int
) -> list[Side]:
    """What is chosen, laid out: of each side the order, the rows and the shards.

    Args:
        width: of padded rows, in tokens; 0 otherwise.
    """
    keys = keys_of(choice, total=len(choice.fate))
    laid = in_order(options, keys, examples.length, starts=examples.starts, width=width)
    return indexed(laid, choice, examples) if options.index_only else laid


# A window: some consecutive parts of a build, and their examples as far as a plan sees them.


# Constants, since shards are bytes we promise. A window ends before the part with which it would
# exceed one of them; of short rows, whose parts have many, it has fewer parts.
WINDOW_PARTS = 64
WINDOW_EXAMPLES = 1 << 19


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a window.

    Attributes:
        numbers: those that plans need.
        source: where its examples are.
        sha256: of these.
    """

    numbers: Numbers
    source: collect.PartSource
    sha256: str


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive parts. It can be pickled, and written as JSON.

    Attributes:
        first: number of its first example in the build; ``line``: of its first line, over all.
    """

    number: int
    first: int
    line: int
    members: tuple[Member, ...]

    @property
    def starts(self) -> Ints:
        """Where each part's examples begin in the window, and how many it has."""
        return offsets_of(np.array([one.numbers.examples for one in self.members], np.int64))

    @property
    def end(self) -> int:
        """Number of the example after its last."""
        return int(self.first + self.starts[-1])

    @property
    def sources(self) -> list[collect.PartSource]:
        """Where its examples are."""
        return [one.source for one in self.members]

    def examples(self, config: Config) -> PlannedExamples:
        """Its examples, in input order; rows count over the whole build."""
        return read_numbers([one.numbers for one in self.members], config, self.line)


def _bounds(examples: Sequence[int]) -> list[int]:
    """The part at which each window begins, and how many parts there are.

    Args:
        examples: of each part.
    """
    bounds: list[int] = []
    parts = held = 0
    for number, count in enumerate(examples):
        if not bounds or parts == WINDOW_PARTS or held + count > WINDOW_EXAMPLES:
            bounds.append(number)
            parts = held = 0
        parts, held = parts + 1, held + count
    return [*bounds, len(examples)]


def windows_of(
    works: Sequence[part.Work],
    reports: Sequence[part.PartReport],
    sources: Sequence[collect.PartSource],
) -> list[Window]:
    """The windows of a build, from all its parts."""
    members = [
        Member(
            Numbers(str(work.files.plan), report.lines, report.examples, work.source),
            source,
            report.sha256,
        )
        for work, report, source in zip(works, reports, sources, strict=True)
    ]
    bounds = _bounds([one.examples for one in reports])
    examples = offsets_of(np.array([one.examples for one in reports], np.int64))[bounds].tolist()
    lines = offsets_of(np.array([one.lines for one in reports], np.int64))[bounds].tolist()
    return [
        Window(number, examples[number], lines[number], tuple(members[first:last]))
        for number, (first, last) in enumerate(pairwise(bounds))
    ]


def digest_of(windows: Sequence[Window]) -> str:
    """A hash of all parts, and of how they are cut into windows."""
    every = [f"{window.number} {member.sha256}" for window in windows for member in window.members]
    return hashlib.sha256("\0".join(every).encode()).hexdigest()
