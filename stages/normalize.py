"""The door: the only place where a row's dict becomes columns.

It is also the only place where a row may become several sequences, and where a row is refused
for what it says. Every row comes out once: as the rows of one or more sequences, or as a row
whose reject columns are filled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stages import columns, examples, exchanges, reasoning, weights
from stages.contract import (
    Batch,
    Conversation,
    Example,
    ExchangeRows,
    Format,
    FormatOptions,
    Message,
    Pair,
    Record,
    Refused,
    Row,
    StepChain,
    TokenRows,
    Tokens,
)
from stages.errors import RowError
from stages.strict_json import dump

IDENTITY = ("line", "sequence", "reject_code", "reject_detail")
WRITES = {
    "sft": ("messages", "turn_weights", "tools", "note"),
    "rm": ("chosen_messages", "rejected_messages", "tools", "margin"),
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


def lookup(row: Row, path: str) -> Any:
    """The value at a dotted path (``answers.0.text``); None where there is none."""
    if path in row:
        return row[path]
    value: Any = row
    for key in path.split("."):
        if isinstance(value, list) and key.isascii() and key.isdigit():
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def renamed(row: Row, mapping: Mapping[str, str]) -> Row:
    """The row with the columns that ``--map name=source`` names."""
    if not mapping:
        return row
    taken = {source for source in mapping.values() if source not in mapping}
    named = {name: lookup(row, source) for name, source in mapping.items()}
    return {**{k: v for k, v in row.items() if k not in taken}, **named}


@dataclass(frozen=True)
class Normalize:
    """Rows of one format, for one task, as columns.

    Attributes:
        turn_by_turn: the model's template wants one example per trained turn.
        raw: PRM steps are the row's own text between its tags, not stripped steps.
        reasoning: the field in which the template looks for reasoning; None puts it into a
            ``<think>`` block of the answer.
        strip_reasoning: answers lose it instead.
        step_separator: stands between two steps of a PRM row, where the row has nothing there.
    """

    task: str
    format: Format
    options: FormatOptions
    train_on: str = "assistant"
    turn_by_turn: bool = False
    raw: bool = False
    reasoning: str | None = reasoning.FIELD
    strip_reasoning: bool = False
    step_separator: str = "\n"

    @property
    def kind(self) -> str:
        """Which columns the rows become: the task's, or token ids."""
        return "tokens" if isinstance(self.format, TokenRows) else self.task

    @property
    def fans_out(self) -> bool:
        return self.format.fans_out or (self.turn_by_turn and self.task == "sft")

    @property
    def writes(self) -> tuple[str, ...]:
        return IDENTITY + WRITES[self.kind]

    def _treat_reasoning(self, example: Example) -> None:
        conversations: tuple[list[Message], ...] = ()
        if isinstance(example, Conversation):
            conversations = (example.messages,)
        elif isinstance(example, Pair):
            conversations = (example.prompt, example.chosen, example.rejected)
        for turns in conversations:
            if self.strip_reasoning:
                reasoning.strip(turns)
            else:
                reasoning.place(turns, self.reasoning)

    def _ready(self, example: Example) -> list[Any]:
        if isinstance(example, Refused):
            raise RowError(example.code, example.detail)
        if self.strip_reasoning or self.reasoning != reasoning.FIELD:
            self._treat_reasoning(example)
        if isinstance(example, Conversation):
            ready = examples.conversation(example, self.train_on)
            return examples.turn_by_turn(ready) if self.turn_by_turn else [ready]
        if isinstance(example, Pair):
            return [(*examples.pair(example), example.margin)]
        if isinstance(example, Tokens):
            return [example]
        return [(examples.chain(example), example.steps)]

    def _read(self, row: Row) -> list[Example]:
        try:
            return self.format.read(row, self.task, self.options)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            detail = f"not shaped like {self.format.name}: {type(error).__name__}: {error}"
            raise RowError("malformed_row", detail) from error

    def _exchanges(self, records: Sequence[Record]) -> dict[str, Any] | None:
        """The columns of a batch of plain exchanges; None where a row or an option says more."""
        rows = [record.data for record in records if record.data is not None]
        if (
            not isinstance(self.format, ExchangeRows)
            or len(rows) != len(records)
            or self.options.columns
            or self.task != "sft"
            or self.fans_out
            or self.train_on == "all"
            or self.strip_reasoning
        ):
            return None
        found = exchanges.texts(rows, *self.format.exchange)
        return None if found is None else exchanges.as_columns(*found)

    def __call__(self, records: Sequence[Record]) -> Batch:
        plain = self._exchanges(records)
        if plain is not None:
            lines = [record.line for record in records]
            return _batch(lines, [-1] * len(lines), {}, plain)
        return self._one_by_one(records)

    def _one_by_one(self, records: Sequence[Record]) -> Batch:
        rows: list[Any] = []
        lines: list[int] = []
        sequences: list[int] = []
        refused: dict[int, tuple[str, str]] = {}
        for record in records:
            first = len(rows)
            try:
                if record.data is None:
                    raise RowError(*(record.error or ("bad_json", "no object")))
                row = renamed(record.data, self.options.columns)
                found = self._read(row)
                if not found:
                    raise RowError("no_examples", "the row holds no example")
            except RowError as error:
                refused[first] = (error.code, error.detail)
                rows.append(None)
                lines.append(record.line)
                sequences.append(0 if self.fans_out else -1)
                continue
            for example in found:
                try:
                    rows += self._ready(example)
                except RowError as error:
                    refused[len(rows)] = (error.code, error.detail)
                    rows.append(None)
            made = len(rows) - first
            lines += [record.line] * made
            sequences += range(made) if self.fans_out else [-1] * made
        return _batch(lines, sequences, refused, self._columns(rows))

    def _columns(self, rows: list[Any]) -> dict[str, Any]:
        if self.kind == "prm":
            return _prm(rows, self.raw, self.step_separator)
        return _FILL[self.kind](rows)


def _batch(
    lines: list[int],
    sequences: list[int],
    refused: Mapping[int, tuple[str, str]],
    made: Mapping[str, Any],
) -> Batch:
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
        "note": [examples.note(row) if row else None for row in rows],
    }


def _rm(rows: list[Any]) -> dict[str, Any]:
    chosen, rejected = ([row[side].messages if row else () for row in rows] for side in (0, 1))
    return {
        "chosen_messages": _turns(chosen),
        "rejected_messages": _turns(rejected),
        "tools": [_tools(row[0]) if row else None for row in rows],
        "margin": [row[2] if row else None for row in rows],
    }


def _prm(
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
    rewritten = [not raw and row is not None and examples.is_rewritten(row[1]) for row in rows]
    return {
        "problem": [chain.problem if chain else None for chain in chains],
        "steps": steps,
        "tail": tails,
        "step_labels": [chain.labels if chain else [] for chain in chains],
        "note": ["steps_rewritten" if changed else None for changed in rewritten],
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


_FILL: dict[str, Callable[[list[Any]], dict[str, Any]]] = {
    "sft": _sft,
    "rm": _rm,
    "tokens": _tokens,
}
