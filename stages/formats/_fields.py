"""What a row may say, and the columns that it may say it in: one answer for all formats.

A *field* is one meaning: the names that its column may have, and what a value must be. Columns of
one field that say the same count as read together. Where two say different things, reading the row
raises ``AskError`` with the options that settle it, so the build refuses that row. The same reading
of a file's sample asks about the file before anything is built, so that both ask the same.
"""

import contextlib
import itertools
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import AskError, RowError, UndecidedError
from stages.format import Format
from stages.rows import judgements, shapes, signals
from stages.rows.column_names import EMPTY, peek
from stages.rows.unread import ignore, mapped

NOTHING: Mapping[str, str] = MappingProxyType({})
FEW = 0.01  # of the rows: no more of them stop a file
Question = tuple[str, str]  # what is open, and the options that settle it
Names = tuple[str, ...]  # of one column, or of the two that are sides of one thing
TABLE_OF_ROWS = tomllib.loads(Path(__file__).with_name("columns.toml").read_text("utf-8"))


def columns_of(name: str) -> Columns:
    """What the rows of a format may say, and the columns that may say it: its place in the table
    ``columns.toml``."""
    found: dict[str, Names] = {}
    for what, names in TABLE_OF_ROWS[name].items():
        shared = map(columns_of, names.split()) if what == "with" else [{what: (*names.split(),)}]
        for one in shared:
            found |= one
    return found


def fields_of(name: str, **fits: Callable[[Any], bool]) -> "tuple[Field, ...]":
    """Meanings of a place in that table, each with what a value of it must be."""
    columns = columns_of(name)
    return tuple(Field(what, columns[what], fit) for what, fit in fits.items())


def couples(names: Names) -> Sequence[Names]:
    """Names of columns that stand next to each other, two and two."""
    return [*zip(names[::2], names[1::2], strict=True)]


def says(row: Row, name: str) -> bool:
    """Whether a column says anything."""
    return peek(row, name) not in EMPTY


def is_any(value: Any) -> bool:
    """Whether there is a value, whatever it is."""
    return True


def is_there(value: Any) -> bool:
    """Whether a value is anything but null."""
    return value is not None


def is_list(value: Any) -> bool:
    """Whether a value is a list."""
    return isinstance(value, list)


def listing(names: Sequence[str]) -> str:
    """Names in a sentence: ``a, b and c``."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]


def lists_of(node: Row, names: Sequence[str]) -> list[str]:
    """The keys under which an object has a list with anything in it."""
    return [name for name in names if isinstance(peek(node, name), list) and peek(node, name)]


def below(node: Row, names: Sequence[str]) -> Iterator[Row]:
    """The objects in such lists of a tree's node, and those below each of them."""
    for name in lists_of(node, names):
        for one in peek(node, name):
            if isinstance(one, dict):
                yield one
                yield from below(one, names)


def open_question(what: str, how: str, code: str = "bad_column") -> AskError:
    """The error of a row that leaves something open; its detail names the options too."""
    return AskError(code, f"{what}; {how[:1].lower()}{how[1:]}", how)


def required(column: str | None, detail: str, code: str = "bad_column") -> str:
    """A column that a row must have.

    Raises:
        RowError: it has none; ``detail`` says so.
    """
    if column is None:
        raise RowError(code, detail)
    return column


def meant(names: Sequence[str], columns: Mapping[str, str]) -> Sequence[str]:
    """The columns of one meaning that ``--map`` named; all of them where it named none."""
    return [name for name in names if name in columns] or names


def keeping_one(each: Sequence[Names], there: Sequence[str], before: str = "") -> str:
    """The options that leave out all columns but some, for each of these.

    Args:
        before: the place of the columns in the row: ``solutions[].``.
    """
    ways = [" ".join(ignore(before + name) for name in there if name not in one) for one in each]
    return " or ".join(filter(None, ways))


def is_letter(value: Any) -> bool:
    """Whether a value is a letter, and nothing else."""
    return isinstance(value, str) and len(said := value.strip(" .()")) == 1 and said.isalpha()


def are_options(value: Any) -> bool:
    """Whether a value is an object of texts, each under a letter."""
    named = isinstance(value, dict) and len(value) > 1 and max(map(len, value)) == 1
    return named and all(isinstance(one, str | None) for one in value.values())


