"""What the values of a column are, in a few words (``number 1 to 5``, ``2 to 6 turns``), and which
of them are the good ones."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

import orjson

from stages.contract import Row
from stages.rows import column_names, judgements, selection, signals, speakers, words

SHORT = 24  # characters of a value that is listed


def shape_of(values: Sequence[Any]) -> str:
    """The shape of values that are not empty, as words; of several, the most frequent first."""
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        by_kind.setdefault(kind_of(value), []).append(value)
    ordered = sorted(by_kind.items(), key=lambda pair: -len(pair[1]))
    return " or ".join(_WORDS[kind](some) for kind, some in ordered)


def mostly(said: Iterable[bool]) -> bool:
    """Whether more than half of some answers are yes."""
    told = [*said]
    return 2 * sum(told) > len(told)


def is_text(value: Any) -> bool:
    """Whether a value is a text."""
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or true or false."""
    return isinstance(value, int | float)


def are_within(values: Sequence[Any], low: float, high: float) -> bool:
    """Whether values are numbers, none of them outside of two."""
    return all(is_number(one) and low <= one <= high for one in values)


def is_list_of_texts(value: Any) -> bool:
    """Whether a value is a list of texts, and not empty."""
    return isinstance(value, list) and bool(value) and all(map(is_text, value))


def are_texts(value: Any) -> bool:
    """Whether a value is a list of several texts."""
    return is_list_of_texts(value) and len(value) > 1


def is_passages(value: Any) -> bool:
    """Whether a value is a text, or a list of texts."""
    return is_text(value) or is_list_of_texts(value)


_KINDS = ((bool, "flag"), (int | float, "number"), (dict, "object"))


def kind_of(value: Any) -> str:
    """What a value is, in a word."""
    if isinstance(value, str):
        return "text" if signals.nested_in(value) is None else "json"
    named = next((word for kind, word in _KINDS if isinstance(value, kind)), None)
    return named or ("turns" if value and all(map(speakers.is_turn, value)) else "list")


def _few(values: Sequence[Any]) -> str:
    """The different values of a column that has few short ones; else empty."""
    spelled = (str(v).lower() if isinstance(v, bool) else str(v) for v in values)
    counts = dict.fromkeys(spelled)
    repeated = len(counts) <= signals.FEW and 2 * len(counts) <= len(values)
    return ", ".join(counts) if repeated and max(map(len, counts)) <= SHORT else ""


def _span(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,g}" if low == high else f"{low:,g} to {high:,g}"


def _text(values: Sequence[str]) -> str:
    few, length = _few(values), round(median(map(len, values)))
    return f"text: {few}" if few else f"text of about {length:,} characters"


def _listed(values: Sequence[list[Any]]) -> str:
    inner = [one for value in values for one in value if one is not None]
    kinds = {kind_of(one) for one in inner}
    kind = kinds.pop() if len(kinds) == 1 else ""
    few = _few(inner) if kind in ("text", "number", "flag") else ""
    sizes = [*map(len, values)]
    noun = _NOUNS.get(kind, kind) + "s" * (max(sizes) != 1)
    return f"list of {_span(sizes)} {noun}" + (f" ({few})" if few else "")


_NOUNS = {"json": "JSON text", "turns": "dialogue", "": "item"}  # of the others their kind
_WORDS = {
    "flag": lambda values: " or ".join(sorted({str(v).lower() for v in values}, reverse=True)),
    "number": lambda values: f"number {_few(values) or _span(values)}",
    "text": _text,
    "json": lambda values: "JSON text",
    "object": lambda values: "object",
    "turns": lambda values: f"{_span([*map(len, values)])} turns",
    "list": _listed,
}


# Which values of a column that rates are good, as conditions (``--where``) that keep their rows.


_SCALE = 11  # different whole numbers, from 0 to 10, that are a scale with a middle
_YES, _NO = words.exact("value", "yes"), words.exact("value", "no")
_GOOD, _BAD = words.exact("value", "good"), words.exact("value", "bad")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?")
_NAMED = re.compile(r"[^\W\d]\w*(?:\.\w+)*")  # a path that an expression takes as it is
_NEGATING = words.exact("value", "negating")


