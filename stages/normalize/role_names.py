"""The roles that columns play: of each format, in ``roles.toml``, and by the words of a name, in
``stages/rows/words.toml``. Numbers count only where they tell two sides apart."""

import functools
import itertools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
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
_SPREAD, _EXPLAINED = exact("spread", "sign"), exact("explained", "sign")
SPOKEN, TALKS = exact("spoken", "role"), exact("talk", "role")
# What answers are checked against; it is trained only where it is no more than a short name of one.
_REFERENCE = exact("reference", "role")
_REVISED, _DRAFT = exact("revised", "role"), exact("draft", "role")
_OVERALL = exact("overall", "sign")
_CHECKED = _REFERENCE | exact("checked", "role")
BETTER, WORSE = exact("better", "both", "role"), exact("worse", "both", "role")
_FAILED = WORSE | exact("failed", "role")
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


def mentions(path: str, wanted: str) -> bool:
    """Whether any word of a name means a role: ``mistake_index`` an error."""
    return wanted in map(words.role, parts(path))


def is_about(path: str) -> bool:
    """Whether the name is that of something about a column: the model that wrote an answer."""
    own = [p for p in without_numbers(path) if p not in BETTER | WORSE and len(p) > 1]
    return bool(own) and (own[-1] in _ABOUT or not _KEPT.isdisjoint(own))


def is_no_rating(path: str) -> bool:
    """Whether the name says what is bad, or how far numbers are apart."""
    return signals.is_low(path) or not _SPREAD.isdisjoint(parts(path))


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
        if numbered and (role in ("question", "answer") or whose in SPOKEN):
            family = families.setdefault("" if role else whose, {})
            family[int(number), role == "answer"] = path
    found = []
    for whose, places in families.items():
        numbers = sorted({number for number, _ in places})
        in_a_row = numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        if in_a_row and len(places) == (1 if whose else 2) * len(numbers) > 1:
            found.append(",".join(places[place] for place in sorted(places)))
    return found


def titled(paths: Sequence[str]) -> dict[str, str]:
    """Names with that of their title: ``question_body`` with ``question_title``."""
    several = [path for path in paths if len(parts(path)) > 1]
    each = ((b, a, words.differing(a, b)) for a in several for b in several)
    told = ((b, a, *odd) for b, a, odd in each if odd)
    return {b: a for b, a, odd, own in told if odd == "title" and words.role(own) == "topic"}


def are_answers(path: str) -> bool:
    """Whether the name is that of several answers: ``generations``, ``choices``."""
    named = role_of(path) in ("answer", "verdict")
    return named and without_numbers(path.removesuffix(".text"))[-1][-1] == "s"


def is_talk(path: str) -> bool:
    """Whether the name may be that of a list of turns."""
    return not TALKS.isdisjoint(parts(judgements.bare(path))[-1:])


def may_be_listed(path: str) -> bool:
    """Whether a text of this name may be the JSON of several: of questions, of answers, or of what
    is said in turn."""
    return role_of(path) in ("question", "answer") or is_talk(path)


def is_reference(path: str) -> bool:
    """Whether the name says that answers are checked against it."""
    return not _REFERENCE.isdisjoint(parts(path))


def may_be_checked_against(path: str) -> bool:
    """Whether the name may also be that of a reference: ``correct_answer``."""
    return is_reference(path) or not _CHECKED.isdisjoint(parts(path))


def is_overall(path: str) -> bool:
    """Whether the name is that of a judgement on the whole."""
    return not _OVERALL.isdisjoint(parts(path))


def is_draft(path: str) -> bool:
    """Whether the name says that something else was made of this."""
    return not _DRAFT.isdisjoint(parts(path))


def is_worse(path: str) -> bool:
    """Whether the name says that this answer is the worse one."""
    return not WORSE.isdisjoint(parts(path))


def is_failed(path: str) -> bool:
    """Whether the name says that this answer is the worse one, or a bad one; a word further in
    front says something else: ``failure_analysis_response``."""
    said = [part for part in parts(path) if not part.isdigit()]
    return not _FAILED.isdisjoint(said[-2:]) and (len(said) == 1 or role_of(path) == "answer")


def answer_beside(path: str, row: Row) -> str:
    """The answer of whoever a column is of, by what their names share; empty where none is."""
    whose = signals.whose(path)
    texts = [name for name in row if isinstance(row[name], str) and role_of(name) == "answer"]
    texts = [name for name in texts if not is_reference(name)]
    return next((name for name in texts if whose and signals.whose(name) == whose), "")


def how_good(path: str, rows: Sequence[Row]) -> int:
    """In how many rows a verdict on whoever a column is of is good."""
    whose = signals.whose(path)
    beside = (name for name in rows[0] if whose and signals.whose(name) == whose)
    names = [*filter(column_names.is_rating, beside)]
    return sum(judgements.is_good(row.get(name)) is True for row in rows for name in names)


def by_better(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names of which one says that it is the better one and the other the worse."""
    worse = [path for path in paths if not _FAILED.isdisjoint(parts(path))]
    each = ((a, b, words.differing(a, b)) for a in paths for b in worse)
    both = ((a, b, *odd) for a, b, odd in each if odd)
    told = ((a, b, own) for a, b, own, bad in both if bad in (_FAILED if own in BETTER else WORSE))
    return [(a, b) for a, b, own in told if own in BETTER or (not own and role_of(a) == "answer")]


def revisions(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names of which one says that it was made of the other: edited, original."""
    both = ((a, b, words.differing(a, b)) for a in paths for b in paths)
    return [(a, b) for a, b, odd in both if odd and odd[0] in _REVISED and odd[1] in _DRAFT]


def by_revision(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Sides by ``by_better``, and each two answers of which one was made of the other."""
    return [*by_better(paths), *(two for two in revisions(paths) if role_of(two[0]) == "answer")]


def by_side(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names that differ in a side alone: ``a`` and ``b``, ``1`` and ``2``."""
    return [(a, b) for a in paths for b in paths if words.differing(a, b) in _SIDES]


def by_same(
    texts: Sequence[str], numbers: Sequence[str]
) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Each two texts and two numbers of whose names one has a word more, the same of both."""
    every = itertools.product(texts, texts, numbers, numbers)
    each = (((a, b), (c, d), words.differing(a, b), words.differing(c, d)) for a, b, c, d in every)
    return [(two, both) for two, both, odd, same in each if odd and odd == same and not odd[0]]


def are_worse(name: str) -> bool:
    """Whether a list by this name has answers that nobody is to learn."""
    return is_failed(name) or is_worse(name)


def are_of_answers(path: str) -> bool:
    """Whether the objects of a list are answers by its name, and good ones by its key's, too."""
    both = path.split("[].")
    unwanted = any(are_worse(name) or is_reference(name) for name in both)
    return role_of(both[0]) == "answer" and not unwanted


def maps(names: Sequence[str], columns: Sequence[str]) -> str:
    """Options that read some names from some columns."""
    pairs = zip(names, columns, strict=True)
    return " ".join(mapped(name, column) for name, column in pairs)
