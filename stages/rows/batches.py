"""Batches of normalized rows: the columns that every kind has, and the columns of turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stages import columns
from stages.contract import Batch, Conversation, Message
from stages.files.strict_json import dump

IDENTITY = ("line", "sequence", "reject_code", "reject_detail")


def turns_column(conversations: Sequence[Sequence[Message]]) -> pa.Array:
    """A list<message> column, built from flat lists: a struct per turn would be slow to convert."""
    flat = [message for messages in conversations for message in messages]
    kinds = columns.MESSAGES.value_type
    data = (
        [message.role for message in flat],
        [message.content for message in flat],
        [dump(message.fields) if message.fields else None for message in flat],
        [message.trained for message in flat],
    )
    arrays = [pa.array(values, kinds.field(i).type) for i, values in enumerate(data)]
    lengths = np.fromiter(map(len, conversations), np.int64, len(conversations))
    turns = pa.StructArray.from_arrays(arrays, fields=list(kinds))
    return columns.make_list(columns.offsets_of(lengths), turns)


def batch_of(
    lines: list[int],
    sequences: list[int],
    refused: Mapping[int, tuple[str, str]],
    own_columns: Mapping[str, Any],
) -> Batch:
    """A batch of sequences with their columns.

    Args:
        lines, sequences: line and number of each sequence.
        refused: code and detail of the refused ones, by index.
        own_columns: the columns of their kind.
    """
    arrays: dict[str, Any] = {
        "line": lines,
        "sequence": sequences,
        "reject_code": _spread({i: code for i, (code, _) in refused.items()}, len(lines)),
        "reject_detail": _spread({i: detail for i, (_, detail) in refused.items()}, len(lines)),
        **own_columns,
    }
    typed = [pa.array(v, columns.TYPES[k]) if isinstance(v, list) else v for k, v in arrays.items()]
    return pa.RecordBatch.from_arrays(typed, schema=columns.schema(list(arrays)))


def _spread(values: dict[int, str], count: int) -> pa.Array:
    """A text column with values at a few places and nulls elsewhere."""
    if not values:
        return pa.nulls(count, pa.string())
    return pa.array([values.get(i) for i in range(count)], pa.string())


def tools_text(conversation: Conversation | None) -> str | None:
    """The tools of a conversation as JSON; None where it has none."""
    return dump(conversation.tools) if conversation and conversation.tools else None
