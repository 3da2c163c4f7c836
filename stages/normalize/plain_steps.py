"""Rows that are a problem, its steps and their ratings alone: columns without an object.

The steps stand in a list, or in one text with a tag behind each. Every other row is read by its
format, one by one, which would give these the same columns.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from stages import columns
from stages.columns import make_list, offsets_of
from stages.contract import FormatOptions, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _steps
from stages.formats._ratings import ratings as rated_list
from stages.kinds import Kind, one_text
from stages.normalize.plain import Found, Reading, reading_beside
from stages.rows import examples, stop_text, templated

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize

Ratings = list[float | None]
_USUAL = {True: 1.0, False: 0.0, "+": 1.0, "-": 0.0, None: None}
_UNUSUAL = (int, float)  # which compare equal to a boolean, and are read with more care


@dataclass(slots=True)
class Chains:
    """Rows of steps: each row's problem and its steps as written and without blanks around them.

    Attributes:
        pieces: the row's own text between its tags, and what follows the last; None for lists.
        rewritten: the rows whose steps lose an indent or blank lines.
    """

    problems: list[str] = field(default_factory=list)
    steps: list[list[str]] = field(default_factory=list)
    written: list[list[str]] = field(default_factory=list)
    pieces: list[list[str] | None] = field(default_factory=list)
    ratings: list[Ratings] = field(default_factory=list)
    rewritten: list[int] = field(default_factory=list)

    def add(
        self, problem: str, written: list[str], ratings: Ratings, pieces: list[str] | None = None
    ) -> bool:
        """One more row; False where it is not plain."""
        steps = [step.strip() for step in written]
        if "" in steps or not any(rating is not None for rating in ratings):
            return False
        if problem[:1] in templated.FIRST and templated.read(problem) is not None:
            return False
        problem = problem.strip()
        if not problem or stop_text.ending_stop(steps[-1]):
            return False
        if not all(map(_is_joined, written, steps)) and examples.is_rewritten(written):
            self.rewritten.append(len(self.problems))
        self.problems.append(problem)
        self.steps.append(steps)
        self.written.append(written)
        self.pieces.append(pieces)
        self.ratings.append(ratings)
        return True

    def columns(self, normalize: Normalize) -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        steps = self.steps
        tails: list[str | None] = [None] * len(steps)
        if normalize.raw:
            raw = self._raw(normalize.step_separator)
            steps, tails = [texts for texts, _ in raw], [tail for _, tail in raw]
        return {
            "problem": pa.array(self.problems, columns.TYPES["problem"]),
            "steps": _lists(steps, columns.TYPES["steps"]),
            "tail": pa.array(tails, columns.TYPES["tail"]),
            "step_labels": _lists(self.ratings, columns.TYPES["step_labels"]),
        }

    def _raw(self, separator: str) -> list[tuple[list[str], str]]:
        """The steps as the row has them, and what follows them."""
        return [
            (one_text(problem, written, separator), "")
            if pieces is None
            else (pieces[:-1], pieces[-1])
            for problem, written, pieces in zip(
                self.problems, self.written, self.pieces, strict=True
            )
        ]

    def odd(self, normalize: Normalize) -> Mapping[int, list[str]]:
        """Rows of which stripping changes more than blanks between steps."""
        return {} if normalize.raw else {row: ["steps_rewritten"] for row in self.rewritten}


def _lists(values: Sequence[list[Any]], kind: pa.DataType) -> pa.ListArray:
    flat = pa.array([*itertools.chain.from_iterable(values)], kind.value_type)
    return make_list(offsets_of(np.fromiter(map(len, values), np.int64, len(values))), flat)


def _is_joined(written: str, step: str) -> bool:
    """Whether a step has no blanks around it but one line break before it and one behind it."""
    more = len(written) - len(step)
    if more == 0:
        return True
    return more == (written[0] == "\n") + (written[-1] == " ")


def _ratings(values: Any, count: int) -> Ratings | None:
    if type(values) is not list or len(values) != count:
        return None
    try:
        if any(type(value) in _UNUSUAL for value in values):
            return rated_list(values, count, "")
        return [_USUAL[value] for value in values]
    except (KeyError, TypeError, RowError):
        return None


def _read_lists(rows: Sequence[Row], names: tuple[str, ...]) -> Found:
    """Rows with a list of steps and a list of ratings."""
    made, taken = Chains(), []
    for number, row in enumerate(rows):
        problem, steps, values = (row[name] for name in names)
        if type(problem) is not str or type(steps) is not list or {*map(type, steps)} != {str}:
            continue
        ratings = _ratings(values, len(steps))
        if ratings is not None and made.add(problem, steps, ratings):
            taken.append(number)
    if taken:
        yield taken, made


def _aligned(label: Any, pieces: list[str]) -> Ratings | None:
    """The ratings of a text that has a sign wherever another one has a tag."""
    if type(label) is not str or len(label) != sum(map(len, pieces)) + len(pieces) - 1:
        return None
    ratings, at = [], 0
    for piece in pieces[:-1]:
        stop = at + len(piece)
        sign = label[stop : stop + 1]
        if sign not in ("+", "-") or not label.startswith(piece, at):
            return None
        ratings.append(_USUAL[sign])
        at = stop + 1
    return ratings if label.endswith(pieces[-1]) else None


def _listed(label: Any, pieces: list[str]) -> Ratings | None:
    return _ratings(label, len(pieces) - 1)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Cuts a text at its tags.

    Attributes:
        tags: the first of them that stands in a text is the tag of the text.
        separator: before the first step; ``second``: before the second, where it has numbers.
    """

    tags: tuple[str, ...]
    separator: str
    second: str

    def __call__(self, text: str) -> tuple[str, list[str], list[str]] | None:
        """The problem, the steps, the pieces; None where one of them is not clear."""
        tag = next((tag for tag in self.tags if tag in text), None)
        if tag is None:
            return None
        pieces = text.split(tag)
        first = pieces[0]
        at = first.find(self.separator)
        # Where a text numbers more steps, which of them is the answer's first takes more care.
        again = first.find(self.separator, at + 1) >= 0 or self.second in first[at:]
        if at < 0 or again or pieces[-1].strip():
            return None
        return first[:at], [first[at:], *pieces[1:-1]], pieces


