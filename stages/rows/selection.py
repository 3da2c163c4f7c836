"""Which rows and which of their columns are read, and who their roles mean: ``--where``,
``--ignore``, ``--role``, ``--null-fields``. All see the row before ``--map`` renames columns."""

import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from stages.contract import Row
from stages.errors import AskError, RowError, UsageError
from stages.rows import judgements, signals, speakers
from stages.rows.column_names import EMPTY
from stages.rows.words import RATING

AND_QUESTION = "+question"  # the end of a --group-by that joins groups which ask the same
_TOGETHER = ("[most]", "[mean]")  # of several paths, as one list
_OF_ALL = ("[best]", *judgements.CHOSEN, "[options]", "[first]", "[exchanges]", "[stopped]")
_TEXT = re.compile(r"(?P<column>[^=<>!]+?)\s*(?P<sign>!=|>=|<=|=|>|<)\s*(?P<value>.*)", re.DOTALL)
_ORDER: dict[str, Any] = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


def lookup(row: Row, path: str) -> Any:
    """The value at a dotted path (``answers.0.text``); None where there is none.

    ``answers[].score`` is the list of what each object of a list has there, ``scores[]`` a list
    itself, ``a.text,b.text`` the list of what several paths give; of three and more, the last ones
    may have nothing. Endings such as ``votes[most]`` make one value of a list (``judgements``).
    """
    if path in row:
        return row[path]
    if "," in path and not path.endswith((*_OF_ALL, *_TOGETHER)):
        values = [lookup(row, one) for one in path.split(",")]
        while len(values) > 2 and values[-1] in (None, ""):
            del values[-1]
        return values if any(value is not None for value in values) else None
    before, how = judgements.ended(path) if path.endswith("]") else (path, "")
    if how:
        value = lookup(row, before)
        joined = "," in before and path.endswith(_TOGETHER)
        return judgements.together([*judgements.flat(value)] if joined else value, how)
    here, each, behind = path.removesuffix("[]").partition("[].")
    value = row
    for key in here.split("."):
        value = signals.nested_in(value)
        if isinstance(value, list):
            value = value[int(key)] if _is_item(key, value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    if path.endswith("[]") or each:
        value = signals.nested_in(value)
    if not each:
        return value
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return None
    values = [lookup(one, behind) for one in value]
    return values if any(one is not None for one in values) else None


def parts_of(row: Row, paths: Iterable[str]) -> Iterator[str]:
    """The single paths of ``--map``: of ``a.text,b.text`` both, of ``votes[most]`` the votes."""
    for path in paths:
        yield from (path,) if path in row else map(judgements.bare, path.split(","))


@dataclass(frozen=True, slots=True)
class Condition:
    """One ``--where``: a column, a sign and a value.

    ``value`` is the JSON value of the text (``true``, ``1``); the text where it is not JSON."""

    column: str
    sign: str
    value: Any

    def holds(self, row: Row) -> bool:
        """Whether it is true of a row, and with ``[]`` in its path of each value in the list; false
        for a row without the column, whatever the sign."""
        value = lookup(row, self.column)
        if value is None:
            return self.sign == "=" and self.value is None
        each = judgements.flat(value, (None,)) if "[]" in self.column else (value,)
        return all(map(self._is_true_of, each))

    def _is_true_of(self, value: Any) -> bool:
        if self.sign in _ORDER:
            number = judgements.spelled(value)
            return number is not None and bool(_ORDER[self.sign](number, self.value))
        if isinstance(value, str) and not isinstance(self.value, str):
            same = value == orjson.dumps(self.value).decode()  # a number in a table of texts
        else:
            same = value == self.value and isinstance(value, bool) == isinstance(self.value, bool)
        return same == (self.sign == "=")


def condition(text: str) -> Condition:
    """Parse the text of ``--where``; UsageError where it is no column, sign and value."""
    match = _TEXT.fullmatch(text)
    if match is None:
        how = "For example --where label=true, or --where 'score>=4'."
        raise UsageError(f"--where {text!r} is not COLUMN=VALUE.", how)
    column, sign, operand = match.group("column", "sign", "value")
    try:
        value = orjson.loads(operand)
    except orjson.JSONDecodeError:
        value = operand
    if sign in _ORDER and type(value) not in (int, float):
        what = f"--where {text!r} compares with {operand!r}, which is not a number."
        raise UsageError(what, f"Use {column}={operand} for a text.")
    return Condition(column, sign, value)


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions of ``--where`` and the paths of ``--ignore``.

    Attributes:
        where: all of them must be true of a row.
        ignore: columns that are removed; ``messages[].name`` is a key of every object in a list,
            ``tree.**.state`` a key of every object in a tree, at any depth.
        filtered: columns that filters of examples read.
        roles: who a name of a role means, wherever a turn has it.
    """

    where: tuple[Condition, ...] = ()
    ignore: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)

    def takes(self, row: Row) -> bool:
        """Whether the row is to be used."""
        return all(condition.holds(row) for condition in self.where)

    def lacking(self, row: Row) -> str:
        """Of a row that is not taken, the column that decides it by being null; else empty."""
        name = next((one.column for one in self.where if not one.holds(row)), "")
        return name if name and lookup(row, name) is None else ""

    def read(self, row: Row) -> Row:
        """The row without what is ignored, with roles as they are meant."""
        for path in self.ignore:
            row = _without(row, path)
        return speakers.renamed(row, self.roles) if self.roles else row

    def settles(self, path: str) -> bool:
        """Whether a condition on what is inside of a column decides on all of it, as a rating."""
        inside = any(one.startswith((f"{path}[", f"{path}.")) for one in self.decided)
        return inside and signals.classes(path).keys() <= {*RATING}

    @property
    def decided(self) -> frozenset[str]:
        """Columns of conditions and filters: they were used, so they do not count as unread."""
        said = [condition.column for condition in self.where]
        return frozenset((*said, *parts_of({}, said), *self.filtered))


WHOLE = "\0"  # behind a name: a column that gave it to what stands inside of a column


def renamed(row: Row, mapping: Mapping[str, str]) -> Row:
    """The row after ``--map name=source``: columns renamed, or taken from inside others by a path.

    A column from inside of which something is taken stays; ``rest`` gives what is left of it.
    """
    if not mapping:
        return row
    paths = [*parts_of(row, mapping.values())]
    taken = {source for source in paths if source not in mapping}
    opened = mapping.keys() & row.keys() & _opened_by(paths)
    wholes = {f"{name}{WHOLE}": row[name] for name in mapping if name in opened}
    named = {name: lookup(row, source) for name, source in mapping.items()}
    return {**{k: v for k, v in row.items() if k not in taken}, **wholes, **named}


def rest(path: str, value: Any, taken: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Path and value of everything in a column but what ``--map`` takes from inside it, by paths
    such as ``ask.text``, ``replies.0.text``, ``answers[].score``."""
    within = [one for one in taken if one == path or one.startswith((f"{path}.", f"{path}[]"))]
    value = signals.nested_in(value) if within and path not in within else value
    if path in within or not within or not isinstance(value, dict | list):
        if path not in within and value not in EMPTY:
            yield path, value
    elif isinstance(value, list) and (each := [p for p in within if p.startswith(f"{path}[]")]):
        for number, one in enumerate(value):
            at = f"{path}.{number}."
            own = [p.replace(at, f"{path}[].", 1) for p in within if p.startswith(at)]
            yield from rest(f"{path}[]", one, [*each, *own])
    else:
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from rest(f"{path}.{key}", one, within)


def inside(mapping: Mapping[str, str], others: Iterable[str] = ()) -> tuple[str, ...]:
    """Paths of ``--map``, and others, that lie inside of columns, under the names of both."""
    taken = [path for path in parts_of({}, mapping.values()) if "." in path]
    for name, source in mapping.items():
        taken += [name + path[len(source) :] for path in taken if _top(path) == source]
    tops = [(path, _top(path)) for path in taken]
    taken += [path.replace(top, f"{top}{WHOLE}", 1) for path, top in tops if top in mapping]
    return (*taken, *(path for path in others if "." in path))


def _opened_by(paths: Collection[str]) -> set[str]:
    """Columns of which paths take what stands inside, and not the whole."""
    return {_top(path) for path in paths if "." in path} - {p.removesuffix("[]") for p in paths}


def _top(path: str) -> str:
    return path.partition(".")[0].removesuffix("[]")


def raw(path: str, mapping: Mapping[str, str]) -> str:
    """A path of a renamed row as the file has it, which is what options take."""
    name = _top(path)
    own = judgements.bare(mapping[name]) if name in mapping else name
    return (own + path[len(name) :]).replace(WHOLE, "")


def told_raw(error: RowError, mapping: Mapping[str, str]) -> str:
    """What is wrong with a renamed row, in the file's names for columns that a clause begins
    with or quotes, or of which it names an item; questions have them so."""
    place = r"(?:^|(?<= and )|(?<=column ')|(?<![\w.])(?=\w+\[))"
    named = {} if isinstance(error, AskError) else mapping
    return in_raw_names(error.detail, named, place)


def in_raw_names(text: str, mapping: Mapping[str, str], place: str = r"(?<![\w.])") -> str:
    """A text about a renamed row with the columns named as the file has them; ``place``: a pattern
    of what stands before a name."""
    names = {name: judgements.bare(raw) for name, raw in mapping.items() if name != raw}
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"{place}({either})(?!\w)", lambda m: names[m[1]], text) if names else text


