"""The texts of a batch that are compared with others: its questions, or all that it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns
from stages.columns import Ints
from stages.contract import Batch
from stages.errors import UsageError
from stages.kinds import Kind

ANSWER = "assistant"  # the role of a turn that is no question
TOOLS = "tools"  # a column: what a row says of the tools that may be called


def _inside(column: pa.Array) -> tuple[pa.Array, Ints]:
    """The values in the lists of a column, and the row of each."""
    offsets, values = columns.list_parts(column)
    return values, np.repeat(np.arange(len(column)), np.diff(offsets))


def _turns(column: pa.Array, whole: bool) -> tuple[pa.Array, Ints]:
    """Contents of turns, and the row of each; answers only where they are asked for, or where a
    row has nothing else."""
    turns, rows = _inside(column)
    values = dict(zip((one.name for one in turns.type), turns.flatten(), strict=True))
    if whole:
        return values["content"], rows
    asked: npt.NDArray[np.bool_] = pc.not_equal(values["role"], ANSWER).to_numpy(False)
    silent = np.bincount(rows[asked], minlength=len(column)) == 0
    wanted = asked | silent[rows]
    return values["content"].filter(pa.array(wanted)), rows[wanted]


def _texts(column: pa.Array) -> tuple[pa.Array, Ints]:
    """Texts of a column of texts or of lists of texts, and the row of each."""
    return _inside(column) if pa.types.is_list(column.type) else (column, np.arange(len(column)))


def _fields(column: pa.Array) -> tuple[pa.Array, Ints]:
    """What turns say beside their contents, calls of tools above all, and the row of each."""
    turns, rows = _inside(column)
    fields = turns.flatten()[turns.type.get_field_index("fields")]
    return fields.drop_null(), rows[fields.is_valid().to_numpy(False)]


def _columns(batch: Batch, kind: Kind, whole: bool) -> Iterator[tuple[pa.Array, Ints]]:
    for name in kind.texts if whole else kind.texts[:1]:
        column = batch.column(name)
        turns = column.type == columns.MESSAGES
        yield _turns(column, whole) if turns else _texts(column)
        if turns and whole:
            yield _fields(column)
    if whole and TOOLS in batch.schema.names:
        yield _texts(batch.column(TOOLS))


def texts(batch: Batch, kind: Kind, whole: bool) -> tuple[Sequence[str], Ints]:
    """Every text that is compared, in the order of the rows, and the row of each.

    Args:
        whole: all that a row says, with its tools and their calls; else what it asks: the turns
            that are no answers, or all of them where there are no others.

    Raises:
        UsageError: rows have no texts.
    """
    if not kind.texts:
        raise UsageError(
            f"Rows of {kind.words} cannot be compared with others: they have no texts.",
            "Give rows with texts, or leave --decontaminate and --near-dedup out.",
        )
    found: list[str] = []
    pieces: list[Ints] = []
    for values, rows in _columns(batch, kind, whole):
        found += [text or "" for text in values.to_pylist()]
        pieces.append(rows)
    rows = np.concatenate([np.zeros(0, np.int64), *pieces])
    if len(pieces) < 2:
        return found, rows
    order = np.argsort(rows, kind="stable")
    return [found[i] for i in order.tolist()], rows[order]
