"""Finds stored examples by a condition in the language of ``--filter``, forwards or backwards from
one of them.

A build is looked through from where the search begins, some record batches at a time, until enough
examples are found: what lies behind that place is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.builds.build import Build, StoredShard
from pipeline.builds.packs import Packs
from pipeline.report.drawing import Shards, row_ids
from pipeline.report.fields import Field, Held, known_as, of_build
from pipeline.shards.values import TEXT
from stages.columns import Ints
from stages.errors import UsageError, did_you_mean
from stages.rows.expressions import Asked, key_of, parse
from stages.tokens import layouts

Bools = npt.NDArray[np.bool_]
OPTION = "--where"


class Condition:
    """One ``--where`` over the examples of a build.

    Raises:
        UsageError: the text is no condition, or reads what the examples do not have.
    """

    def __init__(self, text: str, build: Build) -> None:
        fields = of_build(build)
        named = f"Fields are {', '.join(fields)}; --fields says what they are."
        self._expression = parse(text, Asked(OPTION, named, named, "trained = 0"))
        names = [("column", name) for name in self._expression.columns]
        names += [("figure", name) for name in self._expression.figures]
        self._read = {key_of(*name): self._field(name[1], fields, named) for name in names}
        self._types = {key: field.type for key, field in self._read.items()}
        self.fits([])  # types that do not go together are found before any row is read

    def _field(self, name: str, fields: Mapping[str, Field], named: str) -> Field:
        field = fields.get(known_as(name))
        if field is None:
            text = self._expression.text
            raise UsageError(
                f"{OPTION} {text!r} reads {name}, which examples of this build do not have.",
                did_you_mean(name, fields, named, most=1),
            )
        return field

    def fits(self, held: Sequence[Held]) -> Bools:
        """Whether it is true for each example of some record batches.

        Raises:
            UsageError: it compares what cannot be compared.
        """
        import polars as pl

        from pipeline.shards.filter_expressions import evaluate

        frame: dict[str, Any] = {".": pl.Series(np.zeros(sum(len(h.row) for h in held), bool))}
        for key, field in self._read.items():
            kind = pa.string() if field.type == TEXT else pa.float64()
            chunks = [_array(field.values(one), kind) for one in held]
            frame[key] = pl.Series(pa.chunked_array(chunks, kind))
        found = evaluate(self._expression, pl.DataFrame(frame), self._types)
        return found.fill_null(False).to_numpy()


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array.cast(kind)


_BATCH, _TOGETHER = 256, 8192  # rows that are unpacked, and that are compared, at a time
_Key: TypeAlias = tuple[int, int, int]


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

    def __init__(self, shards: Shards, condition: Condition | None, split: str | None) -> None:
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
        names = [row_ids(self._shards.table(shard))[1] for shard in shards]
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
            every = self._condition.fits(held)
            fits = np.split(every, np.cumsum([len(one.row) for one in held])[:-1])
        self.looked += sum(map(len, fits))
        return [found for one, which in zip(held, fits, strict=True) for found in _of(one, which)]

    def _packs(self, split: str, rows: Ints) -> Ints:
        """The pack of each stored row; -1 where no pack has it."""
        if not self._indexed:
            return rows
        if split not in self._pack_of:
            packs = Packs(self._shards.build, split)
            numbers, sizes = packs.members(0, len(packs))
            pack_of = np.full(self._shards.build.splits[split].record.rows, -1)
            # Of several packs the first one is left: it is written last.
            pack_of[numbers[::-1]] = np.repeat(np.arange(len(sizes)), sizes)[::-1]
            self._pack_of[split] = pack_of
        found: Ints = self._pack_of[split][rows]
        return found

    def _once(self, found: Found) -> bool:
        """Whether it is the first copy of its example."""
        copies = self._shards.build.manifest.examples.copies
        return not copies or self.find(found.row_id) == found


def _of(held: Held, which: Bools) -> list[Found]:
    """Some examples of a record batch."""
    at = np.flatnonzero(which)
    ids = held.column("row_id").take(pa.array(at)).to_pylist()
    starts = np.searchsorted(held.row, held.row[at])
    places = zip(held.row[at].tolist(), (at - starts).tolist(), strict=True)
    return [Found(name, Place(held.split, *place)) for name, place in zip(ids, places, strict=True)]
