"""What the parts say of a shard's examples: what the read-back compares the stored rows with.

It shares nothing but the mapped files with the code that fetches examples for shards
(``collect``), so that an error there does not hide itself.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations import stored_rows
from pipeline.shards import mapped
from pipeline.shards.collect import ORIGIN, Collector, PartSource
from pipeline.shards.mapped import MappedBytes
from stages.columns import IGNORED, Ints, numbers, offsets_of
from stages.tokens.folded_labels import NO_MARKER

_NUMBERS = ("prompt_length", "margin")
# Lists of one number a step: to read so few by themselves takes longer than to hold them all.
_FEW: dict[str, Callable[[pa.ListArray], stored_rows.Lists]] = {
    "step_labels": stored_rows.ratings,
    "step_positions": numbers,
}


class _Slices:
    """The lists of a column, as slices of the bytes of parts; 4 bytes a value."""

    def __init__(self, count: int) -> None:
        self._bytes: list[MappedBytes] = []
        self._part = np.zeros(count, np.int64)
        self._starts = np.zeros(count, np.int64)
        self._lengths = np.zeros(count, np.int64)

    def add(self, places: Ints, column: pa.ListArray, values: MappedBytes, rows: Ints) -> None:
        """What stands in some rows of a part is that of the examples at these places."""
        bounds = column.offsets.to_numpy()
        self._part[places] = len(self._bytes)
        self._bytes.append(values)
        self._starts[places] = bounds[rows]
        self._lengths[places] = bounds[rows + 1] - bounds[rows]

    def __call__(self, start: int, stop: int) -> stored_rows.Lists:
        some = slice(start, stop)
        part, lengths, first = self._part[some], self._lengths[some], self._starts[some]
        last = first + lengths
        # An example that begins where the one before it ends is of the same run.
        runs = np.flatnonzero((part[1:] != part[:-1]) | (first[1:] != last[:-1])) + 1
        if not len(part):
            return offsets_of(lengths), np.zeros(0, np.int32)
        heads, tails = np.append(0, runs), np.append(runs, len(part)) - 1
        begins, ends = (4 * first[heads]).tolist(), (4 * last[tails]).tolist()
        where = zip(part[heads].tolist(), begins, ends, strict=True)
        content = mapped.joined([(self._bytes[of], begin, end) for of, begin, end in where])
        return offsets_of(lengths), np.frombuffer(content, np.int32)


class Expected:
    """The examples of one shard, of which ranges are compared.

    Args:
        order: their numbers in the build; ``starts``: those of each part's first example.
        stored: the columns of parts that shards are made of.
        marker: the id at which labels stand, if there is one.
    """

    def __init__(
        self,
        collect: Collector,
        sources: Sequence[PartSource],
        inputs: stored_rows.Sources,
        *,
        starts: Ints,
        order: Ints,
        stored: Sequence[str],
        marker: int = NO_MARKER,
    ) -> None:
        self._marker = marker
        self._collect, self._starts, self._order = collect, starts, order
        self._parts = list(self._by_part(order))
        ordinals = {name: index for index, name in enumerate(inputs.names)}
        self._source = np.zeros(len(order), np.int64)
        self._line, self._sequence, self._tokens = (
            self._of(name).astype(np.int64) for name in ("line", "sequence", "length")
        )
        for part, places, rows in self._parts:
            if sources[part].batch < 0:
                self._source[places] = ordinals[sources[part].name]
            else:  # every example says it of itself
                self._source[places] = collect.column(part, ORIGIN).to_numpy()[rows]
            self._line[places] += sources[part].first_line + 1  # a part counts from 0
        self._values = {name: self._of(name) for name in _NUMBERS if name in stored}
        self._lists = {n: self._column(n) for n in stored if n in stored_rows.COMPARED}
        self._digests = stored_rows.halves(self._taken("digest"))

    def _by_part(self, order: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Each part: its number, the places of its examples in the order, and their rows in it."""
        places = np.argsort(order, kind="stable")
        bounds = np.searchsorted(order[places], self._starts)
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            mine = places[bounds[part] : bounds[part + 1]]
            yield part, mine, order[mine] - self._starts[part]

    def _of(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers; missing ones are NaN."""
        found: npt.NDArray[Any] | None = None
        for part, places, rows in self._parts:
            column = self._collect.column(part, name)
            values = column.take(pa.array(rows)).to_numpy(zero_copy_only=False)
            found = np.zeros(len(self._order), values.dtype) if found is None else found
            found[places] = values
        return np.zeros(0, np.int64) if found is None else found

    def _taken(self, name: str) -> pa.Array:
        """A column of any type."""
        taken, at = [], []
        for part, places, rows in self._parts:
            taken.append(self._collect.column(part, name).take(pa.array(rows)))
            at.append(places)
        return pa.concat_arrays(taken).take(pa.array(np.argsort(np.concatenate(at))))

    def _column(self, name: str) -> Callable[[int, int], stored_rows.Lists]:
        """A column of lists of numbers."""
        if name in _FEW:
            taken, read = self._taken(name), _FEW[name]
            return lambda start, stop: read(taken.slice(start, stop - start))
        slices = _Slices(len(self._order))
        for part, places, rows in self._parts:
            values = self._collect.bytes_of(part, name)
            slices.add(places, self._collect.column(part, name), values, rows)
        return slices

    def __call__(self, start: int, stop: int) -> stored_rows.Planned:
        """Those from ``start`` to ``stop``."""
        self._collect.forget()  # those before
        some = slice(start, stop)
        lists = {name: column(start, stop) for name, column in self._lists.items()}
        if "loss_weights" in lists:
            lists["loss_weights"] = _spread(lists["folded"], lists["loss_weights"])
        if self._marker != NO_MARKER:
            lists |= _apart(lists.pop("folded"), self._marker)
        place = {"source": self._source, "line": self._line, "sequence": self._sequence}
        return stored_rows.Planned(
            tokens=self._tokens[some],
            place={name: values[some] for name, values in place.items()},
            values={name: values[some] for name, values in self._values.items()},
            lists=lists,
            digest=(self._digests[0][some], self._digests[1][some]),
        )


def _apart(folded: stored_rows.Lists, marker: int) -> dict[str, stored_rows.Lists]:
    """Ids and labels, where a label stands at a marker: its complement is in the marker's place."""
    offsets, values = folded
    trained = values < 0
    ids, labels = np.where(trained, np.int32(marker), values), np.where(trained, ~values, IGNORED)
    return {"input_ids": (offsets, ids), "labels": (offsets, labels.astype(np.int32))}


def _spread(folded: stored_rows.Lists, weights: stored_rows.Lists) -> stored_rows.Lists:
    """A weight for each token: an empty list is 1 where a token is trained, and 0 elsewhere."""
    (offsets, ids), (at, values) = folded, weights
    plain = np.repeat(np.diff(at) == 0, np.diff(offsets))
    flat = stored_rows.bits((ids < 0).astype(np.float32))
    flat[~plain] = values
    return offsets, flat
