"""The roles that columns play: of each format, in ``roles.toml``, and by the words of a name, in
``stages/rows/words.toml``. Numbers count only where they tell two sides apart."""

import functools
import itertools
import tomllib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.contract import Row
from stages.rows import column_names, judgements, signals, words
from stages.rows.unread import mapped
from stages.rows.words import exact


@dataclass(frozen=True)
class Shape:
    """The names of a format that play roles: ``needs``, which a row must have, ``may``, which it
    may have."""

    format: str
    needs: Mapping[str, str]
    may: Mapping[str, str]


_TABLE = tomllib.loads(Path(__file__).with_name("roles.toml").read_text("utf-8"))
SAID: Mapping[str, str] = _TABLE["said"]  # roles in other words


def _whole(names: Mapping[str, str]) -> dict[str, str]:
    """Names with their roles; ``with`` names what several add."""
    found: dict[str, str] = {}
    for name, played in names.items():
        found |= _whole(_TABLE["names"][played]) if name == "with" else {name: played}
    return found


SHAPES: Mapping[str, tuple[Shape, ...]] = {
    kind: tuple(
        Shape(one["format"], _whole(one["needs"]), _whole({"with": one["may"]})) for one in shapes
    )
    for kind, shapes in _TABLE["shapes"].items()
}
INSTEAD = _whole({"with": "instead"})
COUPLES: Mapping[str, str] = _TABLE["couples"]
OPEN: Mapping[str, tuple[str, str]] = _TABLE["open"]
GIVEN: Mapping[str, str] = _TABLE["given"]  # rows in which a step, a turn, an answer has a place
# Two answers whose names end in numbers keep them, as the index of the better one counts so.
COUNTED = {("1", "2"): ("response_1", "response_2"), ("0", "1"): ("response_0", "response_1")}
parts, without_numbers = words.parts, words.words
# These go before the others where several words of a name mean one; of the others the last word
# that means one is the noun: model_input is a question, question_answer an answer.
_FIRST = ("system", "tools", "history")
_ALONE = {"q": "question", "a": "answer", "sql": "answer"}  # of names with no other word
# A column about another one is not that one: question_id, response_model, solution_is_valid.
_ABOUT = exact("about", "both", "role")
_SAID, _KEPT = exact("said", "role"), exact("kept", "role")
_EXPLAINED, _SPOKEN = exact("explained", "sign"), exact("spoken", "role")
_TALKS = exact("talk", "role")
_REVISED, _DRAFT = exact("revised", "role"), exact("draft", "role")
_BETTER, _WORSE = exact("better", "both", "role"), exact("worse", "both", "role")
_FAILED = _WORSE | exact("failed", "role")
_SIDES = [tuple(two.split(":")) for two in exact("sides", "role")]


@functools.lru_cache(4096)
def role_of(path: str) -> str:
    """The role that a column's name suggests; empty where it suggests none. Inside an object the
    key says it, or the object where the key is no more than ``text``; what an object of numbers has
    for an answer is a number."""
    place, _, key = path.rpartition(".")
    if key.isdecimal() and place:
        return role_of(place)
    if place and _KEPT.isdisjoint(parts(place)):
        whole, own = role_of(place), role_of(key)
        return whole if key in _SAID or (whole == "number" and own == "answer") else own
    said = without_numbers(path)
    if not said or said[-1] in _ABOUT or not _KEPT.isdisjoint(said):
        return ""
    meant = [one for word in said if (one := words.role(word))]
    first = next((one for one in meant if one in _FIRST), "")
    if first or len(said) == 1:
        return first or _ALONE.get(said[0], "") or "".join(meant)
    if not {"is", "has", "num"}.isdisjoint(said):
        return ""
    return ([one for one in meant if one != "topic"] or meant or [""])[-1]


def is_letter(path: str, others: Container[str]) -> bool:
    """Whether a name is the letter A of several things, and no short word for an answer."""
    letter = path.rpartition(".")[2]
    return letter in ("a", "A") and path[:-1] + chr(ord(letter) + 1) in others


def mentions(path: str, wanted: str) -> bool:
    """Whether any word of a name means a role: ``mistake_index`` an error."""
    return wanted in map(words.role, parts(path))


@functools.lru_cache(8192)
def says(path: str, names: str) -> bool:
    """Whether a name has one of the words that mean something only as they stand in the table: of
    ``reference``, that answers are checked against it, of ``worse``, that it is the worse one."""
    listed = (exact(name, "both", "role", "sign") for name in names.split())
    return not all(some.isdisjoint(parts(path)) for some in listed)


def is_about(path: str) -> bool:
    """Whether the name is that of something about a column: the model that wrote an answer."""
    own = [p for p in without_numbers(path) if p not in _BETTER | _WORSE and len(p) > 1]
    return bool(own) and (own[-1] in _ABOUT or not _KEPT.isdisjoint(own))


def is_no_rating(path: str) -> bool:
    """Whether the name says what is bad, or how far numbers are apart."""
    return signals.is_low(path) or says(path, "spread")


def explains(path: str) -> bool:
    """Whether the name says of what it is the explanation, so that it follows on that."""
    said = {*without_numbers(path)} - words.FILLERS - words.SIDES
    of = {word for word in said - _EXPLAINED if "reasoning" not in words.signs(word)}
    return bool(of and said & _EXPLAINED)


def is_origin(path: str) -> bool:
    """Whether the name is ``source``: where a text is from, or what a target is made of."""
    return parts(path)[-1:] in (("source",), ("src",))


def may_be_asked(path: str) -> bool:
    """Whether the name is of no role but that of a context, and not about another column."""
    return role_of(path) in ("", "context") and (not is_about(path) or is_origin(path))


