"""What sampled rows say beside what is read of them, before a build begins.

The same questions that refuse a row one by one are asked here once, with figures, so that a build
that would train something else than its rows say stops before its first row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stages import formats
from stages.contract import FormatOptions, Row
from stages.errors import AskError, RowError
from stages.format import Format
from stages.kinds import Kind
from stages.selection import Selection
from stages.unread import Unread, left_over, repeats, require_asked, size_of, texts_of
from stages.watched import Watched

MOST_OF_THE_TEXT = 0.5  # of a row's text in one column that nothing reads
LEAST_TEXT = 100  # characters a row of it; shorter texts are names, dates and numbers


@dataclass(slots=True)
class Column:
    """A column that nothing reads.

    Attributes:
        rows: sampled rows that have it; ``bytes``: of their values.
        values: some of them.
        asked: why it must not be left out without a question; None where it may be.
    """

    rows: int = 0
    bytes: int = 0
    values: list[Any] = field(default_factory=list)
    asked: AskError | None = None


@dataclass(slots=True)
class Survey:
    """What became of the columns of sampled rows.

    Attributes:
        rows: rows that the format could read.
        columns: those that nothing reads, by path.
        most: the column that holds most of the rows' text without being read; None for none.
    """

    rows: int = 0
    columns: dict[str, Column] = field(default_factory=dict)
    most: str | None = None

    def take(self, left: Unread) -> Column:
        """Count one row's value."""
        column = self.columns.setdefault(left.path, Column())
        column.rows += 1
        column.bytes += size_of(left.value)
        if len(column.values) < 1000:
            column.values.append(left.value)
        return column


def _text(value: Any) -> int:
    """Characters of text in a value, at any depth."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = value.values()
    return sum(map(_text, value)) if isinstance(value, (list, type({}.values()))) else 0


def survey(
    rows: Sequence[Row],
    format_: Format,
    kind: Kind,
    options: FormatOptions,
    selection: Selection,
) -> Survey:
    """Read some rows, and collect what is left over.

    Args:
        rows: as ``selection`` and ``--map`` give them.
    """
    result = Survey()
    settled = formats.settled_by(format_, options.columns)
    unread: Counter[str] = Counter()
    total = 0
    for row in rows:
        watched = Watched(row)
        try:
            examples = format_.read(watched, options)
        except (RowError, AttributeError, LookupError, TypeError, ValueError):
            continue  # told of by the build, by name
        result.rows += 1
        total += _text(row)
        for left in left_over(watched, examples, frozenset(), options.columns.values()):
            if left.path in selection.decided:
                continue
            column = result.take(left)
            if left.path not in settled and not repeats(left.value, texts_of(examples)):
                unread[left.path] += _text(left.value)
            if column.asked is None and left.path not in settled:
                try:
                    require_asked(left, kind, examples)
                except AskError as error:
                    column.asked = error
    for path, size in unread.most_common(1):
        long = size >= LEAST_TEXT * result.columns[path].rows
        if long and size > MOST_OF_THE_TEXT * total:
            result.most = path
    return result
