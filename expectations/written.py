"""Metrics of a shard as it lies on the disk, beside what the plan says it holds.

What a row is called and what was encoded for its place are compared here, where the texts are;
what leaves this file is numbers, so that no text of the data ever reaches the gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from expectations import measure
from expectations.contract import Context
from expectations.unlay import Examples, sides, unlay
from stages.columns import IGNORED, TYPES, Ints, list_parts, numbers, whole
from stages.digest import digests, weighted_digests
from stages.fold import folded_ids

NAME = r"(?s)^(.*):(\d+)(?:#(\d+))?$"  # path, line and sequence
GROUP_TOKENS = 1 << 20  # measured at once
REQUIRED = {
    "sft": ("input_ids", "labels"),
    "rm": ("chosen_ids", "rejected_ids", "prompt_length"),
    "prm": ("input_ids", "labels", "step_positions", "step_labels"),
}


@dataclass(frozen=True, slots=True)
class Sources:
    """The inputs that row ids may name.

    Attributes:
        first_error: by input, whether its format rates steps up to the first error only.
    """

    names: tuple[str, ...]
    first_error: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """What the plan and the parts say of some examples, in stored order.

    Attributes:
        tokens: of each example; of the longer side of a pair.
        digest: two 64-bit halves of each example's digest, as int64.
        place: ``source``, ``line`` (from 1) and ``sequence`` (-1 for none) of each.
        values: columns of single numbers (``prompt_length``, ``margin``).
    """

    tokens: Ints
    digest: tuple[Ints, Ints]
    place: Mapping[str, Ints]
    values: Mapping[str, npt.NDArray[np.generic]]

    def slice(self, start: int, stop: int) -> Planned:
        """Those of some examples."""
        part = slice(start, stop)
        return Planned(
            self.tokens[part],
            (self.digest[0][part], self.digest[1][part]),
            {name: values[part] for name, values in self.place.items()},
            {name: values[part] for name, values in self.values.items()},
        )


def names(table: pa.Table) -> tuple[Ints, pl.Series]:
    """Row ids of a table's examples, flat, and where each training row's begin."""
    if "row_ids" not in table.schema.names:
        found = whole(table.column("row_id"))
        return np.arange(len(found) + 1), pl.Series("name", found, dtype=pl.String)
    offsets, flat = list_parts(whole(table.column("row_ids")))
    return offsets, pl.Series("name", flat, dtype=pl.String)


def _places(table: pa.Table, sources: Sources) -> pl.DataFrame:
    """Input, line and sequence of each name; -1 where it is not one."""
    ordinals = {name: index for index, name in enumerate(sources.names)}
    parts = pl.col("name").str.extract_groups(NAME).struct
    return (
        names(table)[1]
        .to_frame()
        .select(
            parts[0].replace_strict(ordinals, default=-1, return_dtype=pl.Int64).alias("source"),
            parts[1].cast(pl.Int64, strict=False).fill_null(-1).alias("line"),
            parts[2].cast(pl.Int64, strict=False).fill_null(-1).alias("sequence"),
        )
    )


def _halves(column: pa.Array) -> tuple[Ints, Ints]:
    _, data = column.buffers()
    view = np.frombuffer(data or b"", np.int64)[2 * column.offset :][: 2 * len(column)]
    return view[0::2], view[1::2]


def _digests(found: Examples) -> tuple[Ints, Ints]:
    """Of SFT and PRM examples, the way ``encode`` makes them."""
    offsets, ids = found.sequences.offsets, found.sequences.ids
    if found.weights is not None:
        trained, folded = found.labels != IGNORED, folded_ids(ids, found.labels)
        return _halves(weighted_digests(offsets, folded, trained, found.weights[0]))
    if found.steps is None:
        return _halves(digests((offsets, folded_ids(ids, found.labels))))
    rated_at, ratings = list_parts(found.steps[1])
    floats = ratings.to_numpy(zero_copy_only=False).astype(np.float32)
    coded = np.nan_to_num(floats, nan=-1.0).view(np.int32)
    return _halves(digests((offsets, ids), (offsets, found.labels), (rated_at, coded)))


def _fitted(values: npt.NDArray[np.generic], count: int, fill: int) -> npt.NDArray[np.generic]:
    """As many as there are examples: what is missing counts as ``fill``."""
    if len(values) >= count:
        return values[:count]
    return np.concatenate([values, np.full(count - len(values), fill, values.dtype)])


def _against_plan(
    frame: pl.DataFrame, table: pa.Table, planned: Planned, digest: tuple[Ints, Ints]
) -> pl.DataFrame:
    count = len(frame)
    differs = [a != _fitted(b, count, 0) for a, b in zip(digest, planned.digest, strict=True)]
    renamed = [
        frame[name].to_numpy() != _fitted(values, count, -2)
        for name, values in planned.place.items()
    ]
    changed = np.zeros(count, np.int64)
    for name, values in planned.values.items():
        stored = table.column(name).to_numpy()
        changed += _bits(stored) != _fitted(_bits(values), count, -1)
    return frame.with_columns(
        pl.Series("n_tokens_planned", _fitted(planned.tokens, count, -1)),
        pl.Series("digest_differs", differs[0] | differs[1]),
        pl.Series("name_differs", np.any(renamed, axis=0)),
        pl.Series("n_values_differ", changed),
    )


def _bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int32]:
    """Numbers by their bits, so that a NaN equals itself."""
    return np.ascontiguousarray(values.astype(values.dtype, copy=False)).view(np.int32)


def examples(
    table: pa.Table, context: Context, sources: Sources, planned: Planned | None
) -> pl.DataFrame:
    """One row of metrics per example of a record batch of a shard.

    Args:
        planned: what it must hold; None in a finished build.

    Returns:
        Integers only: the metrics of ``measure.examples``, the example's ``source``, ``line`` and
        ``sequence``, the halves of its digest, and with a plan how it differs from it.
    """
    if context.task == "rm":
        both = sides(table, context)
        frame = measure.pairs(table, both, context)
        digest = _halves(digests(*((side.offsets, side.ids) for side in both.values())))
    else:
        found = unlay(table, context)
        frame = measure.singles(found, context)
        digest = _digests(found)
    places = _places(table, sources)
    count = len(frame)
    frame = frame.with_columns(
        pl.Series(name, _fitted(places[name].to_numpy(), count, -1)) for name in places.columns
    ).with_columns(pl.Series("digest_a", digest[0]), pl.Series("digest_b", digest[1]))
    if "n_labelled_after_error" in frame.columns:
        only = [i for i, first in enumerate(sources.first_error) if first]
        known = pl.col("source").is_in(only)
        after = pl.when(known).then(pl.col("n_labelled_after_error")).otherwise(0)
        frame = frame.with_columns(after.alias("n_labelled_after_error"))
    if planned is not None:
        frame = _against_plan(frame, table, planned, digest)
    return frame.with_columns(pl.all().cast(pl.Int64))


def rows(table: pa.Table, context: Context) -> pl.DataFrame:
    """One row of metrics per training row of a record batch; integers only."""
    return measure.rows(table, context).with_columns(pl.all().cast(pl.Int64))


def columns_differ(schema: pa.Schema, context: Context) -> int:
    """How many columns a shard lacks, or has with another type than they are declared with."""
    names = list(REQUIRED[context.task])
    names += ["seq_lengths", "row_ids"] if context.layout == "packed" else ["row_id"]
    if context.layout == "padded":
        tails = ("chosen_attention_mask", "rejected_attention_mask")
        names += tails if context.task == "rm" else ["attention_mask"]
    missing = [name for name in names if name not in schema.names]
    other = [field for field in schema if TYPES.get(field.name) != field.type]
    return len(missing) + len(other)


def totals(table: pa.Table) -> dict[str, int]:
    """Stored ids, padding included, and trained tokens of a record batch."""
    kinds = [n for n in ("input_ids", "chosen_ids", "rejected_ids") if n in table.schema.names]
    stored = sum(int(numbers(whole(table.column(name)))[0][-1]) for name in kinds)
    trained = 0
    if "labels" in table.schema.names:
        trained = int((numbers(whole(table.column("labels")))[1] != IGNORED).sum())
    return {"stored": stored, "trained": trained}


def groups(table: pa.Table) -> Iterator[pa.Table]:
    """The table in pieces of about a million tokens, each column in one chunk."""
    batches = table.to_batches()
    tokens = sum(chunk.nbytes for chunk in batches) // 8
    each = max(1, GROUP_TOKENS * len(batches) // max(tokens, 1))
    for start in range(0, len(batches), each):
        yield pa.Table.from_batches(batches[start : start + each]).combine_chunks()