def says_good(path: str, text: str) -> bool | None:
    """Whether a text says that a row is good, in its column; None where it says neither."""
    plain = "".join(text.casefold().split("_")).strip(" .!")
    low = signals.is_low(path)
    yes, no = _YES | {"high"}, _NO | {"low", *["none"] * low}
    if plain in yes or plain in no:  # of what the column's name asks
        return (plain in yes) != low
    if plain in _GOOD or plain in _BAD:
        return plain in _GOOD
    if signals.is_taken_away(text):
        return False
    said = words.words(text)
    negated = not _NEGATING.isdisjoint(said)
    own = [word for word in said if word not in _NEGATING]
    told = [word in _GOOD for word in own if word in _GOOD or word in _BAD]
    if told:
        return told[-1] != negated
    rated = list(filter(column_names.is_rating, own))
    return None if not rated else signals.is_low(rated[-1]) == negated


def keeping(path: str, values: Sequence[Any], everywhere: bool = True) -> str:
    """The option that keeps the good rows of a column; empty where it is unknown which are good.

    Args:
        values: of the rows that have one; ``everywhere``: nearly every row has. Where some have
            none, those are kept too.
    """
    told = [value for value in usual(values) if value is not None]
    if len(told) < len(values):  # an expression takes no text for a number
        values, everywhere = told, True
    kinds = {*map(type, values)}
    if kinds <= {dict, list}:
        inside = (keeping(where, some) for where, some in _inside(path, values))
        return next(filter(None, inside), "")
    if column_names.is_a(path, "untrained") or column_names.is_a(path, "aside"):
        return _unset(path, [*dict.fromkeys(values)], everywhere)
    if signals.is_error(path) and kinds == {str}:
        return _unset(path, values, False)
    found: tuple[str, Any] | None = None
    if kinds == {bool}:
        good = _good_flag(path, values)
        found = ("=", good) if good in values else None
    elif kinds <= {int, float}:
        found = _of_numbers(path, values)
    elif kinds == {str}:
        numbers = [float(value) for value in values if _NUMBER.fullmatch(value.strip())]
        marked = 2 * len(numbers) > len(values)  # others may be the names of errors
        found = _of_numbers(path, numbers) if marked else _of_words(path, values, everywhere)
        if marked and found and found[0] == "=":  # as it is written
            found = "=", next(one for one in values if judgements.spelled(one) == found[1])
        if marked and found and not everywhere:  # an expression takes no text for a number
            kept = selection.Condition(path, *found)
            bad = [one for one in dict.fromkeys(values) if not kept.holds({path: one})]
            found = ("!=", bad) if 0 < len(bad) <= signals.FEW else None
    if found is None and column_names.is_left_out(path, values[0]):
        return _unset(path, values, everywhere)
    return "" if found is None else _option(path, *found, everywhere)


def _unset(path: str, values: Sequence[Any], everywhere: bool) -> str:
    """The option that keeps the rows that nothing is said against."""
    off = [value for value in values if not signals.is_set(value)]
    if everywhere and off:
        on = [value for value in values if value not in off]
        return _option(path, "=", off[0], True) if len(off) == 1 else _option(path, "!=", on, True)
    if everywhere or _NAMED.fullmatch(path) is None:  # it would keep no row
        return ""
    off = ["", *off] if isinstance(values[0], str) else off
    said = [f"{path} IS NULL", *(f"{path} = {_quoted(value)}" for value in off)]
    return f"--filter {shlex.quote(' OR '.join(said))}"


def _option(path: str, sign: str, value: Any, everywhere: bool) -> str:
    if sign == "!=":
        spelled = ", ".join(_quoted(one) for one in value)
        said = f"{path} != {spelled}" if len(value) == 1 else f"{path} NOT IN ({spelled})"
    else:
        spelled = value if isinstance(value, str) else orjson.dumps(value).decode()
        if everywhere:
            return f"--where {shlex.quote(f'{path}{sign}{spelled}')}"
        said = f"{path} {sign} {_quoted(value)}"
    if _NAMED.fullmatch(path) is None:
        return ""
    return f"--filter {shlex.quote(f'{path} IS NULL OR {said}')}"


def _quoted(value: Any) -> str:
    """A value as expressions have it."""
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return orjson.dumps(value).decode()


