"""The packs of a build with ``--index-only``, read as the packed rows that they stand for. ::

    packs = Packs("DIR")                 # or Packs("DIR", "test")
    packs[0]["input_ids"]                # one pack
    packs[10:20]["row_ids"]              # a list for each column, as datasets gives them
    packs.table(0, 256)                  # rows 0 to 255 as pyarrow has them

Nothing is held but mapped files: the index says which examples a pack has, and these are taken from
the shards when the pack is asked for.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa

from pipeline.builds import stored
from pipeline.builds.build import Build, StoredShard
from stages.columns import TYPES, Ints, list_parts, offsets_of, whole
from stages.errors import DataError, UsageError, require_reading
from stages.tokens import layouts, ragged

Row = dict[str, Any]
_OPEN = 256  # shards that are mapped at a time


class Examples:
    """The stored examples of one side, taken by their numbers.

    Args:
        shards: of the side, in order.
    """

    def __init__(self, shards: Sequence[StoredShard]) -> None:
        self._shards = tuple(shards)
        self._starts = offsets_of(np.array([shard.record.rows for shard in shards], np.int64))
        self._open: OrderedDict[int, tuple[list[pa.RecordBatch], Ints]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict()}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, numbers: Ints) -> pa.Table:
        """Some examples, in this order, each column in one chunk.

        Args:
            numbers: from 0; one may be there several times.

        Raises:
            DataError: there is no such example, or a shard is damaged.
        """
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise DataError(
                f"The index names example {numbers.max()} of {len(self)}.", "Build it again."
            )
        order = np.argsort(numbers, kind="stable")
        sought = numbers[order]
        bounds = np.searchsorted(sought, self._starts)
        found: list[pa.RecordBatch] = []
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            own = sought[bounds[shard] : bounds[shard + 1]] - self._starts[shard]
            found += self._rows(shard, own)
        if not found:
            found = [self._batches(0)[0][0].slice(0, 0)]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.Table.from_batches(found).combine_chunks().take(pa.array(back)).combine_chunks()

    def _rows(self, shard: int, rows: Ints) -> Iterator[pa.RecordBatch]:
        batches, starts = self._batches(shard)
        bounds = np.searchsorted(rows, starts)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            own = rows[bounds[number] : bounds[number + 1]] - starts[number]
            yield batches[number].take(pa.array(own))

    def _batches(self, shard: int) -> tuple[list[pa.RecordBatch], Ints]:
        """The record batches of a shard, and where their rows begin."""
        if shard not in self._open:
            batches = self._shards[shard].table().to_batches()
            starts = offsets_of(np.array([len(batch) for batch in batches], np.int64))
            self._open[shard] = (batches, starts)
            if len(self._open) > _OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(shard)
        return self._open[shard]


class Packs:
    """Packs of one side, read-only. Rows, columns and types are those of packed shards.

    Items are dictionaries of numpy arrays (int32 ids and labels, float32 weights), texts and
    numbers; a slice, or a list of numbers, gives a list of these for each column, as ``datasets``
    does. What is pickled are the manifest and paths, so that a loader's workers open the files
    themselves.

    Args:
        build: its folder, or a build that is open.
        split: ``train`` or ``test``.

    Raises:
        UsageError: it is no build with ``--index-only``, or has no such side.
        DataError: its manifest or its index is damaged.
    """

    def __init__(self, build: Build | str | Path, split: str = "train") -> None:
        opened = build if isinstance(build, Build) else Build.open(build)
        record = opened.manifest.packs.get(split)
        if record is None:
            raise UsageError(
                f"{opened.shown()} has no index of packs of {split}.",
                "Build with --index-only, or read its rows: datasets.load_from_disk.",
            )
        self.split, self.sha256 = split, record.sha256
        self._build, self._name, self._count = opened, record.path, record.packs
        self._examples = Examples(opened.splits[split].shards)
        self._index: pa.Table | None = None
        self.schema: pa.Schema = self.table(0, 0).schema

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None}

    @property
    def column_names(self) -> list[str]:
        """Those of packed rows, in their order."""
        return list(self.schema.names)

    @property
    def num_rows(self) -> int:
        """How many packs there are."""
        return self._count

    def _opened(self) -> pa.Table:
        if self._index is None:
            try:
                self._index = stored.read_file(self._build.path(self._name))
                if len(self._index) != self._count:
                    raise pa.ArrowInvalid(f"it has {len(self._index)} packs, not {self._count}")
            except (OSError, pa.ArrowException) as error:
                require_reading(error)
                raise DataError(
                    f"{self._build.shown(self._name)} cannot be read: {error}.", "Build it again."
                ) from error
        return self._index

    def members(self, first: int, last: int) -> tuple[Ints, Ints]:
        """The numbers of the examples in packs ``first`` to ``last - 1``, and how many each has."""
        column = whole(self._opened().column("examples").slice(first, last - first))
        offsets, values = list_parts(column)
        return values.to_numpy(), np.diff(offsets)

    def shards(self) -> list[tuple[int, int]]:
        """First pack and end of each shard that packed rows would be in."""
        counts = [len(chunk) for chunk in self._opened().column("tokens").chunks]
        return list(pairwise(offsets_of(np.array(counts, np.int64)).tolist()))

    def examples(self, numbers: Ints) -> pa.Table:
        """Stored examples by their numbers; see ``Examples.take``."""
        return self._examples.take(numbers)

    def table(self, first: int, last: int) -> pa.Table:
        """Packs ``first`` to ``last - 1`` as a table of packed rows, each column in one chunk.

        Raises:
            DataError: the index or a shard is damaged.
        """
        numbers, sizes = self.members(first, last)
        return layouts.load(layouts.PACKED).rows(self.examples(numbers), sizes, layouts.Shape())

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int]) -> Row: ...

    def __getitem__(self, index: int | slice | Sequence[int]) -> Row:
        """A pack, or a list for each column.

        Raises:
            IndexError: there are fewer.
        """
        if isinstance(index, slice):
            return self._columns(range(*index.indices(self._count)))
        if not isinstance(index, int | np.integer):
            return self._columns([self._place(one) for one in index])
        place = self._place(index)
        row = self.table(place, place + 1)
        return {name: value_of(row.column(name)[0]) for name in row.schema.names}

    def _place(self, index: int | np.integer) -> int:
        if not -self._count <= index < self._count:
            raise IndexError(f"row {index} of {self._count}")
        return int(index) % self._count

    def _columns(self, places: Sequence[int]) -> Row:
        rows = [self[place] for place in places]
        return {name: [row[name] for row in rows] for name in self.column_names}

    def __iter__(self) -> Iterator[Row]:
        return (self[place] for place in range(self._count))


def value_of(scalar: pa.Scalar) -> Any:
    """A value of a row: numbers as numpy has them, and lists with nulls or texts as Python has."""
    if isinstance(scalar, pa.ListScalar):
        values = scalar.values
        if values.null_count or not pa.types.is_primitive(values.type):
            return values.to_pylist()  # unlabelled steps, row ids
        return values.to_numpy(zero_copy_only=False)
    return scalar.as_py()


# Training rows back to single examples, whatever layout they are stored in.


def examples(table: pa.Table) -> pa.Table:
    """One example a row, unpadded.

    Raises:
        UsageError: it has a column of unknown meaning, which cannot be split into examples.
    """
    known = {*TYPES, "row_ids"}
    unknown = [name for name in table.schema.names if name not in known]
    if unknown:
        raise UsageError(f"Columns {', '.join(unknown)} cannot be carried into another layout.")
    return ragged.examples(table)
