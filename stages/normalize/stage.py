"""Normalize: the only place where a row's dict becomes columns.

It is also the only place where a row may become several sequences, and where a row is refused
for its content. Every row comes out once: as the rows of one or more sequences, or as a row
whose reject columns are filled.
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from stages import formats, kinds
from stages.chat_template import reasoning, spelling
from stages.chat_template.printed_fields import EVERY
from stages.contract import Batch, Example, FormatOptions, Record, Refused, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _inside
from stages.normalize import overlap_search, signatures
from stages.normalize.outlines import Outlines
from stages.normalize.overlap import Likeness, Search
from stages.rows import carried, examples, groups, loss_mask, selection, stop_text, unread
from stages.rows.carried import IDENTITY, Carried, Tally, batch_of
from stages.rows.column_names import Watched
from stages.rows.selection import AND_QUESTION, Selection, renamed, replaced


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
        drops_greeting: turns of the assistant before the first of the user are left out.
        group_by: what decides which rows are on one side of a split (``rows.groups``); None where
            rows are not split.
        carried: what is kept of rows because a build chooses by it.
        search: the evaluations that rows are searched for (``overlap.search``); None without any.
        likeness: what the likeness of rows is estimated from; None where they are not compared.
        leave: columns that are left out although they may change what is trained.
        offers_tools: the template prints the tools of a row.
        spelled: values in the arguments of calls that the template prints as Python spells them.
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
    tally: Tally = field(default_factory=Tally, compare=False)
    stop_text: str = stop_text.KEEP
    drops_greeting: bool = False
    step_separator: str = "\n"
    group_by: str | None = None
    carried: Carried = field(default_factory=Carried)
    search: Search | None = None
    likeness: Likeness | None = None
    leave: frozenset[str] = frozenset()
    offers_tools: bool = False
    spelled: spelling.Spelled = frozenset()

    def __post_init__(self) -> None:
        """Columns that were found count as named by ``--map`` in everything that reads rows."""
        object.__setattr__(self, "options", self.format.told(self.options))

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
        searched = () if self.search is None else (overlap_search.NAME,)
        alike = () if self.likeness is None else tuple(name for name, _ in self.likeness.columns)
        asked = grouped + self.carried.columns + searched + alike
        return IDENTITY + self.example_kind.columns + asked

    def _ready(self, example: Example | RowError) -> tuple[list[str], list[Any]]:
        """The notes of an example, and the sequences that it becomes."""
        if isinstance(example, RowError):
            raise example
        if isinstance(example, Refused):
            raise RowError(example.code, example.detail)
        asked = self.example_kind.turns(example)[:1] if self.drops_greeting else ()
        greeted = any(map(loss_mask.left_greeting, asked))
        odd = [*self.example_kind.notes(example, self), *(["greeting_dropped"] * greeted)]
        if stopped := stop_text.treat(example, self.stop_text):
            odd = [stopped, *odd]
        if self.spelled and spelling.holds(self.example_kind.turns(example), self.spelled):
            odd = [*odd, spelling.NOTE]
        if self.offers_tools and self._calls_undeclared(example):
            odd = [*odd, carried.UNDECLARED]
        moves = self.strip_reasoning or self.reasoning != reasoning.FIELD
        for turns in self.example_kind.turns(example) if moves else ():
            if self.strip_reasoning:
                reasoning.strip(turns)
            else:
                reasoning.place(turns, self.reasoning)
        ready = self.example_kind.ready(example, self)
        if self.printed.isdisjoint((examples.FIELD, EVERY)):  # results are told apart by places
            first, *others = self.example_kind.turns(example) or ((),)
            for side in others or ((),):  # a pair's answers stand behind their prompt
                examples.require_order(first, side)
        return odd, ready

    def _calls_undeclared(self, example: Any) -> bool:
        """Whether a call names no tool of its row; a rejected answer may do that."""
        turns = self.example_kind.turns(example)[:2]
        return bool(turns) and carried.calls_undeclared([*itertools.chain(*turns)], example.tools)

    def restart(self) -> None:
        """Begin another tally."""
        # The dataclass is frozen, since it belongs to the recipe; only what is counted is replaced.
        object.__setattr__(self, "tally", Tally())

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
        if formats.AND in self.format.name:
            self.tally.formats.update(formats.fitting(self.format, row))
        self._account(watched, examples)
        return examples

    def _examples(self, row: Watched) -> list[Example]:
        try:
            examples = _inside.settled(self.format.read(row, self.options), row, self.options)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            detail = f"not shaped like {self.format.name}: {type(error).__name__}: {error}"
            raise RowError("malformed_row", detail) from error
        if not examples:
            raise RowError("no_examples", "the format made no example from this row")
        return examples

    def _account(self, row: Watched, examples: Sequence[Example]) -> None:
        """Count what the examples leave out of the row, or refuse the row for it."""
        left = self._leaving.of(row, examples)
        if not left:
            return
        read = unread.ReadRow(row, examples)
        for one in left:
            if self._leaving.is_open(one.path) and (why := unread.asked(one, self.kind, read)):
                raise why
        for one in left:
            if one.path not in self.carried.paths:
                self.tally.add(one.path, *one.values)

    def _account_replaced(self, data: Row) -> None:
        """Count what ``--map`` replaced."""
        if self.options.columns:
            found = replaced(self.selection.read(data), self.options.columns)
            for name, values in unread.by_path(found).items():
                self.tally.add(name, *values)

    @functools.cached_property
    def decided(self) -> frozenset[str]:
        """Columns that were used, so that they do not count as left out."""
        return self.selection.decided | {(self.group_by or "").removesuffix(AND_QUESTION)}

    @functools.cached_property
    def _leaving(self) -> unread.Leaving:
        columns = self.options.columns
        named = formats.settled_by(self.format, columns).union(columns.values(), self.leave)
        inside = selection.inside(columns, self.carried.paths)
        return unread.Leaving(columns, self.selection, named, self.decided, inside, self.printed)

    @functools.cached_property
    def _outlines(self) -> Outlines | None:
        """The outlines of rows, where each row is one sequence."""
        passed = self.kind.passes_on and self.format.passes_on
        return Outlines(self) if passed and not self.fans_out else None

    def rows(self, records: Sequence[Record]) -> Sequence[Row | None]:
        """Rows that may have an outline, as their format reads them; None for any other."""
        rows = [one.data for one in records]
        mapping = self.options.columns
        if not mapping and not self.selection.ignore and not self.selection.roles:
            return rows
        replaced = {name for name, source in mapping.items() if name != source}
        fits = (row if row is not None and replaced.isdisjoint(row) else None for row in rows)
        return [None if row is None else renamed(self.selection.read(row), mapping) for row in fits]

    def read_marked(self, row: Row) -> tuple[Batch, list[str], list[str]] | None:
        """What becomes of a row whose texts are marks: its columns, its notes, and the columns that
        are left out; None where it is refused, or leaves out what is inside of one."""
        reading = replace(self, tally=Tally())
        try:
            [example] = reading._read(row)
            notes, [ready] = reading._ready(example)
        except (RowError, ValueError):
            return None
        left = [*reading.tally.rows]
        if not row.keys() >= {*left}:
            return None
        filled = self.kind.filled([ready], self)
        made = batch_of([0], [-1], refused={}, own_columns=filled)
        return made.select([*filled]), notes, left

    def __call__(self, records: Sequence[Record]) -> Batch:
        batch = self._normalized(records)
        if self.carried.columns:
            kind = self.example_kind
            # The steps of a raw PRM row begin with its problem.
            texts = kind.texts[1:] if self.raw and kind.marks else kind.texts
            batch = carried.put(batch, self.carried, texts, kind.compares, records)
        if self.search is not None:
            batch = overlap_search.put(batch, self.example_kind, self.search)
        if self.likeness is not None:
            batch = signatures.put(batch, self.example_kind, self.likeness)
        if self.group_by is None:
            return batch
        return groups.put(batch, self.group_by, lambda: self.example_kind.questions(batch), records)

    def _normalized(self, records: Sequence[Record]) -> Batch:
        records = self._selected(records)
        found = None if self._outlines is None else self._outlines.batch(records)
        if found is None:
            return self._one_by_one(records)
        numbers, batch = found
        if len(numbers) == len(records):
            return batch
        left = sorted({*range(len(records))}.difference(numbers))
        others = self._one_by_one([records[number] for number in left])
        # Without fan-out each record is one row, whatever becomes of it.
        order = np.argsort([*numbers, *left])
        together = pa.Table.from_batches([batch, others]).take(pa.array(order))
        return together.combine_chunks().to_batches()[0]

    def _selected(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that ``--where`` takes, and those that could not be parsed."""
        if not self.selection.where:
            return records
        taken = []
        for one in records:
            if one.data is None or self.selection.takes(one.data):
                taken.append(one)
            elif lacking := self.selection.lacking(one.data):
                self.tally.lacking[lacking] += 1
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
            examples: Sequence[Example | RowError]
            try:
                if record.data is None:
                    raise RowError(*(record.error or ("bad_json", "no object")))
                examples = self._read(self._row(record, record.data))
                self._account_replaced(record.data)
            except RowError as error:
                examples = [error]
            for example in examples:
                try:
                    odd, ready = self._ready(example)
                except RowError as error:
                    named = {**self.format.renamed, **self.options.columns}
                    detail = selection.told_raw(error, named)
                    refused[len(rows)] = error.code, detail
                    rows.append(None)
                    continue
                if odd:
                    odd_rows[len(rows)] = odd
                rows += ready
            count = len(rows) - first
            lines += [record.line] * count
            sequences += range(count) if self.fans_out else [-1] * count
        kind = self.example_kind
        made = kind.filled(rows, self)
        if "note" in kind.columns:
            made["note"] = carried.column(kind.texts, columns=made, odd_rows=odd_rows, lines=lines)
        return batch_of(lines, sequences, refused=refused, own_columns=made)
