"""Two answers and a verdict: which is the better one, or how strongly one is preferred."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import AskError, RowError, UndecidedError
from stages.formats import _fields, _pairs
from stages.rows import signals
from stages.rows.column_names import peek
from stages.rows.judgements import is_tie, one_hot, side_of, spelled
from stages.rows.shapes import usual
from stages.rows.unread import differs_from

_STEMS = (
    "output response answer completion conversation candidate summary generation text human_ref"
).split()
_ENDS = (("1", "2"), ("0", "1"), ("a", "b"), ("A", "B"))


def _named(stems: Sequence[str], ends: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The columns of two answers: ``output_1`` and ``output_2``, ``output1`` and ``output2``."""
    ways = itertools.product(stems, ends, ("_", ""))
    return tuple((f"{stem}{joint}{a}", f"{stem}{joint}{b}") for stem, (a, b), joint in ways)


_PAIRS = _named(_STEMS, _ENDS)
_COLUMNS = _fields.columns_of("indexed_pair")
_CHOICES = _COLUMNS["choice"]
# Columns with a verdict in letters; under these names other texts are common, such as its reasons.
_VERDICTS = ("verdict", "judgment", "judgement", "judge_verdict", "comparison", "decision")
_SAID = (*_CHOICES, *_VERDICTS)
_WINNER = "winner"  # a name of one of the two, whatever it is, is looked for in their columns
# What the better answer's index is, by variant: where the first is better, and where the second.
_ORDERS = {"0-based": (0, 1), "1-based": (1, 2), "1-is-first": (1, 0)}


_PAIR = _fields.Field("answer", _PAIRS)
_LIST = _fields.Field(
    "list of answers", _COLUMNS["answers"], lambda one: isinstance(one, list) and len(one) == 2
)


def _ends(row: Row) -> tuple[str, ...]:
    """What the names of the answers' columns end in; nothing where several could be meant."""
    there = (pair for pair in _PAIRS if all(_fields.says(row, name) for name in pair))
    ends = {(left[-1], right[-1]) for left, right in there}
    ends = ends or {("0", "1")}  # a list
    return ends.pop() if len(ends) == 1 else ()


def _answers(row: Row, columns: Mapping[str, str]) -> list[Any]:
    """The two answers of a row.

    Raises:
        RowError: there are none; or two columns could each hold one, or there is a third.
    """
    names = _PAIR.same(row, _PAIR.both(row, columns), columns)
    listed = _LIST.of(row, columns)
    if names and listed not in columns:
        if listed and {*columns}.isdisjoint(names):
            if [peek(row, name) for name in names] != peek(row, listed):
                ways = _fields.keeping_one([names, (listed,)], (listed, *names))
                what = f"{' and '.join(names)}, and {listed}, could each be the answers"
                raise _fields.open_question(what, f"Say which with {ways}")
            _ = row[listed]  # read: the two columns say it
        _require_no_third(row, names, columns)
        return [_pairs.text_of(row[name], name) for name in names]
    listed = _fields.required(listed, _missing(row))
    answers = enumerate(row[listed])
    return [_pairs.text_of(one, f"{listed}[{place}]") for place, one in answers]


def _missing(row: Row) -> str:
    """What a row without two answers lacks: of two columns, the one that is null."""
    null = next((n for n in _PAIR.names if n in row and not _fields.says(row, n)), "")
    return f"{null} is null" if null else "there are no two answers to choose from"


