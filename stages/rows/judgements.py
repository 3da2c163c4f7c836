"""What judgements say: which of two answers is better, how good a step is, what several judges say.

Endings of a path (``votes[most]``, ``answers,scores[top]``) make one value of what stands there,
and may follow one another; ``docs/formats.md`` says what each of them is."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stages.rows import signals, speakers, words
from stages.rows.words import exact, listing

TIE = "tie"  # what most values say where no value stands there more often than all others
_ENDED = re.compile(
    r"(?P<path>.+)\[(?P<how>most|mean|best|first|only|step|sign|good|top|options|place|turns|low|nearest|order|json|exchanges|listed|stopped|-?\d+\.\.-?\d+)\]"
)
_PARTED = re.compile(r"[,;|]")
CHOSEN = ("[good]", "[top]")  # the endings that choose one of several answers
_NOTHING = (None, "")
_NO_PLACE = exact("value", "no") | {"none", "null", "n/a", "correct", "-"}


def ended(path: str) -> tuple[str, str]:
    """A path without its last ending, and what the ending asks for; empty where it has none."""
    found = _ENDED.fullmatch(path)
    return (found["path"], found["how"]) if found else (path, "")


def bare(path: str) -> str:
    """A path without endings."""
    while (shorter := ended(path)[0]) != path:
        path = shorter
    return path.removesuffix("[]")


_OF_ANY: Mapping[str, Callable[[Any], Any]] = {
    "turns": speakers.turned,
    "options": words.lettered,
    "exchanges": speakers.exchanged,
    "order": lambda value: words.ranks_in(value) or None,
    "listed": lambda v: [*map(str.strip, _PARTED.split(v))] if isinstance(v, str) else v,
}


def together(value: Any, how: str) -> Any:
    """What a value says under an ending; where lists stand in a list, what each of them says."""
    if how in _OF_ANY:
        return _OF_ANY[how](value)
    if how == "json":
        inside = listed_in(value)
        return inside[0] if len(inside) == 1 and isinstance(inside[0], str) else inside or None
    if how == "nearest":
        number = spelled(value)
        return value if number is None else TIE if number % 1 == 0.5 else round(number)
    if how == "place":
        return _number_in(str(value)) if is_place(value) else value
    if how in ("good", "top", "stopped"):
        return _of_two(value, how)
    each = how in ("low", "step", "sign") or ".." in how
    if isinstance(value, list) and (each or list in map(type, value)):
        return [together(one, how) for one in value]
    if how in ("step", "sign"):
        signed = signed_in(value)
        return signed[how] if signed else value
    if how == "low":
        number = measured(value)
        return value if number is None else -number
    if each:
        low, high = map(int, how.split(".."))
        number = spelled(value)
        return value if number is None or low == high else (number - low) / (high - low)
    there = [one for one in value if one not in _NOTHING] if isinstance(value, list) else [value]
    return _MADE[how](there)


def _mean(values: Sequence[Any]) -> float | None:
    numbers = [number for one in values if (number := spelled(one)) is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _most(values: Sequence[Any]) -> Any:
    """The first of the values that say what most say: which side is better, in whatever words."""
    sides = [TIE if is_tie(one) else side_of(one) for one in values]
    meant = [*values] if None in sides else sides
    counts = {meant.index(one): meant.count(one) for one in meant}
    most = [at for at, count in counts.items() if count == max(counts.values())]
    if len(most) != 1 or meant[most[0]] == TIE:
        return TIE if most else None
    return values[most[0]]


def _best(values: Sequence[Any]) -> int | str | None:
    numbers = [measured(one) for one in values]
    known = [number for number in numbers if number is not None]
    if len(known) < 2:
        return None
    return numbers.index(max(known)) if len({*known}) > 1 else TIE


_PLACE = re.compile(r"\D{0,8}?(-?\d+)(?:\.0*)?")


def _number_in(text: str) -> int | None:
    found = _PLACE.fullmatch(text.strip())
    return int(found[1]) if found else None


def is_place(value: Any) -> bool:
    """Whether a value is a whole number, a text with one (``step 2``), or a word for none."""
    said = str(value).strip().casefold() if type(value) in (int, float, str) else ""
    return _number_in(said) is not None or said in _NO_PLACE


def _of_two(both: Any, how: str) -> Any:
    """The first good one of a list of answers, by a list of verdicts, or the first with the highest
    number; of marks that end behind a bad one, with null for each step that is left. None where the
    lists are not as many."""
    lists = isinstance(both, list) and [*map(type, both)] == [list, list]
    if lists and how == "stopped":
        ends = both[0] != [] and is_bad(both[0][-1])
        return both[0] + [None] * ((len(both[1]) - len(both[0])) * ends)
    if not lists or len(both[0]) != len(both[1]):
        return None
    marks = [is_good(one) if how == "good" else spelled(one) for one in both[1]]
    most = True if how == "good" else max((n for n in marks if n is not None), default=None)
    return next((one for one, mark in zip(both[0], marks, strict=True) if mark == most), "")


_MADE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "most": _most,
    "mean": _mean,
    "best": _best,
    "first": lambda values: next(iter(values), None),
    "only": lambda values: values[0] if len(values) == 1 else values,
}


def spelled(value: Any) -> float | None:
    """The number that a value is or spells; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if number == number else None  # of NaN, none


