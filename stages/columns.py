"""The columns by name and type, and the functions that read and write them.

A list column of Arrow is two flat arrays: the values of all rows, one row after another, and the
offsets at which each row starts (one more than there are rows). The stages compute on these two
arrays with numpy instead of looping over rows in Python.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.contract import Batch

IGNORED = -100  # a label that no loss reads

MESSAGES = pa.list_(
    pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("fields", pa.string()),  # JSON: what else the template may print
            ("trained", pa.bool_()),
        ]
    )
)
SEGMENTS = pa.list_(pa.struct([("text", pa.string()), ("kind", pa.uint8())]))
OUTLINE = pa.dictionary(pa.int32(), pa.string())
TEXTS = pa.list_(pa.string())
IDS = pa.list_(pa.int32())
WEIGHTS = pa.list_(pa.float32())
# Values of raw columns, each in the field of its JSON type: rows.carried.
CARRIED = pa.list_(
    pa.struct(
        [
            ("whole", pa.int64()),
            ("number", pa.float64()),
            ("text", pa.string()),
            ("truth", pa.bool_()),
            ("other", pa.bool_()),  # a list or an object, which is not kept
        ]
    )
)

OVERLAPS = pa.list_(
    pa.struct(
        [
            ("item", pa.int32()),
            ("share", pa.float64()),
            ("contained", pa.bool_()),
            ("match", pa.string()),
            ("said", pa.string()),
        ]
    )
)

TYPES: dict[str, pa.DataType] = {
    # where a row comes from: relative to its split, so that a part depends on bytes alone
    "line": pa.int64(),
    "sequence": pa.int32(),  # k of "#k"; -1 in formats that never fan out
    "row_id": pa.string(),
    "source": pa.string(),  # the name of the source that it is of, where sources have names
    # of stage files alone: where a row begins in its file (null where rows have no bytes), its text
    "offset": pa.int64(),
    "raw": pa.string(),
    # why a row leaves; null while it stays
    "reject_code": pa.string(),
    "reject_detail": pa.string(),
    "partial": pa.bool_(),  # another example of the same row was refused
    "note": pa.string(),  # a peculiarity of a row that is kept; counted
    "asked": pa.uint64(),  # the same by question, where groups that share one are joined
    "group": pa.uint64(),  # rows that are on one side of a split, where there is one: rows.groups
    # what a build chooses examples by, where it asks for it: rows.carried
    "carried": CARRIED,
    "n_turns": pa.int32(),
    "n_characters": pa.int64(),
    "overlaps": OVERLAPS,  # what it shares with evaluation files, where some are named
    # of rows that are compared with each other: overlap.signatures
    "signature": pa.binary(512),
    "question_signature": pa.binary(512),
    # after normalize
    "messages": MESSAGES,
    "chosen_messages": MESSAGES,
    "rejected_messages": MESSAGES,
    "turn_weights": WEIGHTS,  # empty where every trained turn has weight 1
    "tools": pa.string(),
    "margin": pa.float32(),
    "problem": pa.string(),
    "system": pa.string(),
    "steps": pa.list_(pa.string()),
    "tail": pa.string(),
    "step_labels": pa.list_(pa.float32()),
    # after render and mark
    "segments": SEGMENTS,
    "segment_weights": WEIGHTS,
    "chosen_segments": SEGMENTS,
    "rejected_segments": SEGMENTS,
    # of rows whose template is compiled, instead of segments: what the template prints (see
    # chat_template.outline), and the row's own texts that belong between it
    "outline": OUTLINE,
    "texts": TEXTS,
    "chosen_outline": OUTLINE,
    "chosen_texts": TEXTS,
    "rejected_outline": OUTLINE,
    "rejected_texts": TEXTS,
    "rendered": pa.string(),  # "compiled" or "jinja": which path ran
    # after encode
    "input_ids": IDS,
    "labels": IDS,
    "loss_weights": WEIGHTS,
    "folded": IDS,  # input_ids and labels in one column, see fold
    "chosen_ids": IDS,
    "rejected_ids": IDS,
    "prompt_length": pa.int32(),
    "step_positions": IDS,
    "length": pa.int32(),
    "trained": pa.int32(),
    "truncated": pa.int32(),
    "longer": pa.int32(),
    "merged_cuts": pa.int32(),
    "controls": pa.int32(),
    "digest": pa.binary(16),
    "encoded": pa.string(),  # "columns" or "segments": which path ran
    # training rows
    "seq_lengths": IDS,
    "row_ids": pa.list_(pa.string()),
    "sources": pa.list_(pa.string()),
    "attention_mask": pa.list_(pa.int8()),
    "chosen_attention_mask": pa.list_(pa.int8()),
    "rejected_attention_mask": pa.list_(pa.int8()),
    "chosen_token_type_ids": pa.list_(pa.int8()),  # of encoders that have such an input
    "rejected_token_type_ids": pa.list_(pa.int8()),
}

Ints = npt.NDArray[np.int64]


def put(batch: Batch, name: str, values: pa.Array) -> Batch:
    """Return the batch with one more column, of the declared type."""
    array = values if values.type == TYPES[name] else values.cast(TYPES[name])
    index = batch.schema.get_field_index(name)
    if index >= 0:
        return batch.set_column(index, name, array)
    return batch.append_column(name, array)


def put_all(batch: Batch, **values: pa.Array | npt.NDArray[np.generic]) -> Batch:
    """Return the batch with several more columns, by their names."""
    for name, column in values.items():
        batch = put(batch, name, pa.array(column))
    return batch


def schema(names: Sequence[str]) -> pa.Schema:
    """The Arrow schema of some columns."""
    return pa.schema([(name, TYPES[name]) for name in names])


def list_parts(column: pa.ListArray) -> tuple[Ints, pa.Array]:
    """Offsets (from 0) and the flat values of a list column without nulls."""
    # A slice of a column shares the buffers of the whole column, and its offsets do not start at 0.
    offsets = column.offsets.to_numpy().astype(np.int64)
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    return offsets - offsets[0], values


def numbers(column: pa.ListArray) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Offsets and flat values of a list<int32> column."""
    offsets, values = list_parts(column)
    return offsets, values.to_numpy(zero_copy_only=True)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of a column; copied only when it is in pieces."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def make_list(offsets: npt.NDArray[np.integer], values: pa.Array) -> pa.ListArray:
    """A list column from offsets (starting at 0) and flat values."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def offsets_of(lengths: npt.NDArray[np.integer]) -> Ints:
    """Offsets of consecutive runs of the given lengths, one longer than their number."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def sum_per_row(offsets: Ints, values: npt.NDArray[np.integer]) -> Ints:
    """Sum of the values of each run; 0 for an empty one."""
    # The sum of a run is the difference of two cumulative sums, which also works for empty runs.
    return np.diff(offsets_of(values)[offsets])


