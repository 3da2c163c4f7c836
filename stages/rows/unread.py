"""Columns of a row that no format reads: counted by name, or a reason to refuse the row.

Every column ends up in an example, or is counted here under its name, or refuses its row, where to
ignore it would probably train something wrong.
"""

import functools
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from stages.contract import Example, Pair, Row, StepChain
from stages.errors import AskError
from stages.rows import (
    column_names,
    examples,
    judgements,
    selection,
    shapes,
    signals,
    speakers,
    stop_text,
)
from stages.rows.column_names import EMPTY, Watched, peek

if TYPE_CHECKING:
    from stages.kinds import Kind

# Fields of a turn that are checked where they are rendered: see lost_in_template.
_THOUGHT = "reasoning_content"
_CHECKED = frozenset(("tool_calls", "tool_call_id", _THOUGHT))
_SPEAKER = frozenset(speakers.KEYS)
_SAID = _SPEAKER | {"content", "value"}


class ReadRow:
    """A row that was read, and its examples, of which what they say is collected once."""

    def __init__(self, row: Watched, examples: Sequence[Example]) -> None:
        self.row, self._examples = row, examples

    @cached_property
    def _texts(self) -> dict[str, None]:
        """Every text of the examples, without blanks around it, once."""
        turns = [*stop_text.turns_of(self._examples)]
        said = (one for turn in turns for one in (turn.content, (turn.fields or {}).get(_THOUGHT)))
        texts = [text for text in said if isinstance(text, str)]
        chains = [one for one in self._examples if isinstance(one, StepChain)]
        texts += [step for one in chains for step in (one.problem, *one.steps)]
        return dict.fromkeys(filter(None, (text.strip() for text in texts)))

    def repeats(self, value: Any, one_will_do: bool = False) -> bool:
        """Whether a value repeats the texts of the examples: a part of one, or all of them; of a
        list or an object, whether everything inside it does, or with ``one_will_do`` anything."""
        if isinstance(value, dict):
            value = [inside for key, inside in value.items() if key not in _SPEAKER]
        if isinstance(value, list):
            return bool(value) and (any if one_will_do else all)(map(self.repeats, value))
        if not isinstance(value, str):
            return False
        plain, texts = value.strip(), self._texts
        part = plain in texts or any(plain in text for text in texts)
        return part or (bool(texts) and all(text in plain for text in texts))

    def agrees(self, path: str, value: Any, kind: "Kind") -> bool:
        """Whether a rating says no more than the examples do: their steps, margin or last words."""
        if kind.marks:
            return not column_names.is_a(path, "corrected") and self._rated_so(value)
        if kind.compares and (told := judgements.spelled(value)) is not None:  # it may be rounded
            margins = [one.margin for one in self._examples if isinstance(one, Pair)]
            return any(margins) and all(abs((one or 0.0) - told) < 0.01 for one in margins)
        if not kind.trains_answers or isinstance(value, bool | dict):
            return False
        if isinstance(value, list):
            return self.judged(path, value)[1] is True
        end = re.compile(rf"(?<!\w){re.escape(str(value).strip())}\W*$", re.IGNORECASE)
        return any(end.search(text[-len(str(value)) - 4 :]) for text in self._answers)

    @property
    def _answers(self) -> Iterator[str]:
        """What the assistant says in the examples."""
        said = ((one.role, one.content) for one in stop_text.turns_of(self._examples))
        return (text for role, text in said if role == "assistant" and text)

    def judged(self, path: str, value: Any) -> tuple[str, bool | None]:
        """Of a list with a verdict on each of as many texts that nothing reads: their column, and
        whether those are good that are answers of the examples, or None where no text is good."""
        for name in self.row if isinstance(value, list) else ():
            texts = peek(self.row, name)
            if name in self.row.read_columns or not shapes.are_texts(texts):
                continue
            if len(texts) == len(value) and all(map(signals.is_prose, texts)):
                wanted = not signals.is_low(path)
                good = [judgements.is_good(one) is wanted for one in value]
                answers, each = [*self._answers], zip(texts, good, strict=True)
                own = [g for text, g in each if any(a.strip() in text for a in answers)]
                return name, bool(own) and all(own) if any(good) else None
        return "", None

    def numbers_steps(self, left: "Unread") -> bool | None:
        """Whether a list of numbers of steps names others than those that are wrong; None for any
        other value."""
        value = left.values[0]
        chain = next((one for one in self._examples if isinstance(one, StepChain)), None)
        if chain is None or not isinstance(value, list) or {*map(type, value)} != {int}:
            return None
        if "[]" in left.path or sorted({*value}) != value or not 0 <= value[0] <= value[-1]:
            return None
        wrong = [at for at, label in enumerate(chain.labels) if label == 0]
        others = value not in (wrong, [at + 1 for at in wrong])
        return others if value[-1] <= len(chain.labels) else None

    def counts_from(self, left: "Unread") -> set[int] | None:
        """How a column counts that may number the best answer, or is true of it alone."""
        path, said = left.path, left.values
        flags = "[]" in path and column_names.is_rating(path) and not signals.is_low(path)
        flags = flags and {*map(type, said)} == {bool} and said.count(True) == 1
        number = said.index(True) if flags else judgements.spelled(said[0])
        if number is None or not (flags or signals.may_number_the_best(path)):
            return None
        lists = [peek(self.row, name) for name in self.row.read_columns]
        counts = examples.counts_from(number, lists, self._examples)
        return counts & {0} if counts and flags else counts

    def _rated_so(self, said: Any) -> bool:
        """Whether ratings, or the place of the first mistake, are those of the examples' steps, or
        of something else than steps."""
        chains = [one.labels for one in self._examples if isinstance(one, StepChain)]
        if not isinstance(said, list):
            return any(said in judgements.places_of_first_bad(labels) for labels in chains)
        ahead = [[*itertools.takewhile(lambda one: one is None, labels)] for labels in chains]
        if len(said) in map(len, ahead):
            return False  # of steps that are read without their ratings
        alike = [labels for labels in chains if len(labels) == len(said)]
        if not all(isinstance(one, bool | int | float) for one in said) or max(said) > 1:
            return not alike
        good = [one > 0 if min(said) < 0 else one >= 0.5 for one in said]
        pairs = (zip(labels, good, strict=True) for labels in alike)
        said_so = (all(mine is None or (mine >= 0.5) == one for mine, one in own) for own in pairs)
        return not alike or any(said_so)


