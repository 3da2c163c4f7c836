"""What judgements say: which of two answers is better, how good a step is, and what several judges
say together.

Endings of a path make one value of a list. ``votes[most]`` is what most of the values say, of two
lists together for ``a,b[most]``, ``marks[mean]`` is their mean, and ``marks[1..5]`` brings numbers
from 1 (the worst) to 5 (the best) to 0 to 1. ``answers,passed[good]`` is the first answer that is
good, the empty text where none is, ``answers,scores[top]`` the first of the highest number;
``article,post[first]`` is the first text that says something, ``asked[only]`` the only one of a
list of one. ``first_bad[place]`` is the number in a text such as ``step 2``, null for none.
``harm[low]`` turns numbers round of which a low one is good. ``preference[nearest]`` is the nearest
whole number, ``tie`` between two. ``ranking[order]`` are the ranks of answers that letters or
names name from best to worst. ``scores[best]`` is the place of the highest, ``tie`` of equal ones.
``a,b[options]`` is one text of several, a line with a letter of each.
``log[turns]`` are turns with ``role`` and ``content``, whatever their keys are called, and
``asked,answered[exchanges]`` those of two lists of texts, each text with that of the other list.
``prompt[json]`` is what a text lists, texts or turns, as JSON or as Python prints it, of a list of
one text that text. ``solution[step]`` are texts without their + or - at the end, ``solution[sign]``
these signs. Endings may follow others."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stages.rows import signals, speakers, words
from stages.rows.words import exact, listing

TIE = "tie"  # what most values say where no value stands there more often than all others
_ENDED = re.compile(
    r"(?P<path>.+)\[(?P<how>most|mean|best|first|only|step|sign|good|top|options|place|turns|low|nearest|order|json|exchanges|-?\d+\.\.-?\d+)\]"
)
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


def together(value: Any, how: str) -> Any:
    """What a value says under an ending; where lists stand in a list, what each of them says."""
    if how in ("turns", "options"):
        return speakers.turned(value) if how == "turns" else words.lettered(value)
    if how == "exchanges":
        return speakers.exchanged(value)
    if how == "json":
        inside = listed_in(value)
        return inside[0] if len(inside) == 1 and isinstance(inside[0], str) else inside or None
    if how == "order":
        return words.ranks_in(value) or None
    if how == "nearest":
        number = spelled(value)
        return value if number is None else TIE if number % 1 == 0.5 else round(number)
    if how == "place":
        return _number_in(str(value)) if is_place(value) else value
    if how in ("good", "top"):
        return _chosen(value, how)
    each = how in ("low", "step", "sign") or ".." in how
    if isinstance(value, list) and (each or list in map(type, value)):
        return [together(one, how) for one in value]
    if how in ("step", "sign"):
        signed = signed_in(value)
        return signed[how] if signed else value
    if how == "low":
        number = float(value) if isinstance(value, bool) else spelled(value)
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
    numbers = [float(one) if isinstance(one, bool) else spelled(one) for one in values]
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


def _chosen(both: Any, how: str) -> Any:
    """The first good one of a list of answers, by a list of verdicts, or the first with the highest
    number; None where these are not as many."""
    lists = isinstance(both, list) and [*map(type, both)] == [list, list]
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
    turns = all(isinstance(one, dict) and speakers.is_said(one) for one in found)
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
    return isinstance(value, bool) or spelled(value) is not None


def are_numbers(value: Any) -> bool:
    """Whether a value is a list of such values."""
    return isinstance(value, list) and bool(value) and all(map(is_marked, value))


def of_several(value: Any) -> bool:
    """Whether a value is a list of what several judges say: a list of each thing."""
    several = isinstance(value, list) and bool(value)
    return several and all(isinstance(one, list) and one for one in value)


# Words for how good one thing is.

GOOD = exact("value", "good", "yes")
BAD = exact("value", "bad", "no")
NEUTRAL = exact("value", "neutral")


def is_good(value: Any) -> bool | None:
    """What a verdict on one answer says: true, half of 1 or more, a word; None for no verdict."""
    if isinstance(value, str) and (word := value.strip().casefold()) in GOOD | BAD:
        return word in GOOD
    number = float(value) if isinstance(value, bool) else spelled(value)
    return number >= 0.5 if number is not None and 0 <= number <= 1 else None


# Words and marks for which of two is better.

_WORDS = dict.fromkeys(GOOD | exact("better", "both"), True)
_WORDS |= dict.fromkeys(BAD | exact("worse", "both"), False)

_TIES, _BETTER = exact("two", "tie"), exact("two", "better")
_LETTERS = {word: at for at, side in enumerate(("left", "right")) for word in exact("two", side)}
_TWO = [tuple(two.split(":")) for two in exact("sides", "role")]
_SAYING = 5  # words of a verdict such as A-is-clearly-better
_NEGATING = exact("value", "negating")
_NOUNS = listing("two", "noun")
_SIDE = rf"(?:{'|'.join(_NOUNS)})?_?([ab])"
# A>B, model_a>>model_b, B~A; brackets and blanks are taken off before
_COMPARED = re.compile(rf"{_SIDE}(>+|<+|=+|~|≈){_SIDE}")
_PART = re.compile(r"\d+|[A-Z]+(?![a-z])|[^\W\d_][^\W\d_A-Z]*")


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
    told = [float(one) if isinstance(one, bool) else spelled(one) for one in flags]
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


def parts(name: str) -> tuple[str, ...]:
    """The words and numbers of a name, in lower case."""
    return tuple(map(str.casefold, _PART.findall(name)))


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
    said = parts(value)
    if all(map(str.isdigit, said)):
        return None  # an index, which may count from 0 or from 1
    if (named := named_by(value, names)) is not None:
        return named
    rest = [one for one in said if one not in _NOUNS]
    sides = [_LETTERS[one] for one in rest if one in _LETTERS]
    alone = len(rest) == 1 or (len(rest) <= _SAYING and not _BETTER.isdisjoint(rest))
    alone = alone and _NEGATING.isdisjoint(rest)
    return sides[0] if len(sides) == 1 and alone else None


def named_by(value: Any, names: Sequence[str]) -> int | None:
    """Which of two columns a text names; none by a number, which may count from 0 or from 1."""
    says = isinstance(value, str) and not all(map(str.isdigit, parts(value)))
    return named_among(value, names) if says and len(names) == 2 else None


def named_among(value: Any, names: Sequence[str]) -> int | None:
    """Which of several columns a value names by the word or number that only this one has."""
    each = [frozenset(parts(name)) for name in names]
    common = each[0].intersection(*each) | {*_NOUNS}
    number = spelled(value)
    told = frozenset(parts(str(value) if number is None else f"{number:g}")) - common
    own = [one - common for one in each]
    return own.index(told) if told and own.count(told) == 1 else None


@functools.lru_cache(4096)
def are_sides(one: str, other: str) -> bool:
    """Whether two names differ in a side alone: ``score_a`` and ``score_b``."""
    left, right = ({*parts(name)} for name in (one, other))
    return any(left - right == {a} and right - left == {b} for a, b in _TWO)


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