class Field:
    """One meaning that columns of a row, or keys of an object inside it, may have.

    Args:
        what: they say, for a sentence: ``answer``.
        names: of the columns, the usual one first; couples where two columns say it together.
        fits: whether a value can say it.
        said: what a value says, however it is written.
        empty: an empty value says something too.
    """

    def __init__(
        self,
        what: str,
        names: Sequence[str | Names],
        fits: Callable[[Any], bool] = is_there,
        said: Callable[[Any], Any] = lambda value: value,
        *,
        empty: bool = False,
    ) -> None:
        self.what, self._fits, self._said, self._empty = what, fits, said, empty
        self._each: list[Names] = [(n,) if isinstance(n, str) else n for n in names]
        self.names = tuple(dict.fromkeys(itertools.chain(*self._each)))

    def that(self, fits: Callable[[Any], bool]) -> "Field":
        """The same field of values that fit more narrowly."""
        return Field(self.what, self._each, fits, self._said, empty=self._empty)

    def _meant(self, columns: Mapping[str, str]) -> Sequence[Names]:
        if not columns or columns.keys().isdisjoint(self.names):
            return self._each
        whole = [names for names in self._each if all(name in columns for name in names)]
        return whole or [names for names in self._each if not columns.keys().isdisjoint(names)]

    def _may_say(self, row: Row, name: str) -> bool:
        return name in row and self._fits(peek(row, name))

    def _says(self, row: Row, name: str) -> bool:
        if not self._may_say(row, name):
            return False
        value = peek(row, name)
        return self._empty or not (value in EMPTY or (type(value) is str and value.isspace()))

    def held(self, row: Row, columns: Mapping[str, str] = NOTHING) -> list[str]:
        """All columns that say it."""
        able = itertools.chain(*self._meant(columns))
        return [name for name in dict.fromkeys(able) if self._says(row, name)]

    def both(self, row: Row, columns: Mapping[str, str] = NOTHING) -> Names:
        """The columns that say it first, or else hold an empty value of this kind; else none."""
        there = [names for names in self._meant(columns) if names[0] in row]
        fit = [names for names in there if all(self._may_say(row, name) for name in names)]
        if not fit[1:]:  # as nearly always
            return fit[0] if fit else ()
        told = (names for names in fit if all(self._says(row, name) for name in names))
        return next(told, fit[0])

    def first(self, row: Row, columns: Mapping[str, str] = NOTHING) -> str | None:
        """The first of these columns."""
        return next(iter(self.both(row, columns)), None)

    def same(
        self, row: Row, mine: Names, columns: Mapping[str, str] = NOTHING, before: str = ""
    ) -> Names:
        """Columns that are read; others say what these say, and count as read too.

        Args:
            columns: those that ``--map`` named: nothing but these is meant.
            before: the place of the columns in the row: ``solutions[].``.

        Raises:
            AskError: one says something else.
        """
        able = [n for n in self._meant(columns) if n != mine and (n[0] in row or n[-1] in row)]
        told = able and (self._empty or all(says(row, name) for name in mine))
        for at, name in enumerate(mine if told else ()):
            names = (n[at] for n in able)
            others = [one for one in names if one not in mine and self._says(row, one)]
            said = self._said(peek(row, name)) if others else None
            differ = [one for one in others if self._said(peek(row, one)) != said]
            if differ:
                raise self._open(row, columns, mine, [name, *differ], before)
            for one in others:
                _ = row[one]  # read: the other column says it
        return mine

    def of(self, row: Row, columns: Mapping[str, str] = NOTHING, before: str = "") -> str | None:
        """The first column, of which others say the same; raises as ``same``."""
        return next(iter(self.same(row, self.both(row, columns), columns, before)), None)

    def needed(self, row: Row, columns: Mapping[str, str] = NOTHING, before: str = "") -> str:
        """The same; a column that holds something else is left to be refused for what it holds.

        Raises:
            RowError: there is none.
        """
        name = self.of(row, columns, before)
        if name is None:
            there = [one for one in itertools.chain(*self._meant(columns)) if one in row]
            name = next((one for one in there if peek(row, one) is not None), None)
            if there and name is None:
                raise RowError("bad_column", f"column {there[0]!r} says nothing")
        return required(name, f"there is no {self.what} column")

    def _open(
        self, row: Row, columns: Mapping[str, str], mine: Names, both: list[str], before: str
    ) -> AskError:
        """What ``both`` leave open, which say different things, and the options that settle it."""
        raw = {name: columns.get(name, name) for name in self.names}
        there = self.held(row, columns)
        whole = (names for names in self._meant(columns) if all(name in there for name in names))
        each = dict.fromkeys((mine, *whole))
        place = f" in {before.rstrip('.*[]')}" if before.strip(".*") else ""
        what = f"{listing([raw[name] for name in both])} could each be the {self.what}{place}"
        if before or mine[1:] or not columns.keys().isdisjoint(both):
            kept = [tuple(raw[name] for name in names) for names in each]
            ways = keeping_one(kept, [raw[name] for name in there], before)
        else:
            if self.what == "answer":  # the result alone is the shorter one
                both.sort(key=lambda name: -len(str(peek(row, name))))
            ways = " or ".join(mapped(name, name) for name in both)
        return open_question(what, f"Say which with {ways}")