def _turns_in(row: Row) -> Iterator[tuple[str, Row]]:
    """Every turn of the lists of a row, with the column that it stands in."""
    for name, value in row.items():
        for one in value if isinstance(value, list) else ():
            if isinstance(one, dict) and not _SPEAKER.isdisjoint(one):
                yield name, one


def _column_of(row: Row, key: str) -> str:
    """The column whose turns have a key, as ``messages[].key``, or which is one such turn."""
    first = key.partition("[]")[0]
    names = (f"{name}[]" for name, turn in _turns_in(row) if first in turn)
    alone = (name for name, one in row.items() if isinstance(one, dict) and first in one)
    return f"{next(itertools.chain(names, alone), 'turns[]')}.{key}"


@dataclass(frozen=True, slots=True)
class Unread:
    """What a row has in a place that is in no example.

    Attributes:
        path: ``context``, ``question.source``, ``messages[].name``.
        values: none of them empty; several where a list has objects or turns with that key.
        turn: whether it is a key of a turn.
    """

    path: str
    values: tuple[Any, ...]
    turn: bool = False


@dataclass(frozen=True, slots=True)
class Leaving:
    """What may be left out of rows, as the user has said: ``columns`` of ``--map``, paths taken
    from ``inside`` of columns, columns ``settled`` or ``decided`` otherwise, and the fields of a
    turn that the chat template has ``printed``."""

    columns: Mapping[str, str]
    selection: selection.Selection
    settled: frozenset[str]
    decided: frozenset[str]
    inside: tuple[str, ...]
    printed: frozenset[str] = frozenset()

    def of(self, row: Watched, examples: Sequence[Example]) -> list[Unread]:
        """What is in no example, under the names that the file has, which options take."""
        found = itertools.chain.from_iterable(itertools.starmap(_opened, row.unread()))
        if self.inside:
            each = (selection.rest(path, value, self.inside) for path, value in found)
            found = itertools.chain.from_iterable(each)
        columns = by_path(found)
        if StepChain in map(type, examples):
            keys = by_path(_beside_steps(row))
        else:
            fields = by_path(_fields_of(examples, self.printed))
            keys = {_column_of(row, key): values for key, values in fields.items()}
        told = [(path, values, False) for path, values in columns.items() if path not in keys]
        told += [(key, values, True) for key, values in keys.items()]
        raw = functools.partial(selection.raw, mapping=self.columns) if self.columns else str
        left = [Unread(raw(path), tuple(values), turn) for path, values, turn in told]
        return [it for it in left if it.path not in self.decided and it.path not in self.inside]

    def is_open(self, path: str) -> bool:
        """Whether nobody has said yet that a column may be left out."""
        return path not in self.settled and not self.selection.settles(path)


