"""Whether the rows that are stored are those that the options choose, by means of another kind.

Filters are in the part of SQL's language that looks at one row, so SQLite evaluates them, whose
database is in memory and has no tables.
"""

import functools
import hashlib
import json
import math
import operator
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from expectations.witness import paths, raw
from expectations.witness.laws import FIGURES
from expectations.witness.raw import Row, UnreadError

_CONDITION = re.compile(r"([^=<>!]+?)\s*(!=|>=|<=|=|>|<)\s*(.*)", re.DOTALL)
_COMPARED = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*') | "(?P<column>(?:[^"]|"")+)"
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?) | (?P<other>[/%]|--)
    | (?P<called>[^\W\d]\w*)\s*(?=\() | (?P<name>[^\W\d]\w*(?:\.\w+)*)""",
    re.VERBOSE,
)
_EXACT = 2**53
_AND = "+question"
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false", "between")
_FIGURES = ("n_tokens", "n_trained", "n_turns", "n_characters", "n_steps", "n_unrated", "margin")
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {  # those of SQLite know ASCII alone
    "lower": (1, str.lower),
    "upper": (1, str.upper),
    "length": (1, len),
    "contains": (2, str.__contains__),
    "starts_with": (2, str.startswith),
    "ends_with": (2, str.endswith),
}


@functools.cache
def _sqlite() -> sqlite3.Connection:
    found = sqlite3.connect(":memory:")
    for name, (count, function) in _FUNCTIONS.items():
        found.create_function(name, count, partial(_unless_null, function))
    return found


def _unless_null(function: Callable[..., Any], *values: Any) -> Any:
    return None if None in values else function(*values)


def _filtered(row: Row, expression: str, figures: dict[str, float]) -> Any:
    """What a filter is for a row and the figures of its example: true, false or null.

    Raises:
        UnreadError: it reads figures that are not known, or computes otherwise than SQLite does.
    """
    values: list[Any] = []

    def asked(found: re.Match[str]) -> str:
        column, name = found["column"], found["name"]
        if found["other"]:  # polars multiplies by what is one through a number
            raise UnreadError("a filter that divides")
        if not column and (not name or name.lower() in _WORDS):
            return found.group()
        if name in _FIGURES and name not in figures:
            raise UnreadError("a filter by a figure")
        path = column.replace('""', '"') if column else name
        value = figures[name] if name in figures else paths.at(row, path)
        if isinstance(value, list | dict):
            raise UnreadError("a filter by lists or objects")
        if isinstance(value, int) and abs(value) > _EXACT:
            raise UnreadError("a filter by numbers that a double rounds")
        if value != value:
            raise UnreadError("a filter by what is no number")
        values.append(value)
        return f"?{len(values)}"

    text = _TOKEN.sub(asked, expression)
    try:
        ((found,),) = _sqlite().execute(f"select {text}", values)
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise UnreadError("a filter that SQLite does not evaluate") from error
    return found


def _compared(row: Row, condition: str) -> bool:
    """Whether a row meets a condition of ``--where``: each value of a list does, with ``[]`` in
    the path; what is not there equals null alone."""
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise UnreadError("a condition of another shape")
    path, sign, told = match.groups()
    value = paths.at(row, path)
    try:
        wanted = json.loads(told)
    except ValueError:
        wanted = told
    if value is None:
        return bool(sign == "=" and wanted is None)
    each = paths.leaves(value) if "[]" in path else (value,)
    return all(_is_true(one, sign, wanted, told) for one in each)


def _is_true(value: Any, sign: str, wanted: Any, told: str) -> bool:
    if sign in _COMPARED:
        known = paths.number(value)
        return known is not None and _COMPARED[sign](known, float(wanted))
    if not isinstance(value, str | int | float | list | dict | None):
        raise UnreadError("a value of a table that JSON does not have")
    if isinstance(value, str) and not isinstance(wanted, str):
        if isinstance(wanted, list | dict | float):
            raise UnreadError("a text beside a value that is spelled in several ways")
        same = value == told.strip()  # a number in a table of texts
    else:
        same = value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
    return same == (sign == "=")


def figures(made: list[Any]) -> dict[str, float]:
    """What filters may ask of the only example that a row becomes; empty where it has others."""
    if len(made) != 1 or not isinstance(made[0], dict):
        return {}
    one = made[0]
    ids = [one[name] for name in ("input_ids", "chosen_ids", "rejected_ids") if name in one]
    found: dict[str, float] = {"n_tokens": max(map(len, ids)), **one[FIGURES]}
    if "step_labels" in one:
        found["n_steps"] = len(one["step_labels"])
        found["n_unrated"] = sum(label is None for label in one["step_labels"])
    elif "labels" in one:
        found["n_trained"] = sum(label >= 0 for label in one["labels"])
    return found


def by_figures(words: dict[str, Any]) -> bool:
    """Whether a filter asks for figures of examples."""
    return any(name in text for text in words["filter"] for name in _FIGURES)


def judged(row: Row, words: dict[str, Any], made: list[Any] | None = None) -> list[bool | None]:
    """Whether a row meets each condition, and then each filter; None for one that is not read.

    Args:
        made: the examples that it becomes.
    """
    known = figures(made or [])
    of_all: list[bool | None] = []
    each: list[Callable[[], Any]] = [partial(_compared, row, one) for one in words["where"]]
    each += [partial(_filtered, row, one, known) for one in words["filter"]]
    for condition in each:
        try:
            of_all.append(bool(condition()))
        except (UnreadError, TypeError):
            of_all.append(None)
    return of_all


def leaves_out(told: list[bool | None], words: dict[str, Any]) -> str:
    """The first filter that is not true, where all that is asked before it is known to be."""
    at = next((n for n, one in enumerate(told) if not one), 0)
    asked = [*[""] * len(words["where"]), *words["filter"]]
    return asked[at] if False in told[at : at + 1] else ""


def is_null(row: Row, words: dict[str, Any], made: list[Any] | None, expression: str) -> bool:
    """Whether a filter that was read is null for a row, and not false."""
    asked = expression in words["filter"]
    return asked and _filtered(row, expression, figures(made or [])) is None


_Rank: TypeAlias = tuple[float, tuple[int, int]]  # the least one stays


@dataclass
class Equal:
    """Rows that become equal examples, of which one stays.

    Attributes:
        keep: which one, as it was told; empty where equal ones are not left out.
        whole: every row is looked at.
    """

    keep: str
    whole: bool
    _rows: dict[bytes, list[tuple[_Rank, str, bool]]] = field(default_factory=dict)

    def add(
        self, made: dict[str, Any], row: Row, place: tuple[int, int], name: str, there: bool
    ) -> None:
        """A row with one example; ``there``: it is stored."""
        if not self.keep:
            return
        which, _, column = self.keep.partition(":")
        try:
            score = paths.at(row, column) if column else None
        except UnreadError:
            return
        rank = -math.inf
        if isinstance(score, int | float) and not isinstance(score, bool) and score == score:
            rank = float(score) if which == "highest" else -float(score)
        same = {law: wanted for law, wanted in made.items() if law not in ("margin", FIGURES)}
        digest = hashlib.sha256(repr(sorted(same.items())).encode()).digest()
        self._rows.setdefault(digest, []).append(((-rank, place), name, there))

    def found(self) -> Iterator[tuple[str, str]]:
        """Each row that is stored in the place of another one, and a sentence."""
        for rows in self._rows.values():
            best, other, _ = min(rows)
            if self.whole and not any(there for *_, there in rows):
                yield other, "dedup: it is not stored, and nothing that equals it is"
            for rank, name, there in rows:
                if there and rank != best:
                    yield name, f"dedup: it is stored, and {other} equals it and must stay"


@dataclass
class Sides:
    """Rows of files for the test split are in no other, and no other rows are; rows that are equal
    in the column of ``--group-by`` are on one side.

    Attributes:
        tests: the names of these files; ``found``: rows on another side, each with a sentence.
    """

    tests: set[str]
    found: list[tuple[str, str]] = field(default_factory=list)
    _of: dict[str, tuple[str, set[str]]] = field(default_factory=dict)

    def add(self, row: Row, by: str | None, asked: str, name: str, own: list[Any]) -> None:
        """A row that is stored; ``by``: the column, ``own``: its examples, each with its id."""
        splits = {one["split"] for _, one in own}
        if self.tests and splits != {"test" if name.rpartition(":")[0] in self.tests else "train"}:
            self.found.append((name, f"split: it is in {' and '.join(sorted(splits))}"))
        keys = [f"?{asked}"] if asked and not self.tests and (by or _AND).endswith(_AND) else []
        try:
            value = paths.at(row, (by or "").removesuffix(_AND)) if by else None
            keys += [json.dumps(value, sort_keys=True)] if value is not None else []
        except (UnreadError, TypeError):  # a value of a table that JSON does not have
            pass
        for key in keys:
            first, there = self._of.setdefault(key, (name, splits))
            if there != splits:
                what = by if by and key[0] != "?" else "what it asks"
                self.found.append((name, f"split: {first} is equal to it in {what}, and elsewhere"))


_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen".split()
_NUMBERS += "fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty".split()
_NUMBERS += "sixty seventy eighty ninety".split()
_VALUES = dict(zip(_NUMBERS, map(str, (*range(20), *range(20, 100, 10))), strict=True))
_SEVERAL = re.compile(rf"hundred|thousand|million|ty[^a-z0-9]+({'|'.join(_NUMBERS[1:10])})")
_ASKING = ("question", "Question", "problem", "Problem", "prompt", "Prompt")
_SURE = 16  # letters of a question that is found wherever it stands


Asking: TypeAlias = dict[tuple[str, ...], str]


def words_of(text: str) -> tuple[str, ...]:
    """Words, numbers and signs of an English text, numbers as digits; none of another text, and of
    one in which a number has several words."""
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.lower())
    if not text.isascii() or _SEVERAL.search(text):
        return ()
    return tuple(_VALUES.get(one, one) for one in re.findall(r"[a-z0-9]+|[-+*/^=<>%]", text))


def evaluations(files: list[tuple[str, str, str | None]]) -> Asking:
    """The questions of evaluations, by their words.

    Args:
        files: of JSON lines, each with its hash and the column of its questions, or None where that
            is a usual one.
    """
    found: Asking = {}
    for path, sha256, column in files:
        data = Path(path).read_bytes() if Path(path).is_file() else b""
        if hashlib.sha256(data).hexdigest() != sha256 or not path.endswith(".jsonl"):
            continue
        try:
            rows = raw.rows(path, range(1, data.count(b"\n") + 2), {"container": "jsonl"}).values()
        except (UnreadError, OSError, ValueError):  # of another kind, or too large
            continue
        names = [name for name in _ASKING if any(name in row for row in rows)]
        sure = len(names) == 1 and all(isinstance(row.get(names[0]), str) for row in rows)
        name = column or (names[0] if sure else "")
        texts = [row[name] for row in rows if isinstance(row.get(name), str)]
        said = ((words_of(text), text) for text in texts)
        found |= {w: x for w, x in said if len("".join(filter(str.isalnum, w))) >= _SURE}
    return found


def understated(folder: str) -> Iterator[tuple[str, str]]:
    """Rows that are left out for a part of a question, and whose text has all of it."""
    file = Path(folder) / "contaminated.jsonl"
    for one in map(json.loads, file.read_bytes().splitlines() if file.is_file() else ()):
        asked, said = (" ".join(words_of(one[name])) for name in ("question", "said"))
        if len(asked) > _SURE and f" {asked} " in f" {said} " and one["share"] < 1:
            yield one["id"], f"decontaminate: it shares {one['share']}, and asks: {asked:.60}"
