"""What a column may mean where no format reads it; which columns of a row were read.

Three kinds of columns must not be ignored without an option: those that the model should probably
see, those that rate an answer, and those that weigh a row. ``stages.rows.signals`` has their words
and the shapes of their values.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.contract import Row
from stages.rows import signals, words

if TYPE_CHECKING:
    from stages.kinds import Kind


@functools.lru_cache(4096)
def plain(name: str) -> str:
    """The last part of a path in lower case, without underscores, hyphens and blanks."""
    last = name.replace("[]", "").rpartition(".")[2]
    return "".join(c for c in last.casefold() if c not in "_- ")


def is_a(name: str, meaning: str) -> bool:
    """Whether a column's name has a word of a class of ``words.toml``, or is a ``place``."""
    return meaning in signals.classes(name)


@functools.lru_cache(4096)
def _seen(name: str, where: str) -> tuple[tuple[str, bool, str], ...]:
    """The classes of a name of which a value should be seen, with why."""
    said = [(word, alone) for word, alone in signals.classes(name).items() if word in words.SEEN]
    if len(words.words(name)) == 1:  # a part of which nothing says that it is an answer's
        said = [(word, alone and word not in ("begun", "whole")) for word, alone in said]
    here = {"all", where, "side" * (where == "pairs" and signals.has_side(name))}
    mine = {word: here | {"alone" * (alone and where != "")} for word, alone in said}
    told = [(word, alone) for word, alone in said if mine[word] & {*words.SEEN[word][1].split()}]
    return tuple((word, alone, words.SEEN[word][0]) for word, alone in told)


def seen(name: str, value: Any, kind: "Kind") -> str | None:
    """Why the model should probably see a column, as a clause; None for other columns."""
    where = "answers" if kind.trains_answers else "pairs" if kind.compares else ""
    for word, alone, why in _seen(name, where):
        shape = _SHAPES.get(word, signals.is_text)
        if shape(value, alone and word != "steps"):
            return why
    return None


_YES_OR_NO = words.exact("value", "yes", "no")
_MOST = 20  # objects of a list that are looked at
_FOR = {"use", "used", "for"}  # use_for_training
_NEEDED, _SENTENCE = words.exact("needed", "sign"), 200
_EXPLAINED = words.exact("explained", "sign")
_SHAPES: Mapping[str, Callable[[Any, bool], bool]] = {
    "reasoning": lambda value, alone: (
        signals.is_text(value, alone) and not signals.are_flags([value])
    ),
    "tools": signals.is_declared,
    "media": signals.is_media,
    "arguments": lambda value, alone: True,
}


def rates(name: str, value: Any, kind: "Kind") -> bool:
    """Whether a column may say how good the answer beside it is, or a step of it.

    A text with a verdict of its own (``unsafe``) does so whatever the column is called.
    """
    found = signals.classes(name)
    rating = is_rating(name)
    if kind.trains_answers:
        if signals.is_telling(value):
            return "untrained" not in found and not signals.is_about(name)
        if "label" in found and isinstance(value, str):
            return len(value) <= signals.LONGEST
        if "sign" in found and isinstance(value, bool):
            return True
        return (rating or "place" in found) and signals.is_rating(value)
    if kind.compares:
        return _rates_a_pair(name, value, found, rating)
    return kind.marks and _rates_steps(name, value, found, rating)


def _rates_a_pair(name: str, value: Any, found: Iterable[str], rating: bool) -> bool:
    """Whether a column may say how sure a pair is, how good one of its sides, or that it is bad."""
    if signals.is_tie(value):
        return not signals.is_about(name)
    if "[]" in name or not signals.is_rating(value):
        return False
    rating = rating or "rank" in found
    if "pair" in found or "margin" in found or (rating and signals.has_side(name)):
        return True
    if isinstance(value, list):
        return rating and len(value) == 2
    telling = signals.is_telling(value)
    if telling and value.strip().casefold() not in _YES_OR_NO:
        return not signals.is_about(name)
    return "verdict" in found and (telling or isinstance(value, bool))


def _rates_steps(name: str, value: Any, found: Iterable[str], rating: bool) -> bool:
    """Whether a column may rate steps: a list of ratings, corrections of them, or a place."""
    if "place" in found or (rating and "corrected" in found):
        return signals.is_rating(value)
    several = isinstance(value, list) and len(value) > 1 and name.count("[]") < 2
    if several and signals.are_shares(value):
        return not (signals.is_about(name) or signals.is_low(name))
    return rating and several and signals.is_rating(value) and not signals.is_low(name)