def count_per_row(offsets: Ints, mask: npt.NDArray[np.bool_]) -> Ints:
    """How many values of each run are true; cheap when few are."""
    if 4 * np.count_nonzero(mask) > len(mask):
        before = np.zeros(len(mask) + 1, np.int32 if len(mask) < 1 << 31 else np.int64)
        np.cumsum(mask, out=before[1:], dtype=before.dtype)
        return np.diff(before[offsets]).astype(np.int64)
    # searchsorted counts the true values before each offset; neighbours differ by those in the run.
    return np.diff(np.searchsorted(np.flatnonzero(mask), offsets))


def refuse(batch: Batch, rows: npt.NDArray[np.bool_], code: str, details: Sequence[str]) -> Batch:
    """Fill the reject columns of some rows; the first reason of a row stays.

    Args:
        details: one for each row that is True in ``rows``, in order.
    """
    if not rows.any():
        return batch
    open_rows = rows & batch.column("reject_code").is_null().to_numpy(zero_copy_only=False)
    texts = dict(zip(np.flatnonzero(rows).tolist(), details, strict=True))
    detail = [texts.get(i) for i in range(batch.num_rows)]
    mask = pa.array(open_rows)
    batch = put(batch, "reject_code", pc.if_else(mask, code, batch.column("reject_code")))
    chosen = pc.if_else(mask, pa.array(detail, pa.string()), batch.column("reject_detail"))
    return put(batch, "reject_detail", chosen)
