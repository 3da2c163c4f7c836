"""The roles that columns play: of each format, and by the words of a column's name, which are in
``stages/rows/words.toml``.

Numbers count only where they tell two sides apart.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stages import kinds
from stages.rows import words
from stages.rows.words import exact, role


@dataclass(frozen=True)
class Shape:
    """The names of a format that play roles.

    Attributes:
        needs: the role of each name that a row must have; ``may``: of those that it may have.
    """

    format: str
    needs: Mapping[str, str]
    may: Mapping[str, str]


_AHEAD = {"system": "system text", "history": "history"}
_BESIDE = {**_AHEAD, "tools": "tools"}
_TURNS = {**_BESIDE, "turn_weights": "weights of turns"}
_PAIR = {**_AHEAD, "chosen_score": "chosen score", "rejected_score": "rejected score"}
TWO = {"response_a": "first answer", "response_b": "second answer"}
_TALKS = {"response_a": "first turns", "response_b": "second turns"}
# Two answers whose names end in numbers keep them, as the index of the better one counts so.
COUNTED = {("1", "2"): ("response_1", "response_2"), ("0", "1"): ("response_0", "response_1")}
_STEPS = {"problem": "question", "steps": "steps"}
SHAPES: Mapping[str, tuple[Shape, ...]] = {
    kinds.CONVERSATION: (
        Shape("openai", {"messages": "turns"}, _TURNS),
        Shape("sharegpt", {"messages": "turns"}, _TURNS),
        Shape("openai", {"messages": "spoken turns"}, _AHEAD),
        Shape("text", {"text": "dialogue"}, _AHEAD),
        Shape("query_response", {"question": "question", "answer": "answer"}, _BESIDE),
        Shape("query_response", {"question": "question", "answer": "good answer"}, _BESIDE),
        Shape(
            "prompt_completion", {"prompt": "asking turns", "completion": "spoken answer"}, _BESIDE
        ),
        Shape(
            "alpaca", {"instruction": "instruction", "input": "input", "output": "answer"}, _BESIDE
        ),
        Shape(
            "message_thinking",
            {"problem": "prompt", "message_thinking": "reasoning", "message_content": "answer"},
            _BESIDE,
        ),
    ),
    kinds.PAIR: (
        Shape(
            "preference",
            {"prompt": "prompt", "chosen": "chosen answer", "rejected": "rejected answer"},
            _PAIR,
        ),
        Shape("preference", {"chosen": "chosen turns", "rejected": "rejected turns"}, _PAIR),
        Shape("indexed_pair", {"prompt": "prompt", **TWO, "winner": "verdict"}, _AHEAD),
        Shape("indexed_pair", {**_TALKS, "winner": "verdict"}, {}),
        Shape(
            "strength_pair", {"prompt": "prompt", **TWO, "preference_strength": "strength"}, _AHEAD
        ),
        *(
            Shape(name, {"prompt": "prompt", "responses": answers, order: role}, _AHEAD)
            for name, answers, order, role in (
                ("indexed_pair", "two answers", "winner", "verdict"),
                ("ranked", "list of answers", "scores", "scores"),
                ("ranked", "list of answers", "ranks", "ranks"),
                ("ranked", "sides", "scores", "numbers of sides"),
                ("ranked", "sides", "scores", "two numbers"),
            )
        ),
    ),
    kinds.STEPS: (
        Shape("stepwise", {**_STEPS, "labels": "ratings"}, _AHEAD),
        Shape(
            "openrlhf_prm",
            {"problem": "question", "steps": "tagged steps", "labels": "ratings of text"},
            _AHEAD,
        ),
        Shape("processbench", {**_STEPS, "first_error": "first error"}, _AHEAD),
        Shape("error_list", {**_STEPS, "error_steps": "wrong steps"}, _AHEAD),
    ),
}

# The words of names.

parts, without_numbers = words.parts, words.words

# These go before the others where several words of a name mean one; of the others the last word
# that means one is the noun: model_input is a question, question_answer an answer.
_FIRST = ("system", "tools", "history")
_LETTERS = {"q": "question", "a": "answer"}
# A column about another one is not that one: question_id, response_model, solution_is_valid.
_ABOUT = exact("about", "both", "role")
_SAID, _KEPT = exact("said", "role"), exact("kept", "role")
SPOKEN, TALKS = exact("spoken", "role"), exact("talk", "role")
# What answers are checked against; it is trained only where it is no more than a short name of one.
_REFERENCE = exact("reference", "role")
_CHECKED = _REFERENCE | exact("checked", "role")
BETTER, WORSE = exact("better", "both", "role"), exact("worse", "both", "role")
_SIDES = [tuple(two.split(":")) for two in exact("sides", "role")]


@functools.lru_cache(4096)
def role_of(path: str) -> str:
    """The role that a column's name suggests; empty where it suggests none.

    Inside an object the key says it, or the object where the key is no more than ``text``.
    """
    place, _, key = path.rpartition(".")
    if key.isdecimal() and place:
        return role_of(place)
    if place and _KEPT.isdisjoint(parts(place)):
        return role_of(place) if key in _SAID else role_of(key)
    said = without_numbers(path)
    if not said or said[-1] in _ABOUT or not _KEPT.isdisjoint(said):
        return ""
    meant = [one for word in said if (one := role(word))]
    first = next((one for one in meant if one in _FIRST), "")
    if first or len(said) == 1:
        return first or _LETTERS.get(said[0], "") or "".join(meant)
    if not {"is", "has", "num"}.isdisjoint(said):
        return ""
    return ([one for one in meant if one != "topic"] or meant or [""])[-1]


def mentions(path: str, wanted: str) -> bool:
    """Whether any word of a name means a role: ``mistake_index`` an error."""
    return wanted in map(role, parts(path))


def is_about(path: str) -> bool:
    """Whether the name is that of something about a column: the model that wrote an answer."""
    own = [p for p in without_numbers(path) if p not in BETTER | WORSE and len(p) > 1]
    return bool(own) and (own[-1] in _ABOUT or not _KEPT.isdisjoint(own))


def may_be_asked(path: str) -> bool:
    """Whether the name is of no role but that of a context, and not about another column, but for
    ``source``, beside which an answer is the target."""
    free = not is_about(path) or parts(path)[-1] == "source"
    return role_of(path) in ("", "context") and free


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
        if (
            before
            and "." not in path
            and number.isdecimal()
            and (role in ("question", "answer") or whose in SPOKEN)
        ):
            family = families.setdefault("" if role else whose, {})
            family[int(number), role == "answer"] = path
    found = []
    for whose, places in families.items():
        numbers = sorted({number for number, _ in places})
        in_a_row = numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        if in_a_row and len(places) == (1 if whose else 2) * len(numbers) > 1:
            found.append(",".join(places[place] for place in sorted(places)))
    return found


def are_answers(path: str) -> bool:
    """Whether the name is that of several answers: ``generations``."""
    return role_of(path) == "answer" and without_numbers(path.removesuffix(".text"))[-1][-1] == "s"


def is_talk(path: str) -> bool:
    """Whether the name may be that of a list of turns."""
    return parts(path)[-1] in TALKS


def is_reference(path: str) -> bool:
    """Whether the name says that answers are checked against it."""
    return not _REFERENCE.isdisjoint(parts(path))


def may_be_checked_against(path: str) -> bool:
    """Whether the name may also be that of a reference: ``correct_answer``."""
    return is_reference(path) or not _CHECKED.isdisjoint(parts(path))


def is_worse(path: str) -> bool:
    """Whether the name says that this answer is the worse one."""
    return not WORSE.isdisjoint(parts(path))


def _differing(left: str, right: str) -> tuple[str, str] | None:
    """The one part in which two names differ; empty on the side that lacks it."""
    one, other = parts(left), parts(right)
    if len(one) == len(other):
        odd = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
        return odd[0] if len(odd) == 1 else None
    more = [n for n in range(len(other)) if (*other[:n], *other[n + 1 :]) == one]
    return ("", other[more[0]]) if more else None


def by_better(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names of which one says that it is the better one and the other the worse."""
    worse = [*filter(is_worse, paths)]
    return [
        (left, right)
        for left in paths
        for right in worse
        if (odd := _differing(left, right)) and odd[1] in WORSE
        if odd[0] in BETTER or (not odd[0] and role_of(left) == "answer")
    ]


def by_side(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each two names that differ in a side alone: ``a`` and ``b``, ``1`` and ``2``."""
    return [(a, b) for a in paths for b in paths if _differing(a, b) in _SIDES]
