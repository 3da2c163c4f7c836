"""Examples picked out of the parts of a build: nothing here costs more than what is picked.

A part is mapped, not read. An example's numbers are a slice of the mapped bytes; names are made for
the examples that are picked, and no list of Python objects has the size of a part. Parts are looked
at once for a shard, not for each of its blocks: a shuffled shard has examples of all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.shards import examples, mapped, storage
from stages.columns import IDS, Ints, make_list, offsets_of, whole
from stages.errors import DataError

_FEW = ("step_positions",)  # lists so short that to read one by one takes longer than to take them
ORIGIN = "origin"  # the number of the input that an example of a batch is of


@dataclass(frozen=True, slots=True)
class PartSource:
    """Where one part's examples come from.

    Attributes:
        name: of the input; ``source``: of the source that it belongs to, empty without one.
        batch: the record batch of a file in which examples of many parts lie, with their origins;
            -1 of a part.
    """

    path: str
    name: str
    first_line: int
    source: str = ""
    batch: int = -1

    def read(self, names: Sequence[str]) -> pa.Table:
        """Some columns of its examples, mapped."""
        return examples.columns_of(Path(self.path), names)


@dataclass(frozen=True, slots=True)
class Picks:
    """Which examples are picked: of each its part, and its row there.

    Attributes:
        groups: each part once, with the places of its examples among the picked ones.
    """

    parts: Ints
    rows: Ints
    groups: tuple[tuple[int, Ints], ...]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[tuple[int, Ints, Ints]]:
        """Each part: its number, the places of its examples, and their rows in it."""
        for part, places in self.groups:
            yield part, places, self.rows[places]


def picks(starts: Ints, order: Ints) -> Picks:
    """Examples by their number in the build.

    Args:
        starts: number of each part's first example, and the total.
    """
    parts = examples.part_of(starts, order)
    places = np.argsort(parts, kind="stable")
    # Where the part changes in the sorted order: each run of places is of one part.
    used, firsts = np.unique(parts[places], return_index=True)
    runs = np.split(places, firsts[1:]) if len(order) else []
    return Picks(parts, order - starts[parts], tuple(zip(used.tolist(), runs, strict=True)))


def row_ids(sources: Sequence[PartSource], which: Ints, lines: Ints, sequences: Ints) -> pa.Array:
    """Names of examples: path, line from 1, and sequence where a row has several.

    Args:
        which: of the sources, for each example; ``lines``: from 0, in that source's split.
        sequences: -1 where the row is one example.

    Returns:
        Strings such as ``data.jsonl:3`` and ``data.jsonl:3#0``.
    """
    first = np.array([source.first_line for source in sources], np.int64)
    names = pa.array([source.name for source in sources], pa.string()).take(pa.array(which))
    counted = pa.array(lines + first[which] + 1).cast(pa.string())
    ids = pc.binary_join_element_wise(names, counted, ":")
    several = sequences >= 0
    if not several.any():
        return ids
    numbered = pc.binary_join_element_wise(ids, pa.array(sequences).cast(pa.string()), "#")
    return pc.if_else(pa.array(several), numbered, ids)


def row_ids_of(source: PartSource, batch: pa.RecordBatch) -> pa.Array:
    """Names of the rows of a batch, all of one source."""
    lines, sequences = (batch.column(name).to_numpy() for name in ("line", "sequence"))
    return row_ids([source], np.zeros(batch.num_rows, np.int64), lines=lines, sequences=sequences)


class _Lists:
    """Lists of numbers without nulls: one join of slices of the parts' bytes is all that is copied.

    Args:
        column_of: a part's column; ``bytes_of``: its values.
    """

    def __init__(
        self,
        picked: Picks,
        column_of: Callable[[int], pa.Array],
        bytes_of: Callable[[int], mapped.MappedBytes],
    ) -> None:
        self._parts = picked.parts
        self._starts = np.empty(len(picked), np.int64)
        self._stops = np.empty(len(picked), np.int64)
        self._bytes: dict[int, mapped.MappedBytes] = {}
        for part, places, rows in picked:
            column = column_of(part)
            self._kind = column.type.value_type
            offsets = column.offsets.to_numpy()
            self._starts[places], self._stops[places] = offsets[rows], offsets[rows + 1]
            self._bytes[part] = bytes_of(part)

    def __call__(self, first: int, last: int) -> pa.ListArray:
        """The lists from ``first`` to ``last``, at least one."""
        parts, starts, stops = (a[first:last] for a in (self._parts, self._starts, self._stops))
        width = self._kind.bit_width // 8
        # Examples that lie side by side in a part are one slice.
        apart = (parts[1:] != parts[:-1]) | (starts[1:] != stops[:-1])
        begins = np.flatnonzero(np.concatenate([[True], apart]))
        ends = np.append(begins[1:], len(parts)) - 1
        pieces = zip(
            parts[begins].tolist(),
            (starts[begins] * width).tolist(),
            (stops[ends] * width).tolist(),
            strict=True,
        )
        own = self._bytes
        found = [(own[part], start, stop) for part, start, stop in pieces]
        content = pa.py_buffer(mapped.joined(found))
        offsets = offsets_of(stops - starts)
        values = pa.Array.from_buffers(self._kind, int(offsets[-1]), [None, content])
        return make_list(offsets, values)


def _taken(picked: Picks, column_of: Callable[[int], pa.Array]) -> pa.Array:
    """The same for any type: taken part by part, then put into the picked order."""
    taken = [column_of(part).take(pa.array(rows)) for part, _, rows in picked]
    order = np.concatenate([places for _, places, _ in picked])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return pa.concat_arrays(taken).take(pa.array(place))


class Collector:
    """Fetches examples of a build from its parts, whose files it maps once.

    Args:
        sources: of the parts; ``starts``: number of each part's first example, and the total.
        inputs: what ``ORIGIN`` counts, where the parts are batches of examples of many.
    """

    def __init__(
        self, sources: Sequence[PartSource], starts: Ints, inputs: Sequence[PartSource] = ()
    ) -> None:
        self.sources, self._starts = sources, starts
        self._dealt = any(source.batch >= 0 for source in sources)
        self._named = inputs if self._dealt else sources
        self._files: dict[str, mapped.Mapped] = {}
        self._readers: dict[str, pa.RecordBatchFileReader] = {}
        self._tables: dict[int, pa.Table] = {}
        self._columns: dict[tuple[int, str], pa.Array] = {}

    def column(self, part: int, name: str) -> pa.Array:
        """A column of a part, mapped."""
        if (part, name) not in self._columns:
            if part not in self._tables:
                self._tables[part] = self._table(self.sources[part])
            self._columns[part, name] = whole(self._tables[part].column(name))
        return self._columns[part, name]

    def _table(self, source: PartSource) -> pa.Table:
        if source.path not in self._readers:
            file = self._files[source.path] = mapped.Mapped(storage.here(Path(source.path)))
            content = pa.BufferReader(pa.py_buffer(file.content))
            self._readers[source.path] = pa.ipc.open_file(content)
        reader = self._readers[source.path]
        if source.batch < 0:
            return reader.read_all()
        return pa.Table.from_batches([reader.get_batch(source.batch)])

    def bytes_of(self, part: int, name: str) -> mapped.MappedBytes:
        """The values of a part's column of lists of numbers."""
        values = self.column(part, name).values
        # Offsets count from the first value of the child array, not always the buffer's.
        skipped = values.offset * values.type.bit_width // 8
        view = memoryview(values.buffers()[1] or b"")[skipped:]
        return self._files[self.sources[part].path].part(view)

    def forget(self) -> None:
        """Give back what was looked at of the parts: they stay mapped, and take no memory."""
        for file in self._files.values():
            file.forget()

    def picks(self, order: Ints) -> Picks:
        """Examples by their number in the build."""
        return picks(self._starts, order)

    def numbers(self, picked: Picks, name: str) -> Ints:
        """A column of whole numbers without nulls, as int64."""
        values = np.empty(len(picked), np.int64)
        for part, places, rows in picked:
            values[places] = self.column(part, name).to_numpy()[rows]
        return values

    def blocks(self, picked: Picks, name: str) -> Callable[[int, int], pa.Array]:
        """Any column, of the picked examples from .. to .."""

        def column_of(part: int) -> pa.Array:
            return self.column(part, name)

        kind = column_of(picked.groups[0][0]).type
        if name not in _FEW and (kind == IDS or name == "loss_weights"):
            return _Lists(picked, column_of, lambda part: self.bytes_of(part, name))
        column = _taken(picked, column_of)
        # Copied, since what is written of a slice depends on the column that it was cut from.
        return lambda first, last: pa.concat_arrays([column.slice(first, last - first)])

    def named(self, order: Ints, column: str) -> list[tuple[str, Any]]:
        """The names of examples, and their values of a column."""
        picked = self.picks(order)
        each = (self.row_ids(picked), self.blocks(picked, column))
        return list(zip(*(values(0, len(order)).to_pylist() for values in each), strict=True))

    def origins(self, picked: Picks) -> Ints:
        """Which of the inputs, or of the parts, each picked example is named after."""
        return self.numbers(picked, ORIGIN) if self._dealt else picked.parts

    def source_names(self, picked: Picks) -> Callable[[int, int], pa.Array]:
        """The names of the sources of the picked examples from .. to .."""
        names = pa.array([source.source for source in self._named], pa.string())
        which = self.origins(picked)
        return lambda first, last: names.take(pa.array(which[first:last]))

    def row_ids(self, picked: Picks) -> Callable[[int, int], pa.Array]:
        """Names of the picked examples from .. to .."""
        lines, sequences = (self.numbers(picked, name) for name in ("line", "sequence"))
        which = self.origins(picked)

        def named(first: int, last: int) -> pa.Array:
            some = slice(first, last)
            return row_ids(self._named, which[some], lines[some], sequences[some])

        return named


