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

_WHOLE, _COUNT, _TEXT, _TRUTH = pa.int64(), pa.int32(), pa.string(), pa.bool_()


def _lists_of(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct(list(fields.items())))


# ``fields`` is JSON: what else the template may print.
MESSAGES = _lists_of(role=_TEXT, content=_TEXT, fields=_TEXT, trained=_TRUTH)
SEGMENTS = _lists_of(text=_TEXT, kind=pa.uint8())
OUTLINE = pa.dictionary(_COUNT, _TEXT)
TEXTS = pa.list_(_TEXT)
IDS = pa.list_(_COUNT)
WEIGHTS = pa.list_(pa.float32())
_FLAGS = pa.list_(pa.int8())
# Values of raw columns, each in the field of its JSON type: rows.carried. ``other`` says that it is
# a list or an object, which is not kept.
CARRIED = _lists_of(whole=_WHOLE, number=pa.float64(), text=_TEXT, truth=_TRUTH, other=_TRUTH)
OVERLAPS = _lists_of(item=_COUNT, share=pa.float64(), contained=_TRUTH, match=_TEXT, said=_TEXT)


def _each(kind: pa.DataType, names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names.split(), kind)


TYPES: dict[str, pa.DataType] = {
    # where a row comes from: relative to its split, so that a part depends on bytes alone; sequence
    # is the k of "#k", -1 in formats that never fan out; source, where sources have names
    "line": _WHOLE,
    "sequence": _COUNT,
    **_each(_TEXT, "row_id source"),
    # of stage files alone: where a row begins in its file (null where rows have no bytes), its text
    "offset": _WHOLE,
    "raw": _TEXT,
    # why a row leaves; null while it stays
    **_each(_TEXT, "reject_code reject_detail"),
    "partial": _TRUTH,  # another example of the same row was refused
    "note": _TEXT,  # a peculiarity of a row that is kept; counted
    # group: rows that are on one side of a split, where there is one: rows.groups; asked: the same
    # by question, where groups that share one are joined
    **_each(pa.uint64(), "asked group"),
    # what a build chooses examples by, where it asks for it: rows.carried; what an example shares
    # with evaluation files, where some are named; signatures of rows that are compared
    "carried": CARRIED,
    "n_turns": _COUNT,
    "n_characters": _WHOLE,
    "overlaps": OVERLAPS,
    **_each(pa.binary(512), "signature question_signature"),
    # after normalize; turn_weights is empty where every trained turn has weight 1
    **_each(MESSAGES, "messages chosen_messages rejected_messages"),
    "turn_weights": WEIGHTS,
    "margin": pa.float32(),
    **_each(_TEXT, "tools problem system tail"),
    "steps": TEXTS,
    "step_labels": WEIGHTS,
    # after render and mark
    **_each(SEGMENTS, "segments chosen_segments rejected_segments"),
    "segment_weights": WEIGHTS,
    # of rows whose template is compiled, instead of segments: what the template prints (see
    # chat_template.outline), and the row's own texts that belong between it; and which path ran
    **_each(OUTLINE, "outline chosen_outline rejected_outline"),
    **_each(TEXTS, "texts chosen_texts rejected_texts"),
    "rendered": _TEXT,  # "compiled" or "jinja"
    # after encode; folded: input_ids and labels in one column
    **_each(IDS, "input_ids labels folded chosen_ids rejected_ids step_positions"),
    "loss_weights": WEIGHTS,
    **_each(_COUNT, "prompt_length length trained truncated longer merged_cuts controls"),
    "digest": pa.binary(16),
    "encoded": _TEXT,  # "columns" or "segments": which path ran
    # training rows; token types are of encoders that have such an input
    "seq_lengths": IDS,
    **_each(TEXTS, "row_ids sources"),
    **_each(_FLAGS, "attention_mask chosen_attention_mask rejected_attention_mask"),
    **_each(_FLAGS, "chosen_token_type_ids rejected_token_type_ids"),
}

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]


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
    return offsets - offsets[0], column.values.slice(offsets[0], offsets[-1] - offsets[0])


def numbers(column: pa.ListArray) -> tuple[Ints, Ids]:
    """Offsets and flat values of a list<int32> column."""
    offsets, values = list_parts(column)
    return offsets, values.to_numpy(zero_copy_only=True)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array of a column; copied only when it is in pieces."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def make_segments(texts: Sequence[str], kinds: bytes) -> pa.StructArray:
    """The values of a column of segments, of all rows in one."""
    parts = [pa.array(texts, _TEXT), pa.array(np.frombuffer(kinds, np.uint8))]
    return pa.StructArray.from_arrays(parts, fields=list(SEGMENTS.value_type))


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


def count_per_row(offsets: Ints, mask: Bools) -> Ints:
    """How many values of each run are true; cheap when few are."""
    if 64 * np.count_nonzero(mask) <= len(mask):
        # The true values before each offset; neighbours differ by those in the run.
        return np.diff(np.searchsorted(np.flatnonzero(mask), offsets))
    found = np.zeros(len(offsets) - 1, np.int64)
    filled = np.flatnonzero(np.diff(offsets))  # a sum of nothing would be its first value
    found[filled] = np.add.reduceat(mask[: offsets[-1]], offsets[filled], dtype=np.int32)
    return found


def refuse(batch: Batch, rows: Bools, code: str, details: Sequence[str]) -> Batch:
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


def begins_of(*columns: npt.NDArray[np.generic]) -> Bools:
    """Where a new combination of values begins, in columns that are sorted together."""
    begins = np.ones(len(columns[0]), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins
