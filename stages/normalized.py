"""Examples as columns: what normalize writes of each kind of row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stages import columns, weights
from stages.contract import Batch, Conversation, Message, StepChain, Tokens
from stages.strict_json import dump

IDENTITY = ("line", "sequence", "reject_code", "reject_detail")
WRITES = {
    "sft": ("messages", "turn_weights", "tools", "note"),
    "rm": ("chosen_messages", "rejected_messages", "tools", "margin", "note"),
    "prm": ("problem", "steps", "tail", "step_labels", "note"),
    "tokens": ("input_ids", "labels"),
}


def _turns(conversations: Sequence[Sequence[Message]]) -> pa.Array:
    """A list<message> column; flat, so that no object is made per row."""
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
    made: Mapping[str, Any],
) -> Batch:
    """A batch of sequences with their columns.

    Args:
        lines, sequences: where each comes from; ``refused``: code and detail of those that are.
        made: the columns of their kind.
    """
    arrays: dict[str, Any] = {
        "line": lines,
        "sequence": sequences,
        "reject_code": _spread({i: code for i, (code, _) in refused.items()}, len(lines)),
        "reject_detail": _spread({i: said for i, (_, said) in refused.items()}, len(lines)),
        **made,
    }
    typed = [pa.array(v, columns.TYPES[k]) if isinstance(v, list) else v for k, v in arrays.items()]
    return pa.RecordBatch.from_arrays(typed, schema=columns.schema(list(arrays)))


def _spread(values: dict[int, str], count: int) -> pa.Array:
    """A text column with values at a few places and nulls elsewhere."""
    if not values:
        return pa.nulls(count, pa.string())
    return pa.array([values.get(i) for i in range(count)], pa.string())


def _tools(found: Conversation | None) -> str | None:
    return dump(found.tools) if found and found.tools else None


def _sft(rows: list[Any]) -> dict[str, Any]:
    turns = [row.messages if row else () for row in rows]
    return {
        "messages": _turns(turns),
        "turn_weights": weights.of_turns(turns),
        "tools": [_tools(row) for row in rows],
    }


def _rm(rows: list[Any]) -> dict[str, Any]:
    chosen, rejected = ([row[side].messages if row else () for row in rows] for side in (0, 1))
    return {
        "chosen_messages": _turns(chosen),
        "rejected_messages": _turns(rejected),
        "tools": [_tools(row[0]) if row else None for row in rows],
        "margin": [row[2] if row else None for row in rows],
    }


def of_chains(
    rows: list[tuple[StepChain, list[str]] | None], raw: bool, separator: str
) -> dict[str, Any]:
    """The columns of chains, each beside its steps as the row has them."""
    steps: list[list[str]] = []
    tails: list[str | None] = []
    for chain, written in (row or (None, []) for row in rows):
        if chain is None or not raw:
            steps.append(chain.steps if chain else [])
            tails.append(None)
        elif chain.pieces is not None:
            steps.append(chain.pieces[:-1])
            tails.append(chain.pieces[-1])
        else:
            steps.append(_one_text(chain.problem, written, separator))
            tails.append("")
    chains = [row[0] if row else None for row in rows]
    return {
        "problem": [chain.problem if chain else None for chain in chains],
        "steps": steps,
        "tail": tails,
        "step_labels": [chain.labels if chain else [] for chain in chains],
    }


def _one_text(problem: str, steps: list[str], separator: str) -> list[str]:
    """The pieces of one text from a problem and steps given as a list: the steps as written, with a
    separator where the row has no line break between them."""
    pieces, before = [], problem
    for number, step in enumerate(steps):
        between = separator if number else "\n"
        broken = before.endswith("\n") or step.startswith("\n")
        pieces.append(step if broken else f"{between}{step}")
        before = step
    return [problem + pieces[0], *pieces[1:]]


def _tokens(rows: list[Tokens | None]) -> dict[str, Any]:
    return {
        "input_ids": [row.ids if row else [] for row in rows],
        "labels": [row.labels if row else [] for row in rows],
    }


FILL: dict[str, Callable[[list[Any]], dict[str, Any]]] = {
    "sft": _sft,
    "rm": _rm,
    "tokens": _tokens,
}