def rates_inside(name: str, value: Any, kind: "Kind") -> bool:
    """Whether an object, or one of a list, may rate the answer under one of its keys, beside other
    things; of a pair, whether a flag is set that says that the row is bad."""
    if kind.marks:
        return False
    inner = signals.keys_of(name, value[:_MOST] if isinstance(value, list) else [value])
    told = [(key, one) for key, some in inner.items() for one in some]
    deeper = [(key, one) for key, one in told if isinstance(one, dict)]
    if any(rates_inside(*one, kind) for one in deeper if kind.compares or signals.classes(one[0])):
        return True
    if kind.compares:
        return any(signals.is_low(key) for key, one in told if one is True)
    return any(rates(key, one, kind) for key, one in told if not isinstance(one, dict | list))


def are_verdicts(name: str, values: Sequence[Any], kind: "Kind") -> bool:
    """Whether all values of a column together show that it may rate answers: few texts, which come
    again and again, under a word for a verdict; true and false under a name that says nothing."""
    each = [one for value in values for one in (value if type(value) is list else [value])]
    if dict in map(type, each):  # what is inside of objects, but of turns
        told = [one for one in each if type(one) is dict and {"role", "from"}.isdisjoint(one)]
        return any(are_verdicts(*one, kind) for one in signals.keys_of(name, told).items())
    found = signals.classes(name)
    if not kind.trains_answers or signals.is_about(name):
        return False
    if found or "." in name:
        return next(iter(found), None) == "verdict" and signals.are_few(values)
    return {*map(type, values)} == {bool} and len({*values}) > 1


def are_set_aside(name: str, values: Sequence[Any], of: int) -> bool:
    """Whether some values of a column say that their rows were made to try those who rate, or were
    given up, or of so many rows to be trained that they failed; of none where that is data, too."""
    if is_a(name, "aside"):
        return any(map(signals.is_set, values))
    if of and dict in map(type, values):
        inside = signals.keys_of(name, values)
        return any(are_set_aside(key, some, len(values)) for key, some in inside.items())
    few = signals.are_few(values) and not signals.is_about(name)
    given_up = few and any(map(signals.is_given_up, values))
    return given_up or (of > 0 and signals.say_failed(name, values, of))


def is_beside(name: str, values: Sequence[Any], answers: Sequence[Any]) -> bool:
    """Whether values say in a sentence what one must know to answer, or explain whole answers."""
    said = {*words.parts(name)}
    short = all(isinstance(one, str) and len(one) <= _SENTENCE for one in values)
    whole = bool(answers) and all(map(signals.is_prose, answers))
    told = short and all(" to know" in one or " needs " in one for one in values)
    return bool(told or (short and said & _NEEDED) or (whole and said & _EXPLAINED))


def is_rating(name: str) -> bool:
    """Whether a name has a word for a label, a verdict or a measure."""
    return not signals.classes(name).keys().isdisjoint(words.RATING)


def is_left_out(name: str, value: Any) -> bool:
    """Whether a value says that its row is not to be trained: that it is bad, or taken away."""
    if isinstance(value, dict | list) or len(str(value)) > signals.LONGEST:
        return False
    if signals.is_taken_away(value):
        return not signals.is_about(name)
    found, parts = signals.classes(name), words.parts(name)
    if not signals.is_set(value):
        wanted = found.get("trained", False) or ("trained" in found and not _FOR.isdisjoint(parts))
        return wanted and not isinstance(value, float)
    low = found.get("verdict", False) and "error" not in found and signals.is_low(name)
    low = low and not isinstance(value, float) and not signals.is_prose(value)
    return found.get("untrained", False) or low


def reasons(name: str, value: Any, kind: "Kind") -> Iterator[tuple[str, str]]:
    """Why a value of a column may not be ignored without an option: codes of errors, and what it is
    or says; see ``unread``."""
    found, whole = signals.classes(name), signals.classes(name.partition("[]")[0])
    held = signals.nested_in(value)
    inside = isinstance(held, dict | list) and rates_inside(name, held, kind)
    tools = signals.are_tools(value) or signals.are_calls(value)
    short = type(value) is str and len(value) <= signals.SHORT
    shares = kind.marks and signals.are_shares(value)
    if value in EMPTY or not (inside or found or tools or short or shares):
        return  # of most columns; only a telling text means more then
    fits = "context" in whole and (inside or "[]" in name)  # how well a passage fits, at most
    if not fits and (inside or rates(name, value, kind)):
        yield "rated", ""
    if is_left_out(name, value):
        yield "unread_weight", "whether a whole row is trained"
    several = "trained" in found and isinstance(value, list)
    if (several or "weight" in found) and signals.is_rating(value):
        yield "unread_weight", f"the weight{'s of its turns' if several else ' of a whole row'}"
    if why := words.SEEN["tools"][0] if tools else seen(name, value, kind):
        yield "unread_column", why


