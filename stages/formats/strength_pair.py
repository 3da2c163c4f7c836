"""Two answers and how strongly one is preferred: below 0 the first, above 0 the second.

``preference_strength`` and ``overall_preference`` run from -3 to 3 where they were published.
``strength_pair/positive-is-first`` reads the sign the other way round; where no strength is below
0, nothing shows which of the two it is. The strength is the margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError, UndecidedError
from stages.format import Format
from stages.formats import _pairs
from stages.formats._answers import require_no_third
from stages.formats._asked import Asking, one_of, two_of
from stages.kinds import PAIR
from stages.rows.watched import peek

_STEMS = ("response", "answer", "output", "completion")
_ENDS = (("1", "2"), ("a", "b"), ("A", "B"))
_SIDES = tuple(
    (f"{stem}{joint}{left}", f"{stem}{joint}{right}")
    for stem in _STEMS
    for left, right in _ENDS
    for joint in ("_", "")
)
_STRENGTHS = ("preference_strength", "overall_preference")


def _sides(row: Row) -> tuple[str, str] | None:
    """The columns of the two answers."""
    sides = (names for names in _SIDES if all(peek(row, name) is not None for name in names))
    return next(sides, None)


def _numbers(row: Row) -> Iterator[float]:
    """The strengths of a row that are numbers."""
    for name in _STRENGTHS:
        value = peek(row, name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield value


class _StrengthPair(Asking):
    """The format; ``first`` is the sign of a strength that prefers the first answer."""

    name = "strength_pair"
    kinds = (PAIR,)
    columns: Columns = {
        "answers": tuple(name for names in _SIDES for name in names),
        "strength": _STRENGTHS,
        **_pairs.BESIDE,
    }
    prompts = _pairs.PROMPTS

    def __init__(self, first: int = -1) -> None:
        self._first = first

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"negative-is-first": _StrengthPair(), "positive-is-first": _StrengthPair(1)}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        shown = [number for row in rows for number in _numbers(row)]
        if shown and min(shown) >= 0:
            least, most = (f"{value:g}" for value in (min(shown), max(shown)))
            what = (
                f"the strengths run from {least} to {most}, and none below 0 shows which answer "
                "they prefer: negative-is-first makes the second answer the better one in every "
                "row, positive-is-first the first"
            )
            raise UndecidedError(what, tuple(self.variants))
        other = "strength_pair/positive-is-first reads it the other way round"
        return "", f"below 0 the first answer is the better one; {other}"

    def matches(self, row: Row) -> str | None:
        names = _sides(row)
        strength = next((name for name in _STRENGTHS if name in row), None)
        if names is None or strength is None or isinstance(row[strength], (str, list, dict)):
            return None
        return f"{names[0]}, {names[1]} and {strength}"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        names = two_of(row, _SIDES, options.columns) or _sides(row)
        column = one_of(row, _STRENGTHS, options.columns, what="strength")
        if names is None:
            raise RowError("bad_column", "there are no two answers")
        require_no_third(row, names, options.columns)
        if column is None:
            raise RowError("bad_margin", f"nothing in {' or '.join(_STRENGTHS)} gives a strength")
        strength = _pairs.number(row[column], column)
        if strength == 0:
            raise RowError("tie", f"{column} is 0: the answers are equally good")
        answers = [row[name] for name in names]
        better, worse = answers if strength * self._first > 0 else answers[::-1]
        return [_pairs.pair(row, better, worse, options, own=(f"the {column}", abs(strength)))]


FORMAT = _StrengthPair()