def measured(value: Any) -> float | None:
    """The same, and 1 for true, 0 for false."""
    return float(value) if isinstance(value, bool) else spelled(value)


def flat(value: Any, nothing: Sequence[Any] = _NOTHING) -> Iterator[Any]:
    """All values in a list of any depth that say anything."""
    if isinstance(value, list):
        for one in value:
            yield from flat(one, nothing)
    elif value not in nothing:
        yield value


def depth(value: Any) -> int:
    """How many lists stand in one another."""
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def listed_in(value: Any) -> list[Any]:
    """What a text lists, which is a list of texts, of calls of tools or of turns, or one turn;
    nothing of any other value."""
    said = signals.nested_in(value) if isinstance(value, str) else None
    found = [said] if isinstance(said, dict) and said else said or []
    turns = all(map(speakers.is_turn, found))
    known = turns or (found is said and signals.are_calls(found))
    return [*found] if known or all(isinstance(one, str) for one in found) else []


_SIGNED = re.compile(r"(?P<step>.*\S)\s+(?P<sign>[+-])\s*", re.DOTALL)


def signed_in(value: Any) -> re.Match[str] | None:
    """The ``step`` and the ``sign`` of a text that ends with + or -, behind a blank."""
    return _SIGNED.fullmatch(value) if isinstance(value, str) else None


def places_of_first_bad(labels: Sequence[float | None]) -> tuple[int, ...]:
    """What may stand for the first mistake among some steps, counted from 0 or from 1."""
    first = next((at for at, one in enumerate(labels) if one is not None and one < 0.5), None)
    return (-1, 0, len(labels)) if first is None else (first, first + 1)


def is_marked(value: Any) -> bool:
    """Whether a value is a number, spelled as one or not, or true or false."""
    return measured(value) is not None


def are_numbers(value: Any) -> bool:
    """Whether a value is a list of such values."""
    return isinstance(value, list) and bool(value) and all(map(is_marked, value))


def of_several(value: Any) -> bool:
    """Whether a value is a list of what several judges say: a list of each thing."""
    several = isinstance(value, list) and bool(value)
    return several and all(isinstance(one, list) and one for one in value)


GOOD = exact("value", "good", "yes")
BAD = exact("value", "bad", "no")
NEUTRAL = exact("value", "neutral")


def is_good(value: Any) -> bool | None:
    """What a verdict on one answer says: true, half of 1 or more, a word; None for no verdict."""
    if isinstance(value, str) and (word := value.strip().casefold()) in GOOD | BAD:
        return word in GOOD
    number = measured(value)
    return number >= 0.5 if number is not None and 0 <= number <= 1 else None


def is_bad(value: Any) -> bool:
    """Whether a verdict on one step says that it is wrong; -1 does, too."""
    return is_good(value) is False or spelled(value) == -1


# Words and marks for which of two is better.

_WORDS = dict.fromkeys(GOOD | exact("better", "both"), True)
_WORDS |= dict.fromkeys(BAD | exact("worse", "both"), False)

_TIES, _BETTER = exact("two", "tie"), exact("two", "better")
_LETTERS = {word: at for at, side in enumerate(("left", "right")) for word in exact("two", side)}
_TWO = [tuple(two.split(":")) for two in exact("sides", "role")]
_SAYING = 5  # words of a verdict such as A-is-clearly-better
_NEGATING = exact("value", "negating", "comparing")
_NOUNS = listing("two", "noun")
_SIDE = rf"(?:{'|'.join(_NOUNS)})?_?([ab])"
# A>B, model_a>>model_b, B~A; brackets and blanks are taken off before
_COMPARED = re.compile(rf"{_SIDE}(>+|<+|=+|~|≈){_SIDE}")


def _compared(plain: str) -> int | None:
    """The better answer of ``A>B``, ``[[B>>A]]`` or ``A < B``; -1 for ``A=B``; else None."""
    compared = _COMPARED.fullmatch(plain.strip("[]"))
    if compared is None or compared[1] == compared[3]:
        return None
    if compared[2][0] not in "<>":
        return -1
    return _LETTERS[compared[1] if compared[2][0] == ">" else compared[3]]