# Keys of a turn about its own training; formats._turns reads them.
FLAGS = ("weight", "loss_weight", "train", "training", "trainable", "loss", "loss_mask")
NUMERIC = FLAGS[:2]  # those that may be more than 0 or 1


def is_flag(name: str, value: Any) -> bool:
    """Whether a key of a turn may say how the turn is trained or how good it is."""
    found = signals.classes(name)
    if isinstance(value, bool) or "flag" in found or "label" in found:
        return True
    if signals.is_about(name):
        return False
    rated = any(word in found for word in ("verdict", "number", "place"))
    return isinstance(value, int | float) or (rated and signals.is_rating(value))


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names that look like one."""
    import difflib

    by_word = {plain(one): one for one in known}
    return [by_word[w] for w in difflib.get_close_matches(plain(name), by_word, 3, 0.6)]


# A row that remembers which of its columns were read.
#
# A format reads a row by its columns; a column that it did not read is not in the example. So
# unread columns are noticed without a list of the columns that each format knows.


# Columns that are passed on whole: their keys are those of the tool or the call.
_PASSED_ON = frozenset(("tools", "functions", "tool_calls", "function_call"))
EMPTY: tuple[Any, ...] = (None, "", [], {})  # values that are the same as none


class Watched(dict[str, Any]):
    """A row, or an object inside one. ``row[key]`` and ``row.get(key)`` count as reading.

    ``peek`` looks at a value without counting as reading.
    """

    __slots__ = ("_keys", "_lists", "_read")

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self._read: set[str] = set()
        self._lists: set[str] | None = None  # columns with a list of objects that are watched
        self._keys: set[tuple[str, str]] | None = None

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if key in self._read:  # what is inside is watched already
            return value
        self._read.add(key)
        kind = type(value)
        if kind is str or key in _PASSED_ON:
            return value
        if kind is dict:
            value = self[key] = Watched(value)
        elif kind is list and _has_objects(value):
            value = self[key] = [Watched(one) if type(one) is dict else one for one in value]
            self._lists = {*(self._lists or ()), key}
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a column, which counts as read."""
        if key not in self:
            return default
        return self[key]

    @property
    def read_columns(self) -> frozenset[str]:
        """The columns that were read."""
        return frozenset(self._read)

    def read_keys(self, column: str) -> frozenset[str]:
        """The keys of a column's turns that were read besides role and text."""
        return frozenset(key for name, key in self._keys or () if name == column)

    def unread(self, before: str = "") -> Iterator[tuple[str, Any]]:
        """Path and value of everything that was not read and is not empty.

        An object of which no key was read counts as used whole. In a list of objects, a key counts
        as read when it was read in one of them; of others, the path comes once for each object.
        """
        if not self._read and before:
            return
        for key, value in self.items():
            if key not in self._read:
                if value not in EMPTY:
                    yield f"{before}{key}", value
            elif isinstance(value, Watched):
                yield from value.unread(f"{before}{key}.")
            elif self._lists and key in self._lists:
                yield from _unread_in(value, f"{before}{key}[].")


class Overlaid(Watched):
    """A row with the values of an object inside it on top; a read counts where the value is."""

    __slots__ = ("_over", "_under")

    def __init__(self, under: Row, over: Row) -> None:
        super().__init__({**under, **over})
        self._under, self._over = under, over

    def __getitem__(self, key: str) -> Any:
        return self._over[key] if key in self._over else self._under[key]


def peek(row: Row, key: str) -> Any:
    """The value of a column, which does not count as read; None where there is none."""
    return dict.get(row, key)


def read_key(row: Row, column: str, key: str) -> None:
    """Count a key of a column's turns as read; turns are not watched themselves."""
    if isinstance(row, Watched):
        row._keys = {*(row._keys or ()), (column, key)}


def _has_objects(values: list[Any]) -> bool:
    """Whether a list has objects that are no turns; keys of turns are in ``Message.fields``.

    Rows have thousands of token ids, so a list is searched without a step of Python for each item.
    """
    if dict not in map(type, values):
        return False
    first = values[0] if type(values[0]) is dict else next(o for o in values if type(o) is dict)
    return "role" not in first and "from" not in first


def _unread_in(values: list[Any], before: str) -> Iterator[tuple[str, Any]]:
    rows = [one for one in values if isinstance(one, Watched)]
    read = set().union(*(row._read for row in rows))
    for row in rows:
        for path, value in row.unread(before):
            if path.removeprefix(before) not in read:
                yield path, value
