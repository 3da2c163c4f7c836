"""Normalize: the only place where a row's dict becomes columns.

It is also the only place where a row may become several sequences, and where a row is refused
for its content. Every row comes out once: as the rows of one or more sequences, or as a row
whose reject columns are filled.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from stages import formats, kinds
from stages.chat_template import reasoning
from stages.chat_template.printed_fields import EVERY
from stages.contract import Batch, Example, FormatOptions, Record, Refused, Row
from stages.errors import RowError
from stages.files.line_block import LineBlock, lines_of
from stages.format import Format
from stages.normalize import plain, plain_pairs
from stages.overlap import search, settings, signatures
from stages.rows import carried, examples, groups, selection, stop_text, unread
from stages.rows.carried import IDENTITY, Carried, batch_of
from stages.rows.column_names import EMPTY, Watched
from stages.rows.selection import AND_QUESTION, Selection, renamed, replaced, rest


def _require_kept(example: Example) -> None:
    """Raise the error of an example that its format has refused."""
    if isinstance(example, Refused):
        raise RowError(example.code, example.detail)


@dataclass(frozen=True)
class Normalize:
    """Rows of one format as columns.

    Attributes:
        kind: of the examples that the build's task wants.
        turn_by_turn: the model's template needs one example per trained turn.
        raw: PRM steps are the row's own text between its tags, not stripped steps.
        reasoning: the field from which the template prints reasoning; None puts reasoning into a
            ``<think>`` block of the answer.
        strip_reasoning: reasoning is removed from answers instead.
        selection: which rows and columns are read.
        printed: the fields of a turn that the chat template prints.
        tally: what was left out of the rows since ``restart``.
        stop_text: what to do with the text of a stop token at the end of an answer.
        group_by: what decides which rows are on one side of a split (``rows.groups``); None where
            rows are not split.
        carried: what is kept of rows because a build chooses by it.
        search: the evaluations that rows are searched for (``overlap.search``); None without any.
        likeness: what the likeness of rows is estimated from; None where they are not compared.
        step_separator: put between two steps of a raw PRM row that has no line break there.
    """

    kind: kinds.Kind
    format: Format
    options: FormatOptions
    train_on: str = "assistant"
    turn_by_turn: bool = False
    raw: bool = False
    reasoning: str | None = reasoning.FIELD
    strip_reasoning: bool = False
    selection: Selection = field(default_factory=Selection)
    printed: frozenset[str] = frozenset()
    tally: unread.Tally = field(default_factory=unread.Tally, compare=False)
    stop_text: str = stop_text.KEEP
    step_separator: str = "\n"
    group_by: str | None = None
    carried: Carried = field(default_factory=Carried)
    search: settings.Search | None = None
    likeness: settings.Likeness | None = None

    @functools.cached_property
    def example_kind(self) -> kinds.Kind:
        """The kind of the examples: the task's, or token ids where the rows contain those."""
        return kinds.load(kinds.TOKENS) if self.format.token_ids else self.kind

    @property
    def fans_out(self) -> bool:
        return self.format.fans_out or self.turn_by_turn

    @property
    def writes(self) -> tuple[str, ...]:
        grouped = groups.columns_of(self.group_by)
        searched = () if self.search is None else (search.NAME,)
        alike = () if self.likeness is None else tuple(name for name, _ in self.likeness.columns)
        asked = grouped + self.carried.columns + searched + alike
        return IDENTITY + self.example_kind.columns + asked

    def _treat_reasoning(self, example: Example) -> None:
        if not self.strip_reasoning and self.reasoning == reasoning.FIELD:
            return
        for turns in self.example_kind.turns(example):
            if self.strip_reasoning:
                reasoning.strip(turns)
            else:
                reasoning.place(turns, self.reasoning)

    def _ready(self, example: Example) -> tuple[list[str], list[Any]]:
        """The notes of an example, and the sequences that it becomes."""
        _require_kept(example)
        odd = self.example_kind.notes(example, self)
        if stopped := stop_text.treat(example, self.stop_text):
            odd = [stopped, *odd]
        self._treat_reasoning(example)
        ready = self.example_kind.ready(example, self)
        if self.printed.isdisjoint((examples.FIELD, EVERY)):
            first, *others = self.example_kind.turns(example) or ((),)
            for side in others or ((),):  # a pair's answers stand behind their prompt
                examples.require_order([*first, *side])
        return odd, ready

    def restart(self) -> None:
        """Begin another tally."""
        # The dataclass is frozen, since it belongs to the recipe; only what is counted is replaced.
        object.__setattr__(self, "tally", unread.Tally())

    def _row(self, record: Record, data: Row) -> Row:
        """A record's row as the format reads it.

        Raises:
            AskError: a typed table may have added some of its nulls, and no option says so.
        """
        row = self.selection.read(data)
        if record.typed:
            row = selection.settled(row, self.options.null_fields)
        return renamed(row, self.options.columns)

    def _read(self, row: Row) -> list[Example]:
        """A row's examples.

        Raises:
            RowError: it has none, or has columns that must not be left out without an option.
        """
        watched = Watched(row)
        examples = self._examples(watched)
        self.tally.formats.update(formats.fitting(self.format, row))
        self._account(watched, examples)
        return examples

    def _examples(self, row: Watched) -> list[Example]:
        try:
            examples = self.format.read(row, self.options)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            detail = f"not shaped like {self.format.name}: {type(error).__name__}: {error}"
            raise RowError("malformed_row", detail) from error
        if not examples:
            raise RowError("no_examples", "the format made no example from this row")
        return examples

    def _account(self, row: Watched, examples: Sequence[Example]) -> None:
        """Count what the examples leave out of the row, or refuse the row for it."""
        taken = (*self.options.columns.values(), *self.carried.paths)
        left = unread.left_over(row, examples, printed=self.printed, taken=taken)
        by = (self.group_by or "").removesuffix(AND_QUESTION)
        decided = {*self.selection.decided, by}
        left = [one for one in left if one.path not in decided]
        read = unread.ReadRow(row, examples)
        for one in left:
            if one.path not in self._settled:
                unread.require_asked(one, self.kind, read)
        for one in left:
            if one.path not in self.carried.paths:
                self.tally.add(one.path, *one.values)

    def _account_replaced(self, data: Row) -> None:
        """Count what ``--map`` replaced."""
        if self.options.columns:
            for name, value in replaced(self.selection.read(data), self.options.columns):
                if value not in EMPTY:
                    self.tally.add(name, value)

    @functools.cached_property
    def _settled(self) -> frozenset[str]:
        return formats.settled_by(self.format, self.options.columns)

    def read_again(self, record: Record) -> list[Example | RowError]:
        """A record's examples for the second reading: before it is decided which turns are trained.

        An example that is refused here is given as its error.
        """
        if record.data is None:
            return []
        examples: list[Example | RowError] = []
        for example in self._examples(Watched(self._row(record, record.data))):
            try:
                _require_kept(example)
                stop_text.treat(example, self.stop_text)
                self._treat_reasoning(example)
                examples.append(example)
            except RowError as error:
                examples.append(error)
        return examples

    @functools.cached_property
    def _may_be_plain(self) -> bool:
        """Whether rows that say no more than who says what have nothing done to them."""
        return (
            self.kind.plain
            and not self.options.columns
            and not self.selection.changes
            and not self.fans_out
            and self.train_on != "all"
            and not self.strip_reasoning
            and not self.group_by
        )

    @functools.cached_property
    def _reading_of(self) -> plain.ReadingOf:
        """How plain rows of the kind are read."""
        if self.kind.compares:
            return plain_pairs.reading_of
        if self.kind.marks:
            return functools.partial(plain_pairs.reading_of_steps, options=self.options)
        return plain.reading_of

    def _plain(self, records: Sequence[Record]) -> Iterator[tuple[list[int], Batch]]:
        """Batches of plain rows, each with their places among the records."""
        if not self._may_be_plain:
            return
        rows = (
            records.data()
            if isinstance(records, LineBlock)
            else [record.data for record in records]
        )
        for some in plain.find(rows, self.format, self.kind, self._reading_of):
            if some.rows:
                yield some.rows, self._columns(records, some)

    def _columns(self, records: Sequence[Record], some: plain.Plain) -> Batch:
        for column, values in some.unread.items():
            if any(f"{path}.".startswith(f"{column}.") for path in self.carried.paths):
                left = (one for value in values for one in rest(column, value, self.carried.paths))
                for path, value in left:
                    self.tally.add(path, value)
                continue
            for value in values:
                if value not in EMPTY:
                    self.tally.add(column, value)
        lines = lines_of(records, some.rows)
        made, odd = some.made.columns(self), some.made.odd(self)
        made["note"] = carried.column(self.kind.texts, columns=made, odd_rows=odd, lines=lines)
        return batch_of(lines, [-1] * len(lines), refused={}, own_columns=made)

    def __call__(self, records: Sequence[Record]) -> Batch:
        batch = self._normalized(records)
        if self.carried.columns:
            kind = self.example_kind
            # The steps of a raw PRM row begin with its problem.
            texts = kind.texts[1:] if self.raw and kind.marks else kind.texts
            batch = carried.put(batch, self.carried, texts, kind.compares, records)
        if self.search is not None:
            batch = search.put(batch, self.example_kind, self.search)
        if self.likeness is not None:
            batch = signatures.put(batch, self.example_kind, self.likeness)
        if self.group_by is None:
            return batch
        return groups.put(batch, self.group_by, lambda: self.example_kind.questions(batch), records)

    def _normalized(self, records: Sequence[Record]) -> Batch:
        pieces = list(self._plain(records))
        if len(pieces) == 1 and len(pieces[0][0]) == len(records):
            return pieces[0][1]
        taken = {number for numbers, _ in pieces for number in numbers}
        left = [number for number in range(len(records)) if number not in taken]
        others = self._one_by_one(self._selected([records[number] for number in left]))
        if not pieces:
            return others
        # Without fan-out each record is one row, whatever becomes of it.
        order = np.argsort(np.concatenate([*(numbers for numbers, _ in pieces), left]))
        together = pa.Table.from_batches([*(batch for _, batch in pieces), others])
        return together.take(pa.array(order)).combine_chunks().to_batches()[0]

    def _selected(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that ``--where`` takes, and those that could not be parsed."""
        if not self.selection.where:
            return records
        taken = [one for one in records if one.data is None or self.selection.takes(one.data)]
        self.tally.filtered += len(records) - len(taken)
        return taken

    def _one_by_one(self, records: Sequence[Record]) -> Batch:
        # Parallel lists with one entry per sequence; a refused row or example is one entry, None.
        rows: list[Any] = []
        lines: list[int] = []
        sequences: list[int] = []
        refused: dict[int, tuple[str, str]] = {}
        odd_rows: dict[int, list[str]] = {}
        for record in records:
            first = len(rows)
            try:
                if record.data is None:
                    raise RowError(*(record.error or ("bad_json", "no object")))
                examples = self._read(self._row(record, record.data))
                self._account_replaced(record.data)
            except RowError as error:
                examples = [Refused(error.code, error.detail)]
            for example in examples:
                try:
                    odd, ready = self._ready(example)
                except RowError as error:
                    refused[len(rows)] = (error.code, error.detail)
                    rows.append(None)
                    continue
                if odd:
                    odd_rows[len(rows)] = odd
                rows += ready
            count = len(rows) - first
            lines += [record.line] * count
            sequences += range(count) if self.fans_out else [-1] * count
        texts = self.example_kind.filled(rows, self)
        if "note" in self.example_kind.columns:
            texts["note"] = carried.column(
                self.example_kind.texts, columns=texts, odd_rows=odd_rows, lines=lines
            )
        return batch_of(lines, sequences, refused=refused, own_columns=texts)