def one_hot(value: Any) -> int | None:
    """Which of two sides, or 2 for a tie, has the 1, or a word for the better one, in a list of a
    1 or a word for good and of 0 or words for bad."""
    if not isinstance(value, list) or len(value) not in (2, 3):
        return None
    flags = [_WORDS.get(v.strip().casefold(), v) if isinstance(v, str) else v for v in value]
    told = [measured(one) for one in flags]
    return told.index(1) if set(told) == {0, 1} and told.count(1) == 1 else None


def _is_named(value: Any) -> bool:
    """Whether a value is a winner's name, and the names of both sides."""
    several = isinstance(value, list) and len(value) == 3 and value[1] != value[2]
    several = several and one_hot(value) is None
    return several and all(isinstance(one, str) and one for one in value[1:])


def is_tie(value: Any) -> bool:
    """Whether a value says that neither answer is better; of a winner's name, that it is of
    neither because it is missing."""
    if _is_named(value):
        return value[0] in _NOTHING or (value[0] not in value[1:] and is_tie(value[0]))
    if isinstance(value, str):  # [[C]] is a tie where judges answer [[A]], [[B]] or [[C]]
        plain = "".join(value.split()).casefold()
        known = plain.strip("[]") in _TIES or plain == "[[c]]" or _compared(plain) == -1
        return known or signals.is_tie(value.strip().strip("[]").replace("_", " "))
    return (isinstance(value, float) and value == 0.5) or one_hot(value) == 2


def side_of(value: Any, names: tuple[str, ...] = ()) -> int | None:
    """Which of two answers a value names: 0 or 1; None where it names neither.

    Args:
        names: of the columns with the answers, as the file has them.
    """
    if _is_named(value):
        return value.index(value[0], 1) - 1 if value[0] in value[1:] else None
    if not isinstance(value, str):
        found = one_hot(value)
        return found if found in (0, 1) else None
    if value.strip() in names:
        return names.index(value.strip())
    plain = "".join(value.split()).casefold().strip("[]")
    if _COMPARED.fullmatch(plain):
        compared = _compared(plain)
        return compared if compared != -1 else None
    if (named := named_by(value, names)) is not None:
        return named
    rest = [one for one in words.parts(value) if one not in _NOUNS]
    own = _own_words(names)
    told = {word: at for at, some in enumerate(own) for word in some if all(own)} | _LETTERS
    sides = [told.get(one) for one in rest if one in told or one.isdecimal()]
    alone = len(rest) == 1 and not rest[0].isdecimal()  # an index may count from 0 or from 1
    alone |= len(rest) <= _SAYING and not _BETTER.isdisjoint(rest)
    alone &= _NEGATING.isdisjoint(rest)
    return sides[0] if len(sides) == 1 and alone else None


def named_by(value: Any, names: Sequence[str]) -> int | None:
    """Which of two columns a text names; none by a number, which may count from 0 or from 1."""
    says = isinstance(value, str) and not all(map(str.isdecimal, words.parts(value)))
    return named_among(value, names) if says and len(names) == 2 else None


def named_among(value: Any, names: Sequence[str]) -> int | None:
    """Which of several columns a value names by the word or number that only this one has."""
    number, own = spelled(value), _own_words(names)
    said = words.parts(str(value) if number is None else f"{number:g}")
    told = frozenset(said).difference(_NOUNS, frozenset(words.parts(names[0])) - own[0])
    return own.index(told) if told and own.count(told) == 1 else None


def _own_words(names: Sequence[str]) -> list[frozenset[str]]:
    """The words and numbers of each of some names that not all have, but for nouns of answers."""
    each = [frozenset(words.parts(name)) for name in names]
    return [one.difference(_NOUNS, frozenset.intersection(*each)) for one in each] if each else []


@functools.lru_cache(4096)
def are_sides(one: str, other: str) -> bool:
    """Whether two names differ in a side alone: ``score_a`` and ``score_b``."""
    return words.differing(one, other) in _TWO


def decided(values: Iterable[Any]) -> list[Any]:
    """The different verdicts among some values: what says nothing, and ties, are none."""
    different = {repr(value): value for value in values if value not in _NOTHING}
    return [value for value in different.values() if not is_tie(value)]


def name_sides(verdicts: Iterable[Any], names: tuple[str, ...] = ()) -> bool:
    """Whether verdicts that are no ties name both sides, and nothing else.

    Args:
        names: of the columns that they name; without any, sides are left and right, or A and B.
    """
    name = named_by if names else side_of
    return {name(verdict, names) for verdict in verdicts} == {0, 1}