def _read_texts(
    rows: Sequence[Row],
    names: tuple[str, ...],
    cut: _Cut,
    rated: Callable[[Any, list[str]], Ratings | None],
) -> Found:
    """Rows with a text that has a tag behind each step."""
    made, taken = Chains(), []
    for number, row in enumerate(rows):
        text, label = (row[name] for name in names)
        parts = cut(text) if type(text) is str else None
        if parts is None:
            continue
        problem, steps, pieces = parts
        ratings = rated(label, pieces)
        if ratings is not None and made.add(problem, steps, ratings, pieces):
            taken.append(number)
    if taken:
        yield taken, made


def _wanted(format_: Format, options: FormatOptions) -> tuple[Any, Any] | None:
    """The names of the columns that a plain row has, and how such rows are read."""
    if format_.step_lists is not None:
        return format_.step_lists, _read_lists
    separator = options.prompt_separator
    second = re.sub(r"\b1\b", "2", separator, count=1)
    tags = (options.step_tag,) if options.step_tag else _steps.TAGS
    if second == separator:
        return None
    cut = _Cut(tags, separator, second)
    if format_.step_text is not None:
        return format_.step_text, functools.partial(_read_texts, cut=cut, rated=_listed)
    if format_.step_texts is not None:
        return format_.step_texts, functools.partial(_read_texts, cut=cut, rated=_aligned)
    return None


def reading_of(
    names: Sequence[str], format_: Format, kind: Kind, options: FormatOptions
) -> Reading | None:
    """How rows of rated steps are read."""
    wanted = _wanted(format_, options)
    if wanted is None:
        return None
    there = [[name for name in some if name in names] for some in wanted[0]]
    if any(len(some) != 1 for some in there):
        return None
    taken = tuple(some[0] for some in there)
    return reading_beside(taken, names, format_, kind, wanted[1])