# What ``--dedup`` leaves out is compared with what stays: no example goes for its digest alone.
#
# Digests are XXH3, which nobody's chance, but somebody's intent, can make equal for two examples.


_BLOCK = 4096  # examples that are compared at once
_NUMBERS = ("margin", "prompt_length")  # are no part of what makes two examples equal


def require_equal(
    pairs: tuple[Ints, Ints], sources: Sequence[PartSource], starts: Ints, stored: Sequence[str]
) -> None:
    """Compare every example that has another's digest with that example.

    Args:
        pairs: examples by their number, and for each the one whose digest it has.
        sources: of the parts; ``starts``: number of each part's first example, and the total.
        stored: columns of the parts that shards are made of.

    Raises:
        DataError: two examples with one digest differ.
    """
    again, first = pairs
    for start in range(0, len(again), _BLOCK):
        collect = Collector(sources, starts)  # maps no more parts than the block has examples of
        pair = [collect.picks(order[start : start + _BLOCK]) for order in (again, first)]
        for name in stored:
            if name in _NUMBERS:
                continue
            one, other = (collect.blocks(picked, name)(0, len(picked)) for picked in pair)
            if one.equals(other):
                continue
            row = next(i for i in range(len(one)) if not one[i].equals(other[i]))
            names = [collect.row_ids(picked)(row, row + 1)[0].as_py() for picked in pair]
            raise DataError(
                f"{names[0]} and {names[1]} differ, and have the same digest.",
                "Such a collision is no accident: look at both rows, and leave one out.",
            )