def by_path(found: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """All values of each path. The first of several turns may have nothing there."""
    values: dict[str, list[Any]] = {}
    for path, value in found:
        if value not in EMPTY:
            values.setdefault(path, []).append(value)
    return values


def _opened(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    """A column; of an object with a system text in it, each of its keys."""
    keys = value if isinstance(value, dict) else ()
    if any(column_names.is_a(key, "system") and isinstance(value[key], str) for key in keys):
        return [(f"{path}.{key}", one) for key, one in value.items() if one not in EMPTY]
    return [(path, value)]


def _fields_of(examples: Iterable[Example], printed: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Keys of the turns of examples that are not printed, are checked nowhere else, and do not say
    whether an answer is complete."""
    for turn in stop_text.turns_of(examples):
        for key, value in (turn.fields or {}).items() if "*" not in printed else ():
            says = stop_text.FLAGS.get(key) if turn.role == "assistant" else None
            told = says is not None and (isinstance(value, bool) or says(value))
            if not (told or key in printed or key in _CHECKED):
                yield key, value


def _beside_steps(row: Watched) -> Iterator[tuple[str, Any]]:
    """Keys of turns in rows of steps, of which only role and text are used, not even flags."""
    read = {name: _SAID | row.read_keys(name) for name in row.read_columns}
    for name, turn in _turns_in(row):
        for key in turn if name in read and type(turn) is dict else ():
            if key not in read[name]:
                yield f"{name}[].{key}", turn[key]


def asked(left: Unread, kind: "Kind", row: ReadRow) -> AskError | None:
    """Why values must not be ignored without an option: it would train something wrong, or might;
    None where they may be."""
    if cut := None if kind.marks else cut_off(left.path, left.values):
        return cut
    if left.turn and speakers.are_unsorted(left.path, left.values):
        what = f"{left.path} numbers the turns in another order than they have"
        return AskError("bad_column", what, "Give the turns in this order.")
    if kind.compares and (counts := row.counts_from(left)) is not None:
        return None if counts else two_orders(left.path)
    inside = dict in map(type, judgements.flat([*left.values]))
    inside = inside or any(map(signals.are_tools, left.values))
    if not left.turn and signals.is_about(left.path) and not inside:
        return None
    several = kind.marks and len(left.values) > 1 and not left.turn
    values = [[*left.values]] if several else left.values
    return next(filter(None, (_asked(left, value, kind, row) for value in values)), None)


def _asked(left: Unread, value: Any, kind: "Kind", row: ReadRow) -> AskError | None:
    path = left.path
    shown = f"{path} is {_shown(value)}"
    if left.turn and column_names.is_flag(path, value):
        flags = ", ".join(column_names.FLAGS)
        how = f"Flags of a turn are {flags}. To leave this one out, add {ignore(path)}."
        return AskError("unknown_flag", f"{shown}, a flag of a turn that is not read", how)
    for code, what in column_names.reasons(path, value, kind):
        if code == "rated" and not row.agrees(path, value, kind):
            return rated(path, value, kind)
        if code == "unread_weight":
            weighs = "weight" in what
            how = "Add" if weighs else "Leave such rows out with --where, or add"
            if kind.trains_answers and any(_turns_in(row.row)):  # others have no loss per turn
                how = f"Put it on the turns as {'weight' if weighs else 'train'}. {how}"
            return AskError(code, f"{shown}, and nothing reads {what}", f"{how} {ignore(path)}.")
        if code == "unread_column" and not row.repeats(value, column_names.is_a(path, "answer")):
            tools = not (left.turn or kind.marks) and signals.are_tools(value)
            return not_read(path, what, f"as tools with {mapped('tools', path)}" * tools)
    return None


def not_read(path: str, what: str, how: str = "") -> AskError:
    """The question about a column that the model should probably see; ``how`` it could."""
    how = f"Read it {how or 'under another name with --map'}, or add {ignore(path)}."
    return AskError("unread_column", f"{path} {what}, and nothing reads it", how)


def cut_off(path: str, values: Sequence[Any]) -> AskError | None:
    """The question about a column that says of some answers that they were cut off."""
    ways = " ".join(differs_from(*one) for one in stop_text.cut_at(path, values))
    what = f"{path} says of some answers that they were cut off, and nothing reads it"
    how = f"Say which: leave these out with {ways}, or train them with {ignore(path)}."
    return AskError("unfinished_answer", what, how) if ways else None


def two_orders(path: str) -> AskError:
    """The question about a column that names another answer than the one that is read as better."""
    what = f"{path} names another answer than the one that is read as better"
    return AskError("two_orders", what, f"To leave it out, add {ignore(path)}.")


def rated(path: str, value: Any, kind: "Kind") -> AskError:
    """The question about a column that may rate answers or steps."""
    what = "may rate the steps otherwise" if kind.marks else "may be the score of an answer"
    what = "rates what would be trained" if kind.trains_answers else what
    return AskError("rated", f"{path} is {_shown(value)}, which {what}", f"Add {ignore(path)}.")


def ignore(path: str) -> str:
    """The option that ignores a column, quoted for a shell."""
    quoted = path if path.replace("_", "").replace(".", "").isalnum() else f"'{path}'"
    return f"--ignore {quoted}"


def differs_from(column: str, value: Any) -> str:
    """The option that leaves out rows with a value in a column, quoted for a shell."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return f"--where {shlex.quote(f'{column}!={text}')}"


def mapped(name: str, column: str) -> str:
    """The option that reads a name from a column, quoted for a shell."""
    return f"--map {shlex.quote(f'{name}={column}')}"


def _shown(value: Any) -> str:
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= 40 else f"{text[:37]}..."
