"""What parts have of a row beside its example, because a build chooses by it.

Only what is asked for is there: values of raw columns, and counts that nothing but normalize can
make. Limits and expressions are no part of it, so another limit encodes nothing again.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns
from stages.columns import Ints
from stages.contract import Batch, Conversation, Message, Record
from stages.files.line_block import dump
from stages.rows import examples
from stages.rows.dialects import MARKERS
from stages.rows.selection import lookup

VALUES, TURNS, CHARACTERS = "carried", "n_turns", "n_characters"
COUNTS = (TURNS, CHARACTERS)
KINDS = ("whole", "number", "text", "truth", "other")  # the fields of a value: one is not null
_FIELDS: Mapping[type, str] = {bool: "truth", int: "whole", float: "number", str: "text"}
_WHOLE = 2**63


@dataclass(frozen=True, slots=True)
class Carried:
    """What is asked for.

    Attributes:
        paths: of raw columns, dotted, as the file has them; sorted.
        counts: some of ``COUNTS``.
    """

    paths: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a part that it takes."""
        return ((VALUES,) if self.paths else ()) + self.counts


def _typed(value: Any) -> dict[str, Any]:
    """A value of any JSON type in the field of its type; in none where it is no value."""
    if value is None or (isinstance(value, float) and value != value):  # NaN: no number
        return {}
    kind = _FIELDS.get(type(value), "other")
    if kind == "whole" and not -_WHOLE <= value < _WHOLE:
        return {"number": float(value)}
    return {kind: True if kind == "other" else value}


def _read(lines: Sequence[int], paths: Sequence[str], records: Iterable[Record]) -> pa.ListArray:
    """The values at some paths of each line's row."""
    rows = ((record.line, record.data) for record in records if record.data is not None)
    found = {line: [lookup(row, path) for path in paths] for line, row in rows}
    absent = [None] * len(paths)
    values = [value for line in lines for value in found.get(line, absent)]
    offsets = np.arange(len(lines) + 1) * len(paths)
    typed = pa.array([_typed(value) for value in values], columns.CARRIED.value_type)
    return columns.make_list(offsets, typed)


def _turns(column: pa.ListArray) -> Ints:
    offsets, turns = columns.list_parts(column)
    own = pc.not_equal(turns.field("role"), "system").fill_null(True)
    return columns.count_per_row(offsets, own.to_numpy(zero_copy_only=False))


def _characters(column: pa.Array) -> Ints:
    """Characters of a column of texts, of lists of them, or of turns."""
    offsets, texts = texts_in(column)
    sizes = pc.fill_null(pc.utf8_length(texts), 0).to_numpy()
    return columns.sum_per_row(offsets, sizes)


def texts_in(column: pa.Array) -> tuple[Ints, pa.Array]:
    """Where each row's texts begin, and the texts, of a column of texts, of lists, or of turns."""
    if not pa.types.is_list(column.type):
        return np.arange(len(column) + 1), column
    offsets, values = columns.list_parts(column)
    return offsets, values.field("content") if pa.types.is_struct(values.type) else values


def _counted(batch: Batch, name: str, texts_of: Sequence[str], pairs: bool) -> pa.Array:
    """A count for each example; null where its kind has none."""
    texts = [columns.whole(batch.column(one)) for one in texts_of]
    if name == TURNS:
        texts = [one for one in texts if one.type == columns.MESSAGES]
    if not texts:
        return pa.nulls(batch.num_rows, columns.TYPES[name])
    counts = [(_turns if name == TURNS else _characters)(one) for one in texts]
    total = np.max(counts, axis=0) if pairs else np.sum(counts, axis=0)
    return pa.array(total)


def put(
    batch: Batch, asked: Carried, texts: Sequence[str], pairs: bool, records: Iterable[Record]
) -> Batch:
    """The batch with the columns that are asked for.

    Args:
        texts: columns of the texts of an example; ``pairs``: one for each side.
        records: the rows that the examples come from.
    """
    for name in asked.counts:
        batch = columns.put(batch, name, _counted(batch, name, texts, pairs))
    if asked.paths:
        lines: list[Any] = batch.column("line").to_pylist()
        batch = columns.put(batch, VALUES, _read(lines, asked.paths, records))
    return batch