def may_be_told(path: str) -> bool:
    """Whether the name is that of a text by itself, or of no role that is known."""
    return role_of(path) in ("", "context", "topic") and not is_about(path)


def numbered_turns(paths: Iterable[str]) -> list[str]:
    """Families of names that number turns, each as one path: ``user_1,assistant_1,user_2``, or
    ``message_1,message_2``."""
    families: dict[str, dict[tuple[int, bool], str]] = {}
    for path in paths:
        *before, number = parts(path) or ("",)
        whose, role = "_".join(before), role_of(path)
        numbered = before and "." not in path and number.isdecimal()
        if numbered and (role in ("question", "answer") or whose in _SPOKEN):
            family = families.setdefault("" if role else whose, {})
            family[int(number), role == "answer"] = path
    found = []
    for whose, places in families.items():
        numbers = sorted({number for number, _ in places})
        in_a_row = numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        if in_a_row and len(places) == (1 if whose else 2) * len(numbers) > 1:
            found.append(",".join(places[place] for place in sorted(places)))
    return found


@functools.lru_cache(256)
def _differing(paths: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
    """Each two names that differ in one word, and the word of each."""
    each = ((a, b, words.differing(a, b)) for a, b in itertools.product(paths, paths))
    return [(a, b, *odd) for a, b, odd in each if odd]


def titled(paths: Sequence[str]) -> dict[str, str]:
    """Names with that of their title: ``question_body`` with ``question_title``."""
    told = _differing(tuple(path for path in paths if len(parts(path)) > 1))
    return {b: a for a, b, odd, own in told if odd == "title" and words.role(own) == "topic"}


def are_answers(path: str) -> bool:
    """Whether the name is that of several answers: ``generations``, ``choices``."""
    named = role_of(path) in ("answer", "verdict")
    return named and without_numbers(path.removesuffix(".text"))[-1][-1] == "s"


def is_talk(path: str) -> bool:
    """Whether the name may be that of a list of turns."""
    return not _TALKS.isdisjoint(parts(judgements.bare(path))[-1:])


def may_be_listed(path: str) -> bool:
    """Whether a text of this name may be the JSON of several: of questions, of answers, or of what
    is said in turn."""
    return role_of(path) in ("question", "answer") or is_talk(path)


def is_failed(path: str) -> bool:
    """Whether the name says that this answer is the worse one, or a bad one; a word further in
    front says something else: ``failure_analysis_response``."""
    said = [part for part in parts(path) if not part.isdecimal()]
    return not _FAILED.isdisjoint(said[-2:]) and (len(said) == 1 or role_of(path) == "answer")


def answer_beside(path: str, row: Row) -> str:
    """The answer of whoever a column is of, by what their names share, or that its name names
    first (``is_first_try_like_second_try``); empty where none is."""
    whose, said = signals.whose(path), "_".join(parts(path))
    texts = [name for name in row if isinstance(row[name], str) and role_of(name) == "answer"]
    texts = [name for name in texts if not says(name, "reference")]
    own = next((name for name in texts if whose and signals.whose(name) == whose), "")
    spoken = [name for name in texts if len(parts(name)) > 1 and signals.is_prose(row[name])]
    named = (name for name in spoken if said.removeprefix("is_").startswith("_".join(parts(name))))
    return own or next((name for name in named if name != path), "")


def how_good(path: str, rows: Sequence[Row]) -> int:
    """In how many rows a verdict on whoever a column is of is good."""
    whose = signals.whose(path)
    beside = (name for name in rows[0] if whose and signals.whose(name) == whose)
    names = [*filter(column_names.is_rating, beside)]
    return sum(judgements.is_good(row.get(name)) is True for row in rows for name in names)


def by_better(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names of which one says that it is the better one and the other the worse."""
    return [
        (a, b)
        for a, b, own, bad in _differing(tuple(paths))
        if (own in _BETTER and bad in _FAILED)
        or (not own and bad in _WORSE and role_of(a) == "answer")
    ]


def revisions(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names of which one says that it was made of the other: edited, original."""
    both = _differing(tuple(paths))
    return [(a, b) for a, b, new, old in both if new in _REVISED and old in _DRAFT]


def by_revision(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Sides by ``by_better``, and each two answers of which one was made of the other."""
    return [*by_better(paths), *(two for two in revisions(paths) if role_of(two[0]) == "answer")]


def by_side(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names that differ in a side alone: ``a`` and ``b``, ``1`` and ``2``."""
    return [(a, b) for a, b, *odd in _differing(tuple(paths)) if tuple(odd) in _SIDES]


def by_same(
    texts: Sequence[str], numbers: Sequence[str]
) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Each two texts and two numbers of whose names one has a word more, the same of both."""
    every = itertools.product(_differing(tuple(texts)), _differing(tuple(numbers)))
    same = ((two, both) for two, both in every if two[2:] == both[2:] and not two[2])
    return [((a, b), (c, d)) for (a, b, *_), (c, d, *_) in same]


def are_worse(name: str) -> bool:
    """Whether a list by this name has answers that nobody is to learn."""
    return is_failed(name) or says(name, "worse")


def are_of_answers(path: str) -> bool:
    """Whether the objects of a list are answers by its name, and good ones by its key's, too."""
    both = path.split("[].")
    unwanted = any(are_worse(name) or says(name, "reference") for name in both)
    return role_of(both[0]) == "answer" and not unwanted


def maps(names: Sequence[str], columns: Sequence[str]) -> str:
    """Options that read some names from some columns."""
    pairs = zip(names, columns, strict=True)
    return " ".join(mapped(name, column) for name, column in pairs)
