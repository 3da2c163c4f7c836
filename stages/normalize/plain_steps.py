"""Rows that are a problem, its steps and their ratings alone: columns without an object.

The steps stand in a list, or in one text with a tag behind each. Every other row is read by its
format, one by one, which would give these the same columns.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stages import columns, contract, kinds
from stages.format import Format
from stages.formats import _steps, _turns
from stages.normalize import plain, turns
from stages.rows import examples, stop_text

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize

_USUAL = {True: 1.0, False: 0.0, "+": 1.0, "-": 0.0, None: None}
_USUAL_TYPES = frozenset(map(type, _USUAL))  # a number may equal a boolean


@dataclass(slots=True)
class Chains(turns.Made):
    """Rows of steps.

    Attributes:
        ready: each with its problem and steps stripped, and its steps as written.
        rewritten: the rows whose steps lose an indent or blank lines.
    """

    ready: list[tuple[contract.StepChain, list[str]]] = field(default_factory=list)
    rewritten: list[int] = field(default_factory=list)

    def add(
        self,
        problem: str,
        written: list[str],
        ratings: list[float | None],
        pieces: list[str] | None = None,
    ) -> bool:
        """One more row; False where it is not plain.

        Raises:
            RowError: it would train nothing, or something wrong.
        """
        if stop_text.read(problem) is not None:
            return False
        chain = examples.chain(contract.StepChain(problem, written, ratings, pieces))
        if stop_text.ending_stop(chain.steps[-1]):
            return False
        if not all(map(_is_joined, written, chain.steps)) and examples.is_rewritten(written):
            self.rewritten.append(len(self.ready))
        self.ready.append((chain, written))
        return True

    def columns(self, normalize: "Normalize") -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        filled = kinds.MEMBERS[kinds.STEPS].filled(self.ready, normalize)
        return {name: pa.array(values, columns.TYPES[name]) for name, values in filled.items()}

    def odd(self, normalize: "Normalize") -> Mapping[int, list[str]]:
        """Rows of which stripping changes more than blanks between steps."""
        return {} if normalize.raw else {row: ["steps_rewritten"] for row in self.rewritten}


def _is_joined(written: str, step: str) -> bool:
    """Whether a step has no blanks around it but one line break before it and one behind it."""
    more = len(written) - len(step)
    if more == 0:
        return True
    return more == (written[0] == "\n") + (written[-1] == " ")


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


def _rated(values: Any, count: int) -> list[float | None]:
    """One rating per step; usual ones are looked up, and others read with more care."""
    usual = (
        type(values) is list and len(values) == count and _USUAL_TYPES.issuperset(map(type, values))
    )
    if usual and all(value in _USUAL for value in values):
        return [_USUAL[value] for value in values]
    return _steps.ratings(values, count, "")


def _take_lists(made: Chains, problem: Any, steps: Any, values: Any) -> bool:
    """A row with a list of steps and a list of ratings."""
    if type(problem) is not str or type(steps) is not list or {*map(type, steps)} != {str}:
        return False
    return made.add(problem, steps, _rated(values, len(steps)))


def _take_text(made: Chains, text: Any, label: Any, cut: _Cut, listed: bool) -> bool:
    """A row with a text that has a tag behind each step.

    Args:
        listed: ``label`` is a list of ratings, not another text that has a sign for each tag.
    """
    parts = cut(text) if type(text) is str else None
    if parts is None:
        return False
    problem, steps, pieces = parts
    if listed:
        ratings = _rated(label, len(steps))
    else:
        ratings = _steps.aligned(pieces, _turns.text({"label": label}, "label"))
    return made.add(problem, steps, ratings, pieces)


def _wanted(format_: Format, options: contract.FormatOptions) -> tuple[Any, plain.Take] | None:
    """The names of the columns that a plain row has, and how such a row is taken."""
    if format_.step_lists is not None:
        return format_.step_lists, _take_lists
    separator = options.prompt_separator
    second = re.sub(r"\b1\b", "2", separator, count=1)
    tags = (options.step_tag,) if options.step_tag else _steps.TAGS
    names = format_.step_text or format_.step_texts
    if second == separator or names is None:
        return None
    listed = format_.step_text is not None
    return names, functools.partial(_take_text, cut=_Cut(tags, separator, second), listed=listed)


def reading_of(
    names: Sequence[str], format_: Format, kind: kinds.Kind, options: contract.FormatOptions
) -> plain.Reading | None:
    """How rows of rated steps are read."""
    wanted = _wanted(format_, options)
    taken = plain.only_one(wanted[0], names) if wanted else None
    if wanted is None or taken is None:
        return None
    return plain.reading_beside(taken, names, format_, kind, Chains, wanted[1])