@dataclass(slots=True)
class Tally:
    """Counts of what was ignored in the rows that became examples.

    Attributes:
        rows: rows with a value in a column, by column; ``bytes``: of those values, as JSON.
        filtered: rows that ``--where`` did not take; ``lacking``: for a column that is null, by it.
        formats: rows by the format that read them, where a file has several.
    """

    rows: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    filtered: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)

    def add(self, column: str, *values: Any) -> None:
        """Count one row, which has one value in a column, or several in a list of objects."""
        self.rows[column] += 1
        self.bytes[column] += sum(map(size_of, values))


def size_of(value: Any) -> int:
    """Bytes of a value as JSON."""
    return len(orjson.dumps(value, default=str))


# Batches of normalized rows: the columns that every kind has, and the columns of turns.


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
    whys = [refused.get(i, (None, None)) for i in range(len(lines))]
    arrays: dict[str, Any] = {
        "line": lines,
        "sequence": sequences,
        "reject_code": [code for code, _ in whys],
        "reject_detail": [detail for _, detail in whys],
        **own_columns,
    }
    typed = [pa.array(v, columns.TYPES[k]) if isinstance(v, list) else v for k, v in arrays.items()]
    return pa.RecordBatch.from_arrays(typed, schema=columns.schema(list(arrays)))


def tools_text(conversation: Conversation | None) -> str | None:
    """The tools of a conversation as JSON; None where it has none."""
    return dump(conversation.tools) if conversation and conversation.tools else None


# Notes: peculiarities of rows that are kept, counted by name and described in a sentence.


MARKED, UNDECLARED = "template_text", "undeclared_tool"
_TABLE = tomllib.loads(Path(__file__).with_name("notes.toml").read_text("utf-8"))
WORDS: Mapping[str, str] = _TABLE["words"]
WARNINGS = tuple(_TABLE["warnings"])
# "</s>" also ends a struck-through word in HTML, so in the middle of a text it is no sign.
_PATTERN = "|".join(re.escape(marker) for marker in MARKERS if marker != "</s>")
_JOINED = ", "


def noted(batch: Batch) -> dict[str, list[int]]:
    """The lines of the rows that have each note; each once, also of several sequences."""
    some = batch.filter(batch.column("note").is_valid())
    found: dict[str, set[int]] = {}
    both = (some.column(one).to_pylist() for one in ("line", "note"))
    for line, entry in zip(*both, strict=True):
        for name in entry.split(_JOINED):
            found.setdefault(name, set()).add(line)
    return {name: sorted(lines) for name, lines in found.items()}


def told(note: str, first: str = "") -> str:
    """What a note says, and the first row that has it."""
    return f"{note} ({WORDS.get(note, note)})" + (f"; see {first}" if first else "")


def calls_undeclared(turns: Sequence[Message], tools: Sequence[Any] | None) -> bool:
    """Whether a call that may be trained names a tool that the row does not declare: as data or,
    where it has none, in a system text."""
    made = (turn.fields for turn in turns if turn.trained is not False and turn.fields)
    calls = (call["function"] for fields in made for call in fields.get(examples.CALLS) or ())
    called = {str(one.get("name") or "") for one in calls}
    if not called:
        return False
    said = "\n".join(turn.content or "" for turn in turns if turn.role == "system")
    declared = {*map(examples.tool_name, tools)} if tools else said
    return any(name not in declared for name in called)


def _holding(values: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows of a column of texts, steps or turns hold a template's marker."""
    offsets, texts = texts_in(values if isinstance(values, pa.Array) else pa.array(values))
    if pa.types.is_null(texts.type):
        return np.zeros(len(offsets) - 1, bool)
    matches = pc.fill_null(pc.match_substring_regex(texts, _PATTERN), False)
    return columns.count_per_row(offsets, matches.to_numpy(zero_copy_only=False)) > 0


def column(
    texts: Iterable[str],
    columns: Mapping[str, Any],
    odd_rows: Mapping[int, Iterable[str]],
    lines: Sequence[int],
) -> pa.Array:
    """The notes of a batch's rows, those of one row joined by commas.

    Args:
        texts: the names of its columns of texts; ``columns``: all of its columns.
        odd_rows: notes that sequences have already, by index.
        lines: of each sequence.
    """
    masks = [_holding(columns[name]) for name in texts]
    marked = {int(row) for mask in masks for row in np.flatnonzero(mask)}
    each = ([*odd_rows.get(row, ()), *[MARKED] * (row in marked)] for row in range(len(lines)))
    return pa.array([_JOINED.join(names) or None for names in each], pa.string())
