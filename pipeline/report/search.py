"""Finds stored examples by a condition in the language of ``--filter``, forwards or backwards from
one of them.

A build is looked through from where the search begins, some record batches at a time, until enough
examples are found: what lies behind that place is not read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.undo_layout import names as names_of
from pipeline.builds import packs
from pipeline.builds.build import Build, StoredShard
from pipeline.report.drawing import Shards
from pipeline.shards.values import NUMBER, TEXT
from stages.columns import IGNORED, Bools, Ints, count_per_row, list_parts, numbers, whole
from stages.tokens import layouts, ragged

_BATCH, _TOGETHER = 256, 8192  # rows that are unpacked, and that are compared, at a time
_Key: TypeAlias = tuple[int, int, int]
Condition: TypeAlias = "Callable[[Sequence[Held]], Bools]"  # whether each example fits


class Place(NamedTuple):
    """Where an example is stored: its stored row in a split, and its place in that row, from 0."""

    split: str
    row: int
    place: int


class Found(NamedTuple):
    """An example that fits, and the place where it is stored."""

    row_id: str
    at: Place


class _Piece(NamedTuple):
    """Some rows of a shard.

    Attributes:
        number: of the split among those of the build.
        at: the first of the rows in the shard; ``first``: in the split.
    """

    split: str
    number: int
    shard: StoredShard
    at: int
    rows: int
    first: int

    def beyond(self, begin: _Key, backwards: bool) -> bool:
        """Whether a part of it may lie behind a place, or before it."""
        if backwards:
            return (self.number, self.first, 0) < begin
        return (self.number, self.first + self.rows, 0) > begin


class Search:
    """The examples of a build that fit a condition.

    Args:
        condition: None for every example.
        split: the only one that is looked at; None for all.

    Attributes:
        looked: how many examples were looked at until now.

    Raises:
        UsageError: there is no such split.
    """

    def __init__(self, shards: Shards, condition: "Condition | None", split: str | None) -> None:
        self._shards, self._condition = shards, condition
        build = shards.build
        shards.require_split(split)
        self._splits = [name for name in build.splits if split in (None, name)]
        self._indexed = layouts.load(build.manifest.layout).indexed
        self._pack_of: dict[str, Ints] = {}
        self.looked = 0

    @property
    def examples(self) -> int:
        """How many there are in all, copies included."""
        records = [self._shards.build.splits[name].record for name in self._splits]
        return sum(one.rows if self._indexed else one.examples for one in records)

    @property
    def different(self) -> int:
        """How many there are, each counted once: as many as ``matches`` finds without a condition.

        Raises:
            DataError: a shard is damaged.
        """
        build = self._shards.build
        if self._indexed or not build.manifest.examples.copies:
            return self.examples
        if len(self._splits) == len(build.splits):
            return build.manifest.examples.kept
        shards = [shard for name in self._splits for shard in build.splits[name].shards]
        names = [names_of(self._shards.table(shard))[1] for shard in shards]
        return int(pc.count_distinct(pa.chunked_array(names, pa.string())).as_py())

    def find(self, row_id: str) -> Found:
        """The example with an id, where it is stored first.

        Raises:
            UsageError: no shard holds it.
        """
        return Found(row_id, Place(*self._shards.find(row_id)))

    def matches(self, start: Place | None = None, *, backwards: bool = False) -> Iterator[Found]:
        """Those that fit, each once, in stored order from behind a place; or in the reverse order
        from before it. Without a place they are all.

        Raises:
            UsageError: the condition compares what cannot be compared.
            DataError: a shard is damaged.
        """
        turn = -1 if backwards else 1
        begin = self._key(start) if start else None
        for split in self._splits[::turn]:
            for piece in self._pieces(split)[::turn]:
                if begin is None or piece.beyond(begin, backwards):
                    for found in self._in(piece)[::turn]:
                        key = self._key(found.at)
                        beyond = begin is None or (key < begin if backwards else key > begin)
                        if beyond and self._once(found):
                            yield found

    def _key(self, place: Place) -> _Key:
        return [*self._shards.build.splits].index(place.split), place.row, place.place

    def _pieces(self, split: str) -> list[_Piece]:
        """The rows of a split, so many at a time; nothing is opened."""
        found, first = [], 0
        number = [*self._shards.build.splits].index(split)
        for shard in self._shards.build.splits[split].shards:
            for at in range(0, shard.record.rows, _TOGETHER):
                rows = min(_TOGETHER, shard.record.rows - at)
                found.append(_Piece(split, number, shard, at, rows, first + at))
            first += shard.record.rows
        return found

    def _in(self, piece: _Piece) -> list[Found]:
        """The examples of a piece that fit."""
        build, first = self._shards.build, piece.first
        table = self._shards.table(piece.shard).slice(piece.at, piece.rows)
        held = []
        for batch in table.to_batches(max_chunksize=_BATCH):
            rows = pa.Table.from_batches([batch])
            held.append(Held(build, piece.split, rows, first, partial(self._packs, piece.split)))
            first += len(batch)
        fits = [np.ones(len(one.row), bool) for one in held]
        if self._condition is not None:
            fits = np.split(self._condition(held), np.cumsum([len(one.row) for one in held])[:-1])
        self.looked += sum(map(len, fits))
        return [found for one, which in zip(held, fits, strict=True) for found in _of(one, which)]

    def _packs(self, split: str, rows: Ints) -> Ints:
        """The pack of each stored row; -1 where no pack has it."""
        if not self._indexed:
            return rows
        if split not in self._pack_of:
            found = packs.Packs(self._shards.build, split)
            numbers, sizes = found.members(0, len(found))
            pack_of = np.full(self._shards.build.splits[split].record.rows, -1)
            # Of several packs the first one is left: it is written last.
            pack_of[numbers[::-1]] = np.repeat(np.arange(len(sizes)), sizes)[::-1]
            self._pack_of[split] = pack_of
        of_rows: Ints = self._pack_of[split][rows]
        return of_rows

    def _once(self, found: Found) -> bool:
        """Whether it is the first copy of its example."""
        return not self._shards.build.manifest.examples.copies or self.find(found.row_id) == found


def _of(held: "Held", which: Bools) -> list[Found]:
    """Some examples of a record batch."""
    at = np.flatnonzero(which)
    ids = held.column("row_id").take(pa.array(at)).to_pylist()
    starts = np.searchsorted(held.row, held.row[at])
    places = zip(held.row[at].tolist(), (at - starts).tolist(), strict=True)
    return [Found(name, Place(held.split, *place)) for name, place in zip(ids, places, strict=True)]


# What ``pipeline show --where`` can read of a stored example.
#
# A field is computed for the examples of some record batches at once, from their columns alone: no
# token is decoded, and columns that no condition reads are not read from the disk.


@dataclass(frozen=True)
class Held:
    """The examples of a record batch of a shard.

    Attributes:
        rows: as they are stored, in our columns.
        first: the number of the first one, from 0, in its split.
        packs: gives the pack of each of some stored rows.
    """

    build: Build
    split: str
    rows: pa.Table
    first: int
    packs: Callable[[Ints], Ints]

    @cached_property
    def examples(self) -> pa.Table:
        """One a row, unpadded, in stored order."""
        return packs.examples(self.rows)

    @cached_property
    def row(self) -> Ints:
        """Of each example, the number of its stored row."""
        sizes = ragged.sizes(self.rows)
        return self.first + np.repeat(np.arange(len(sizes)), sizes)

    def column(self, name: str) -> Any:
        """A column of the examples, in one piece."""
        return whole(self.examples.column(name))

    def lengths(self, name: str) -> Ints:
        """How many values a list column has for each example."""
        return np.diff(list_parts(self.column(name))[0])

    def count(self, name: str, wanted: Callable[[Any], Any]) -> Ints:
        """How many values of a list of ids fit."""
        offsets, values = numbers(self.column(name))
        return count_per_row(offsets, wanted(values))


def _tokens(held: Held) -> Ints:
    if "input_ids" in held.examples.schema.names:
        return held.lengths("input_ids")
    return np.maximum(held.lengths("chosen_ids"), held.lengths("rejected_ids"))


def _trained(held: Held) -> Ints:
    return held.count("labels", lambda labels: labels != IGNORED)


def _turns(held: Held) -> Ints:
    model = held.build.manifest.model
    ends = [end for end in (model.end_of_turn_id, model.end_of_call_id) if end is not None]
    return held.count("input_ids", lambda ids: np.isin(ids, ends))


def _source(held: Held) -> Any:
    if "source" in held.examples.schema.names:
        return held.column("source")
    # Without names a source is called by its file: the row id less its line.
    return pc.replace_substring_regex(held.column("row_id"), r":\d+(#\d+)?$", "")


def _column(name: str) -> Callable[[Held], Any]:
    return lambda held: held.column(name)


def _length(name: str) -> Callable[[Held], Any]:
    return lambda held: held.lengths(name)


def _lowest(name: str) -> Callable[[Held], pa.Array]:
    """The least value in the list of each example; null where it has none."""

    def of(held: Held) -> pa.Array:
        offsets, values = list_parts(held.column(name))
        flat = values.to_numpy(zero_copy_only=False)  # nulls are NaN, which fmin passes over
        least, has = np.full(len(offsets) - 1, np.nan), np.diff(offsets) > 0
        if has.any():
            least[has] = np.fmin.reduceat(flat, offsets[:-1][has])
        return pa.array(least, from_pandas=True)

    return of


class Field(NamedTuple):
    """Something that an example has.

    Attributes:
        type: ``number`` or ``text``, as conditions know them.
        says: what it is, for a list of them.
        needs: the column that examples must have; empty where every build has it.
    """

    name: str
    type: str
    says: str
    values: Callable[[Held], Any]
    needs: str = ""


_FIELDS = (
    Field("id", TEXT, "row_id: the file and the line that it is from", _column("row_id")),
    Field("source", TEXT, "name of its source; without names, its file", _source),
    Field("split", TEXT, "train or test", lambda held: pa.array([held.split] * len(held.row))),
    Field("row", NUMBER, "number of its stored row, from 0", lambda held: held.row),
    Field("pack", NUMBER, "number of its pack, from 0", lambda h: h.packs(h.row), "pack"),
    Field("tokens", NUMBER, "tokens; of a pair, of the longer side", _tokens),
    Field("trained", NUMBER, "trained tokens", _trained, "labels"),
    Field("turns", NUMBER, "end-of-turn tokens", _turns, "input_ids"),
    Field("prompt", NUMBER, "tokens that both sides share", _column("prompt_length"), "chosen_ids"),
    Field("chosen", NUMBER, "tokens of the chosen side", _length("chosen_ids"), "chosen_ids"),
    Field("rejected", NUMBER, "tokens of the rejected side", _length("rejected_ids"), "chosen_ids"),
    Field("margin", NUMBER, "margin of the pair", _column("margin"), "margin"),
    Field("steps", NUMBER, "steps", _length("step_labels"), "step_labels"),
    Field("reward", NUMBER, "lowest rating of a step", _lowest("step_labels"), "step_labels"),
    Field("weight", NUMBER, "lowest loss weight", _lowest("loss_weights"), "loss_weights"),
)
# What ``--filter`` calls the same.
_ALSO = {"n_tokens": "tokens", "n_trained": "trained", "n_steps": "steps"}


def of_build(build: Build) -> Mapping[str, Field]:
    """The fields that the examples of a build have, by name."""
    manifest = build.manifest
    layout = layouts.load(manifest.layout)
    has = {"", *manifest.columns, *(["pack"] if layout.packs or layout.indexed else [])}
    return {field.name: field for field in _FIELDS if field.needs in has}


def known_as(name: str) -> str:
    """The name of a field that ``--filter`` may call otherwise."""
    return _ALSO.get(name, name)