def replaced(row: Row, mapping: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Columns that ``--map`` replaces by another of the same name, so that nothing reads them."""
    paths = [*parts_of(row, mapping.values())]
    for name in mapping.keys() & row.keys() - _opened_by(paths):
        yield from rest(name, row[name], paths)


def _without(value: Any, path: str) -> Any:
    """A copy of a value without what stands at a path in it; an item of a list becomes null."""
    here, _, behind = path.partition(".")
    if here == "**" and isinstance(value, dict | list):
        if isinstance(value, list):
            return [_without(one, path) for one in value]
        return {key: _without(one, path) for key, one in _without(value, behind).items()}
    if isinstance(value, dict):
        name = here.removesuffix("[]")
        if path in value or not behind or name not in value:
            return {key: one for key, one in value.items() if key != path}
        inside = signals.nested_in(value[name])
        each = name != here and isinstance(inside, list)
        left = [_without(one, behind) for one in inside] if each else _without(inside, behind)
        return {**value, name: left} if left != inside else value
    if isinstance(value, list) and _is_item(here, value):
        at = int(here)
        return [*value[:at], _without(value[at], behind) if behind else None, *value[at + 1 :]]
    return value


def _is_item(key: str, values: list[Any]) -> bool:
    return key.isascii() and key.isdecimal() and int(key) < len(values)


def names_something(row: Row, path: str) -> bool:
    """Whether a row has a value at the path of ``--ignore``."""
    return bool(_without(row, path) != row)


# Nulls that a typed table may have added to tools and tool calls.
#
# An Arrow struct has the same keys in every row. Where rows of JSON differ in their keys, the table
# has null for the missing ones, and a chat template would print arguments that the data never had.
# Whether a null was in the data cannot be seen, so the user must say: ``--null-fields drop|keep``.
# In any other place, null and a missing key are the same for every format.


_PRINTED = ("tools", "functions")


def _sparse(value: Any) -> Any:
    """A value without the nulls under keys, at any depth."""
    if isinstance(value, dict):
        return {key: _sparse(inner) for key, inner in value.items() if inner is not None}
    return [_sparse(inner) for inner in value] if isinstance(value, list) else value


def _cleared(value: Any, names: Iterable[str], choice: str | None, where: str) -> Any:
    """An object, or a list of some, without the nulls under some of its keys."""
    if isinstance(value, list):
        return [_cleared(one, names, choice, where) for one in value]
    for name in names if isinstance(value, dict) else ():
        sparse = _sparse(value.get(name))
        if sparse == value.get(name):
            continue
        if choice is None:
            what = "holds nulls in a typed table, which gives every row the same keys: the "
            what += "template may print keys that were not in the original row"
            how = "Add --null-fields drop if the table added the nulls, or --null-fields keep if "
            raise AskError("null_fields", f"{where}{name} {what}", f"{how}they are data.")
        value = {**value, name: sparse}
    return value


def is_settled(value: Any) -> bool:
    """Whether a column that is neither ``tools`` nor ``functions`` holds no such null."""
    turns = value if isinstance(value, list) else [value]
    calls = (turn.get(key) for turn in turns if isinstance(turn, dict) for key in speakers.CALLS)
    return all(_sparse(call) == call for call in calls)


def settled(row: Row, choice: str | None) -> Row:
    """A row of a typed table with its nulls as ``--null-fields`` says: ``drop``, ``keep``, or None
    without the option.

    Raises:
        AskError: a tool or a tool call has some, and the option is missing.
    """
    if choice == "keep":
        return row
    row = _cleared(row, _PRINTED, choice, "")
    return {k: _cleared(v, speakers.CALLS, choice, f"{k}[].") for k, v in row.items()}