def tried(way: Format, row: Row, options: FormatOptions) -> list[Example] | Exception:
    """A row's examples, or why it has none: such rows are refused by name when they are built."""
    try:
        return way.read(row, options)
    except (RowError, AttributeError, LookupError, TypeError, ValueError) as error:
        return error


def _asks(row: Row, ways: Iterable[Format], options: FormatOptions) -> AskError | None:
    """What a row asks when it is read, in the first way in which it says anything."""
    each = (tried(way, row, options) for way in ways)
    said = next((one for one in each if isinstance(one, AskError | list)), None)
    return said if isinstance(said, AskError) else None


class Asking(Format, abstract=True):
    """A format that asks about a file what it refuses its rows for.

    Its columns are those of its name in ``columns.toml``, where it gives no others.

    Attributes:
        _needs: the fields by which its rows are known; ``_never``: columns that none of them has.
        _words: what is said of the columns of these fields, which it names in braces; empty where
            they are only listed.
        _counted: the codes of rows that are asked about with their number, once all are read.
    """

    _needs: Sequence[Field] = ()
    _never: frozenset[str] = frozenset()
    _words: str = ""
    _counted: tuple[str, ...] = ("tie",)

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        if not abstract and not hasattr(cls, "columns"):
            cls.columns = columns_of(cls.name)
        super().__init_subclass__(abstract=abstract)

    def matches(self, row: Row) -> str | None:
        names = [field.both(row) for field in self._needs]
        if not all(names) or not self._never.isdisjoint(row):
            return None
        each = [*itertools.chain(*names)]
        return self._words.format(*each) if self._words else listing(each)

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> Question | None:
        """What some rows leave open, unless they are so few that they are left to be refused.

        The first question of the first such row: its answer may lead to another one.
        """
        options = FormatOptions(columns=columns, already_templated=True)
        ways = [self, *self.variants.values()]
        with contextlib.suppress(UndecidedError):
            variant, _ = self.settle(rows, options)
            ways = [self.variants[variant] if variant else self]
        errors = (_asks(row, ways, options) for row in rows)
        asked = [error for error in errors if error is not None and error.code not in self._counted]
        if len(asked) <= FEW * len(rows):
            return None
        end = open_question("", asked[0].remedy).detail  # the detail names the options too
        return asked[0].detail.removesuffix(end), asked[0].remedy


def telling(lists: Sequence[list[Any]]) -> str:
    """A key of the objects in some lists whose few short values tell most of one list apart."""
    objects = [given for given in lists if all(isinstance(one, dict) for one in given)]
    for key in objects[0][0] if objects else ():
        told = [[str(one.get(key)) for one in given] for given in objects]
        apart = sum(len({*some}) > 1 for some in told)
        few = len({one for some in told for one in some}) <= signals.FEW
        if few and 2 * apart > len(told) > signals.FEW and not signals.is_about(key):
            return str(key)
    return ""


_PLAIN = ("question", "prompt", "problem", "answer", "answers", "text")  # meanings of one text each


def often_listed(rows: Sequence[Row], format_: Format, left: Collection[str]) -> list[str]:
    """The columns that are read as one text, and are the JSON of a list of texts in most rows; but
    those that are ``left`` out."""
    meant = dict.fromkeys(name for one in _PLAIN for name in format_.columns.get(one, ()))
    each = {n: [judgements.listed_in(row.get(n)) for row in rows] for n in meant if n not in left}
    return [name for name, lists in each.items() if shapes.mostly(map(bool, lists))]