def _inside(path: str, values: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """What is inside of lists and objects and may rate, with the path of each; flags first."""
    each = f"{path}[]" if list in map(type, values) else path
    flat = [one for v in values for one in (v if isinstance(v, list) else [v]) if one is not None]
    if flat and not any(isinstance(one, dict) for one in flat):
        yield each, flat
    inner = [*signals.keys_of(each, flat).items()]
    yield from ((key, some) for key, some in inner if signals.say_failed(key, some, len(flat)))
    for key, some in sorted(inner, key=lambda one: {*map(type, one[1])} != {bool}):
        if column_names.is_rating(key) and not isinstance(some[0], dict | list):
            yield key, some


def _good_flag(path: str, values: Sequence[bool]) -> bool | None:
    """Which of the two is good: as the name says, or the one that two of three rows have."""
    if signals.classes(path):
        return not signals.is_low(path)
    often, count = Counter(values).most_common(1)[0]
    return often if 3 * count >= 2 * len(values) else None


def _of_numbers(path: str, values: Sequence[float]) -> tuple[str, float] | None:
    """The sign and the number of the condition: the best of two, what is above the middle of a
    scale, the half of a share, and of any other numbers the better half of the rows."""
    if column_names.is_a(path, "place"):
        return ("=", -1) if -1 in values else None
    different = {*values}
    if column_names.is_a(path, "label") and not different <= {-1, 0, 1}:
        return None
    if len(different) == 1 and values[0] != 1:
        return None  # one value for all rows: nothing shows whether it is a good one
    low = signals.is_low(path)
    best, sign = (min(values), "<=") if low else (max(values), ">=")
    if len(different) <= 2 and _are_whole(different):
        return "=", _plain(best)
    if _is_scale(different):
        middle = (min(different) + max(different)) / 2
        return sign, math.ceil(middle) - 1 if low else math.floor(middle) + 1
    if min(values) >= 0 and max(values) <= 1:
        return sign, 0.5
    return sign, _plain(sorted(values)[len(values) // 2])


def _are_whole(numbers: Iterable[float]) -> bool:
    return all(float(number).is_integer() for number in numbers)


def _is_scale(numbers: Collection[float]) -> bool:
    return _are_whole(numbers) and max(numbers) - min(numbers) < _SCALE


def have_a_middle(values: Iterable[Any]) -> bool:
    """Whether values say by themselves which are good: words, a share of 1, the marks of a scale.
    Of other numbers only the better half is known."""
    told = [*judgements.flat([*values])]
    numbers = [number for one in told if (number := judgements.spelled(one)) is not None]
    if not numbers or len(numbers) < len(told) or (min(numbers) >= 0 and max(numbers) <= 1):
        return True
    return _is_scale({*numbers})


def _plain(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def _of_words(path: str, values: Sequence[str], everywhere: bool) -> tuple[str, Any] | None:
    """The one good text, or those that are bad where several are good or not all rows have one; of
    grades, the best one."""
    if not all(len(value) <= signals.SHORT for value in values):
        return None
    said = {value: says_good(path, value) for value in dict.fromkeys(values)}
    given_up = [value for value in said if signals.is_given_up(value)]
    if given_up := given_up or [value for value in said if signals.is_failure(path, value)]:
        return "!=", given_up
    good = [value for value, sense in said.items() if sense]
    bad = [value for value, sense in said.items() if sense is False]
    letters = len(said) > 1 and {*map(str.casefold, said)} <= {*"abcdef"}
    if letters and not bad and not words.exact("graded", "role").isdisjoint(words.parts(path)):
        good = [min(said, key=str.casefold)]
    if len(good) == 1 and (everywhere or not bad):
        return "=", good[0]
    return ("!=", bad) if bad else None


SAMPLED = 100  # rows that are looked at closely, from everywhere among those at hand


def spread(rows: Sequence[Row]) -> Sequence[Row]:
    """So many of some rows, at equal distances."""
    count = min(len(rows), SAMPLED)
    return [rows[at * len(rows) // count] for at in range(count)]


NEARLY_ALL = 0.9  # of the values of a column, which are what the column holds


def usual(values: Sequence[Any]) -> list[Any]:
    """Values of a column, without those of another kind than nearly all have: null in their place.
    All of them where no kind is that frequent."""
    kinds = [*map(_type_of, values)]
    counts = Counter(kind for kind in kinds if kind is not None)
    known = {kind for kind, count in counts.items() if count >= NEARLY_ALL * counts.total()}
    known = known or {*counts}
    return [value if kind in known else None for value, kind in zip(values, kinds, strict=True)]


def _type_of(value: Any) -> object:
    """What a value is, however long, and what a list has in it; None for a value that is empty."""
    if value in column_names.EMPTY:
        return None
    if isinstance(value, list):
        return frozenset(kind for one in value if (kind := _type_of(one)) is not None) or None
    if isinstance(value, str) and judgements.listed_in(value):
        return orjson
    return float if type(value) is int else type(value)
