"""A build's examples as arrays of numbers, about 40 bytes each, whatever their texts are.

Where packs are an index, the examples are those of the packs, in their order, each as often as
packs name it: they are what a trainer reads. Elsewhere they are those of the shards. Shards are
read a few thousand stored rows at a time, so memory depends on how many examples there are, not on
how long they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from pipeline.builds.build import Build
from pipeline.builds.packs import Packs, examples
from pipeline.shards.doubles import DIGEST, Digests, digests_of
from stages.columns import (
    IGNORED,
    Ids,
    Ints,
    begins_of,
    count_per_row,
    list_parts,
    numbers,
    offsets_of,
    whole,
)
from stages.tokens.segment_encoder import Side, digests

AT_ONCE = 4096  # stored rows, or examples of packs
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.float32(np.nan)
_NAMES = ("row_id", "step_positions", "source")  # where an example is, not what


@dataclass(frozen=True)
class Numbers:
    """The examples of a build, in the order of ``tables``; arrays have one value for each.

    Attributes:
        sides: names of the splits; ``side``: which of them, uint8.
        sources: names of the recipe's sources, or of the inputs; ``source``: which of them, int32.
        who: uint64, hashes of row ids, each with the number of its copy.
        what: 128-bit digests of all that a trainer reads of it.
        length: tokens of all its sequences, int32; ``trained``: those with a label.
    """

    sides: tuple[str, ...]
    sources: tuple[str, ...]
    who: npt.NDArray[np.uint64]
    what: Digests
    length: Ids
    trained: Ids
    side: npt.NDArray[np.uint8]
    source: Ids

    def __len__(self) -> int:
        return len(self.who)


def tables(build: Build) -> Iterator[tuple[str, pa.Table]]:
    """Examples in our columns, unpadded and unpacked, a few thousand at a time, with their split.

    Raises:
        DataError: a shard or an index is missing or damaged.
    """
    for name, split in build.splits.items():
        if build.manifest.packs:
            packs = Packs(build, name)
            members = packs.members(0, len(packs))[0]
            for start in range(0, len(members), AT_ONCE):
                yield name, packs.examples(members[start : start + AT_ONCE])
            continue
        for shard in split.shards:
            stored = shard.table()
            for start in range(0, len(stored), AT_ONCE):
                piece = stored.slice(start, AT_ONCE).combine_chunks()
                yield name, examples(piece)


def _side(column: pa.Array) -> Side:
    """A column as one list of 32-bit numbers per row."""
    if not pa.types.is_list(column.type):
        values = column.cast(pa.float32() if pa.types.is_floating(column.type) else pa.int32())
        flat = values.to_numpy(zero_copy_only=False)
        return offsets_of(np.ones(len(flat), np.int64)), flat.view(np.int32)
    if pa.types.is_floating(column.type.value_type):
        offsets, values = list_parts(column)
        flat = pc.fill_null(values, pa.scalar(_NULL)).to_numpy(zero_copy_only=False)
        return offsets, np.ascontiguousarray(flat, np.float32).view(np.int32)
    return numbers(column)


def _digests(table: pa.Table) -> Digests:
    """Of everything in an example but its name and the positions that follow from its ids."""
    columns = {n: whole(table.column(n)) for n in table.schema.names if n not in _NAMES}
    sides: list[Side] = []
    if "labels" in columns:
        offsets, ids = numbers(columns.pop("input_ids"))
        labels = numbers(columns.pop("labels"))[1]
        ignored = labels == IGNORED
        # Trained ids are stored as negative numbers, so that ids and labels are hashed as one list.
        sides = [(offsets, np.where(ignored, ids, ~ids))]
        if not np.array_equal(labels[~ignored], ids[~ignored]):
            sides.append((offsets, labels))
    sides += [_side(columns[name]) for name in sorted(columns)]
    return digests_of(pa.chunked_array([digests(*sides)]))


def _lengths(table: pa.Table) -> tuple[Ints, Ints]:
    """Tokens, and those that are trained; of a pair, those of both answers."""
    if "labels" in table.schema.names:
        offsets, labels = numbers(whole(table.column("labels")))
        return np.diff(offsets), count_per_row(offsets, labels != IGNORED)
    sides = [np.diff(numbers(whole(table.column(f"{s}_ids")))[0]) for s in ("chosen", "rejected")]
    prompt = table.column("prompt_length").to_numpy().astype(np.int64)
    total = sides[0] + sides[1]
    return total, total - 2 * prompt


class _Index:
    """Numbers names in the order of their first appearance."""

    def __init__(self, build: Build) -> None:
        self._called = {one.path: one.source or one.path for one in build.manifest.inputs}
        self.names: dict[str, int] = {}

    def of(self, column: pa.Array) -> Ids:
        encoded = column.dictionary_encode()
        called = [self._called.get(path, path) for path in encoded.dictionary.to_pylist()]
        known = [self.names.setdefault(name, len(self.names)) for name in called]
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        return np.array(known, np.int32)[indices] if known else np.zeros(0, np.int32)


def _bytes(texts: pa.Array) -> list[bytes]:
    found: list[bytes] = texts.cast(pa.large_binary()).to_pylist()
    return found


def read(build: Build) -> Numbers:
    """The numbers of every example of a build, or of an export of one.

    Raises:
        DataError: a shard is missing or damaged.
    """
    sides, sources = tuple(build.splits), _Index(build)
    pieces: list[tuple[npt.NDArray[np.generic], ...]] = []
    for name, table in tables(build):
        names = whole(table.column("row_id"))
        length, trained = _lengths(table)
        pieces.append(
            (
                np.fromiter(map(xxh3_64_intdigest, _bytes(names)), np.uint64, len(names)),
                _digests(table),
                length.astype(np.int32),
                trained.astype(np.int32),
                np.full(len(names), sides.index(name), np.uint8),
                sources.of(pc.replace_substring_regex(names, r":[^:]*$", "")),
            )
        )
    kinds = (np.uint64, DIGEST, np.int32, np.int32, np.uint8, np.int32)
    joined = [
        np.concatenate([piece[at] for piece in pieces]) if pieces else np.zeros(0, kind)
        for at, kind in enumerate(kinds)
    ]
    # Hashes of row ids are to be unique: those of copies follow from their number.
    joined[0] += _copies(joined[0]).astype(np.uint64) * _STEP  # wraps around
    return Numbers(sides, tuple(sources.names), *joined)


def _copies(values: npt.NDArray[Any]) -> Ints:
    """How many equal values stand before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    copies = np.empty(len(values), np.int64)
    copies[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return copies


# Which examples of two builds are the same.


@dataclass(frozen=True)
class Pairs:
    """Places of examples of two builds, ascending; those of a pair stand at the same index."""

    one: Ints
    other: Ints

    def __len__(self) -> int:
        return len(self.one)


class Matched(NamedTuple):
    """Every example of the first build is in one of same, moved, changed and removed; every one of
    the second in one of same, moved, changed and added."""

    same: Pairs
    moved: Pairs
    changed: Pairs
    removed: Ints
    added: Ints


def _by_key(
    one: npt.NDArray[Any], other: npt.NDArray[Any], left: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:
    """Places whose keys are equal; keys are unique on each side.

    Args:
        left: the places that the keys belong to.
    """
    _, first, second = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    order = np.argsort(left[0][first], kind="stable")
    return left[0][first][order], left[1][second][order]


def _rest(count: int, *taken: Ints) -> Ints:
    mask = np.ones(count, bool)
    for places in taken:
        mask[places] = False
    return np.flatnonzero(mask)


def _counted(one: Any, other: Any) -> tuple[Ints, Ints]:
    """Keys of contents that are unique on each side: the content, and its how manieth it is."""
    both = np.concatenate([one, other])
    order = np.lexsort((both["b"], both["a"]))
    ordered = both[order]
    begins = begins_of(ordered["a"], ordered["b"])
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(begins) - 1
    sides = group[: len(one)], group[len(one) :]
    first, second = (side * (len(both) + 1) + _copies(side) for side in sides)
    return first, second


def match(one: Numbers, other: Numbers) -> Matched:
    """Match the examples of two builds by their row ids and contents."""
    every = (np.arange(len(one)), np.arange(len(other)))
    first, second = _by_key(one.who, other.who, every)
    equal = one.what[first] == other.what[second]
    same = Pairs(first[equal], second[equal])
    left = (_rest(len(one), same.one), _rest(len(other), same.other))
    keys = _counted(one.what[left[0]], other.what[left[1]])
    moved = Pairs(*_by_key(*keys, left))
    left = (_rest(len(one), same.one, moved.one), _rest(len(other), same.other, moved.other))
    changed = Pairs(*_by_key(one.who[left[0]], other.who[left[1]], left))
    return Matched(
        same=same,
        moved=moved,
        changed=changed,
        removed=_rest(len(one), same.one, moved.one, changed.one),
        added=_rest(len(other), same.other, moved.other, changed.other),
    )