def _sides(row: Row, columns: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the two answers, as the file calls them."""
    return tuple(columns.get(name, name) for name in _PAIR.both(row))


def _is_verdict(value: Any, row: Row, columns: Mapping[str, str] = _fields.NOTHING) -> bool:
    """Whether a value of a column that may hold any text names the better answer."""
    if not isinstance(value, (str, list)):
        return False
    return is_tie(value) or side_of(value, _sides(row, columns)) is not None


def _index(value: Any) -> int | None:
    """A value as the number that it is or spells."""
    number = float(value) if isinstance(value, bool) else spelled(value)
    return None if number is None or not number.is_integer() else int(number)


def tie(detail: str, column: str, value: Any) -> AskError:
    """The error of a row that prefers neither answer, and the option that leaves such rows out."""
    if isinstance(value, list) and one_hot(value) is None:  # a winner, and both sides
        column, value = column.partition(",")[0], value[0]
    return AskError("tie", detail, f"Leave such rows out with {differs_from(column, value)}")


def silent(row: Row, name: str, columns: Mapping[str, str]) -> RowError:
    """The error of a row that has no verdict, and the option that leaves such rows out.

    Args:
        name: of the column that says nothing; empty where the row has none.
    """
    what = "nothing says which answer is the better one"
    if not name:
        return RowError("bad_label", what)
    way = differs_from(columns.get(name, name), peek(row, name))
    return AskError("unrated_answer", what, f"Leave such rows out with {way}")


def _speaks(row: Row, name: str) -> bool:
    """Whether a column of a verdict says something of the answers: any text may stand there."""
    value = peek(row, name)
    return _fields.says(row, name) and (name in _CHOICES or _is_verdict(value, row))


def _names_one(row: Row, name: str) -> bool:
    """Whether a column can say which answer is the better one: a winner may have any name."""
    value = peek(row, name)
    if name == _WINNER and isinstance(value, str):
        return len(value) <= signals.SHORT
    return is_tie(value) or _is_verdict(value, row) or _index(value) in (0, 1, 2)


class _IndexedPair(_pairs.PairFormat):
    """Two answers and which is the better one: its index, letter or column's name, or ``A>B``.

    An index alone does not say whether it counts from 0 or from 1; the rows of a file together may.
    """

    name = "indexed_pair"
    columns: Columns = {**_COLUMNS, "answers": (*_PAIR.names, *_LIST.names)}
    ways = tuple(_ORDERS)

    def matches(self, row: Row) -> str | None:
        speaking = [name for name in _SAID if _speaks(row, name)]
        there = [name for name in _CHOICES if name in row] or speaking
        if not there or "chosen" in row:
            return None
        if speaking and not any(_names_one(row, name) for name in speaking):
            return None
        if names := _PAIR.both(row):
            return f"{names[0]}, {names[1]} and {there[0]}"
        listed = _LIST.first(row)
        return f"a list of two answers and {there[0]}" if listed else None

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> _fields.Question | None:
        names = [n for n in _fields.meant(_SAID, columns) if any(_speaks(row, n) for row in rows)]
        if len(names) < 2:
            return super().doubt(rows, columns)
        flags = " or ".join(f"--map label={name}" for name in names)
        return f"{' and '.join(names)} could each name the better answer", f"Say which with {flags}"

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        names = _fields.meant(_SAID, options.columns)
        each = (self._settled(rows, name, options.columns) for name in names)
        return next((one for one in each if one[0]), ("", "the better answer is named"))

    def _settled(
        self, rows: Sequence[Row], name: str, columns: Mapping[str, str]
    ) -> tuple[str, str]:
        """What the values of one column show."""
        rows = [row for row in rows if _speaks(row, name)]
        told = [peek(row, name) for row in rows]
        said = zip(usual(told), rows, strict=True)
        unnamed = [one for one in said if not is_tie(one[0]) and not _is_verdict(*one, columns)]
        # What is not an index at all is refused row by row, and is no reason to read it as one.
        seen = {index for value, _ in unnamed if (index := _index(value)) in (0, 1, 2)}
        if not seen:
            return "", ""
        flags = any(isinstance(value, bool) for value in told)
        ends = _ends(unnamed[0][1])
        words = f"the better answer's index is {' or '.join(sorted(map(str, seen)))}"
        if flags:
            words = "the choice is true or false"
        counts = Counter(_index(value) for value, _ in unnamed)
        rare = counts[0] <= min(counts[1], counts[2])  # as ties are
        shown = 2 in seen and (0 not in seen or (rare and ends == ("1", "2")))
        shown = shown or (seen == {1} and ends == ("1", "2"))
        if shown and not flags:
            none = ", and 0 is a tie" if 0 in seen else ""
            return "1-based", f"{words}: it counts from 1{none}"
        if not flags and seen <= {0, 1} and ends == ("0", "1"):
            return "0-based", f"{words}: it counts from 0"
        if 2 in seen:
            what = f"{words}: it counts from 1 and 0 is a tie, or from 0 and 2 is one"
            likelier = ("1-based", "0-based")[:: 1 if counts[0] <= counts[2] else -1]
            raise UndecidedError(what, likelier)
        able = tuple(way for way, order in _ORDERS.items() if seen <= {*order})
        able = tuple(way for way in able if way != "1-based" or not flags)
        ways = "an index from 0, an index from 1," if "1-based" in able else "an index from 0"
        what = f"{words}: that may be {ways} or a yes or no for the first answer"
        raise UndecidedError(what, able)

    def _better(self, value: Any, names: tuple[str, ...], column: str) -> int:
        """0 or 1: which answer is the better one.

        Args:
            column: of the value, as the file calls it.
        """
        if is_tie(value):
            raise tie(f"the answers are equally good ({value!r})", column, value)
        if (named := side_of(value, names)) is not None:
            return named
        index, order = _index(value), _ORDERS.get(self._way, ())
        if index is not None and index in order:
            return order.index(index)
        if index in (0, 2) and self._way.endswith("-based"):
            raise tie(f"{value!r} names neither answer", column, value)
        if not order and index in (0, 1, 2):
            ways = " or ".join(f"--format indexed_pair/{name}" for name in _ORDERS)
            what = f"{value!r} may be an index from 0, an index from 1, or a yes or no"
            raise RowError("bad_label", f"{what}; say which with {ways}")
        low, high = order or (0, 1)
        known = f"{low} and {high}, or A and B"
        raise RowError("bad_label", f"{value!r} names neither answer; they are {known}")

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        raw = options.columns
        answers = _answers(row, raw)
        _pairs.require_no_sided_scores(raw)
        names = _fields.meant(_SAID, raw)
        # Where no column names an answer, the first that says anything is refused for its value.
        said = [name for name in names if _speaks(row, name)]
        said = said or [name for name in names if _fields.says(row, name)][:1]
        if not said:
            raise silent(row, next((name for name in names if name in row), ""), raw)
        sides = _sides(row, raw)
        places = {self._better(row[name], sides, raw.get(name, name)) for name in said}
        if len(places) > 1:
            what = f"{' and '.join(said)} do not name the same answer"
            ways = " or ".join(f"--map label={name}" for name in said)
            raise _fields.open_question(what, f"Say which with {ways}", "bad_label")
        better = places.pop()
        own = _pairs.by_scores(row, better, raw)
        return [_pairs.pair(row, answers[better], answers[1 - better], options, own)]


def _require_no_third(row: Row, names: tuple[str, ...], columns: Mapping[str, str]) -> None:
    """Two answers of several are no pair that anybody chose.

    Raises:
        AskError: a column beside the two has the next number or letter.
    """
    known = (*names, *columns, *(path.partition(".")[0] for path in columns.values()))
    for third in (f"{names[0][:-1]}{end}" for end in "0123cCdD"):
        if third not in known and _fields.says(row, third):
            what = f"{third} could be a third answer besides {' and '.join(names)}"
            raise _fields.open_question(what, f"To leave it out, add --ignore {third}")


_STRONG = _named(("response", "answer", "output", "completion"), (*_ENDS[:1], *_ENDS[2:]))
_STRENGTHS = _fields.columns_of("strength_pair")["strength"]
_SIDES = _fields.Field("answer", _STRONG)
_STRENGTH = _fields.Field("strength", _STRENGTHS)


class _StrengthPair(_pairs.PairFormat):
    """Two answers and how strongly one is preferred: below 0 the first, above 0 the second.

    ``preference_strength`` and ``overall_preference`` run from -3 to 3 where they were published.
    ``strength_pair/positive-is-first`` reads the sign the other way round; where no strength is
    below 0, nothing shows which of the two it is. The strength is the margin.
    """

    name = "strength_pair"
    columns: Columns = {**_fields.columns_of("strength_pair"), "answers": _SIDES.names}
    _needs = (_SIDES, _STRENGTH.that(lambda value: not isinstance(value, (str, list, dict))))
    ways = ("negative-is-first", "positive-is-first")

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        values = [peek(row, name) for row in rows for name in _STRENGTHS]
        shown = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        if shown and min(shown) >= 0:
            least, most = (f"{value:g}" for value in (min(shown), max(shown)))
            none = f"the strengths run from {least} to {most}, and none below 0 shows which answer"
            both = "the second answer the better one in every row, positive-is-first the first"
            raise UndecidedError(f"{none} they prefer: negative-is-first makes {both}", self.ways)
        other = "strength_pair/positive-is-first reads it the other way round"
        return "", f"below 0 the first answer is the better one; {other}"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        names = _SIDES.same(row, _SIDES.both(row, options.columns), options.columns)
        column = _STRENGTH.of(row, options.columns)
        if not names:
            raise RowError("bad_column", "there are no two answers")
        _require_no_third(row, names, options.columns)
        if column is None:
            raise RowError("bad_margin", f"nothing in {' or '.join(_STRENGTHS)} gives a strength")
        strength = _pairs.number(row[column], column)
        if strength == 0:
            raw = options.columns.get(column, column)
            raise tie(f"{column} is 0: the answers are equally good", raw, row[column])
        answers = [row[name] for name in names]
        first = (strength > 0) == (self._way == "positive-is-first")
        better, worse = answers if first else answers[::-1]
        return [_pairs.pair(row, better, worse, options, own=(f"the {column}", abs(strength)))]


INDEXED = _IndexedPair()
TABLE = (INDEXED, _StrengthPair())
