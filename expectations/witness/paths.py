"""What stands at a path of a row, as ``--map``, ``--where`` and filters name it."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from expectations.witness.raw import UnreadError

_ENDED = re.compile(r"(.+)\[(\w+|-?\d+\.\.-?\d+)\]", re.DOTALL)
# Of what several paths give together.
_WHOLE = ("best", "good", "top", "options", "first", "exchanges", "stopped")
_JOINED = ("most", "mean")  # of what several lists say, as one list
_BEHIND = ("step", "sign")  # of a text that ends with + or -
_WHO = ("role", "from", "speaker", "sender", "actor", "who", "author", "by", "type", "name")
_WHAT = ("content", "value", "text", "message", "msg", "utterance", "body", "said")
_NONE = ("none", "null", "n/a", "correct", "-", "no")


def at(value: Any, path: str) -> Any:
    """The value there, or what an ending of the path makes of it; None where there is none.

    Raises:
        UnreadError: the ending is not one of those that are read here.
    """
    if isinstance(value, dict) and path in value:
        return value[path]
    ended = _ENDED.fullmatch(path)
    if "," in path and not (ended and ended[2] in (*_WHOLE, *_JOINED)):
        several = [at(value, one) for one in path.split(",")]
        while len(several) > 2 and several[-1] in (None, ""):
            several.pop()
        return several if any(one is not None for one in several) else None
    if ended:
        found = at(value, ended[1])
        joined = "," in ended[1] and ended[2] in _JOINED
        return _together([*leaves(found)] if joined else found, ended[2])
    head, inside, rest = path.partition("[]")
    for key in head.split("."):
        value = _inside(value)
        if isinstance(value, list):
            value = value[int(key)] if key.isdecimal() and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    value = _inside(value) if inside else value
    if not inside or not rest:
        return value
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return None
    each = [at(one, rest.removeprefix(".")) for one in value]
    return each if any(one is not None for one in each) else None


def _inside(value: Any) -> Any:
    """A value; of the text of a list or an object, what JSON has there."""
    return _said(value) if isinstance(value, str) else value


def _said(text: str) -> Any:
    """The list or the object that a text is as JSON or as Python has it; None of any other text.

    Raises:
        UnreadError: numpy may have printed it.
    """
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(text)
    except ValueError:
        if re.search(r"array\(|['\"\w\])}]\s+['\"\[({-]", text):
            raise UnreadError("what numpy may have printed") from None
    try:
        tree = ast.parse(text.strip(), mode="eval")
        keys = [
            [ast.dump(key) for key in one.keys if key]
            for one in ast.walk(tree)
            if isinstance(one, ast.Dict)
        ]
        said = ast.literal_eval(tree)
        again = json.loads(json.dumps(said, allow_nan=False))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return said if again == said and all(len({*some}) == len(some) for some in keys) else None


def number(value: Any) -> float | None:
    """The number that a value is or spells; None where it is none."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def leaves(value: Any) -> Iterator[Any]:
    """What lists hold, at any depth, but nulls."""
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, list):
            yield from leaves(one)
        elif one is not None:
            yield one


def _mean(values: list[Any]) -> float | None:
    known = [one for one in map(number, values) if one is not None]
    return sum(known) / len(known) if known else None


def _vote(value: Any) -> str | None:
    """The letter of the side that a vote is for, or ``tie``; None where it is no such vote."""
    words = re.findall(r"[^\W_]+", value.lower()) if isinstance(value, str) else []
    if words[:1] and words[0] in ("tie", "ties", "tied", "neither", "equal", "draw"):
        return "tie"
    sides = {"a", "b"}.intersection(words)
    sure = len(sides) == 1 and (len(words) == 1 or "better" in words)
    if len(words) > 1 and not sure:
        raise UnreadError("votes in other words")
    return sides.pop() if sure else None


def _most(values: list[Any]) -> Any:
    votes = [*map(_vote, values)]
    said = values if None in votes else votes
    most = max(map(said.count, said), default=0)
    often = [i for i, one in enumerate(said) if said.count(one) == most and one not in said[:i]]
    if len(often) != 1 or said[often[0]] == "tie":
        return "tie" if often else None
    return values[often[0]]


def _best(values: list[Any]) -> Any:
    every = [float(one) if isinstance(one, bool) else number(one) for one in values]
    known = [one for one in every if one is not None]
    if len(known) < 2:
        return None
    return every.index(max(known)) if min(known) < max(known) else "tie"


_MADE: dict[str, Callable[[list[Any]], Any]] = {
    "most": _most,
    "mean": _mean,
    "best": _best,
    "first": lambda values: values[0] if values else None,
    "only": lambda values: values[0] if len(values) == 1 else values,
}


def _together(value: Any, how: str) -> Any:
    if how in _OF_ONE:
        return _OF_ONE[how](value)
    scaled = how == "low" or ".." in how
    if isinstance(value, list) and (
        scaled or how in _BEHIND or any(isinstance(one, list) for one in value)
    ):
        return [_together(one, how) for one in value]
    if scaled:
        known = number(value)
        if known is None or isinstance(value, bool):
            raise UnreadError("a scale of what is no number")
        low, high = (0, -1) if how == "low" else map(int, how.split(".."))
        return (known - low) / (high - low) if low != high else value
    if how in _BEHIND:
        step, blank, sign = value.rstrip()[:-1], value.rstrip()[-2:-1], value.rstrip()[-1:]
        if sign not in "+-" or not blank.isspace() or not step.strip():
            raise UnreadError("a text without a sign")
        return sign if how == "sign" else step.rstrip()
    if how not in _MADE:
        raise UnreadError("a path with an ending")
    listed = isinstance(value, list)
    return _MADE[how]([one for one in value if one not in (None, "")] if listed else [value])


def _nearest(value: Any) -> Any:
    known = number(value)
    return value if known is None else "tie" if known % 1 == 0.5 else round(known)


def _order(value: Any) -> list[int] | None:
    """The ranks of the answers that letters, or the numbers of their columns, name from the best
    to the worst."""
    rows = [[one] for one in value] if isinstance(value, list) else []
    if isinstance(value, str):  # B > A = C
        rows = [one.split("=") for one in value.split(">")]
    said = [str(one).strip().lower() for row in rows for one in row]
    ends = [re.split(r"[^a-z0-9]|(?<=[a-z])(?=[0-9])", one)[-1] for one in said]
    every = [*"abcdefghijklmnopqrstuvwxyz"], [*map(str, range(26))], [*map(str, range(1, 26))]
    known = any(sorted(ends) == some[: len(ends)] for some in every)
    named = isinstance(value, str) or not all(map(str.isdecimal, said))
    place = [at for at, row in enumerate(rows, 1) for _ in row]
    ranks = [place[ends.index(one)] for one in sorted(ends)]
    return ranks if known and named and len(ends) > 1 else None


def _exchanges(both: Any) -> list[dict[str, Any]]:
    """The turns of two lists, or two texts, of which one asks what the other answers."""
    lists = [[x] if isinstance(x, str) else x for x in both] if isinstance(both, list) else []
    texts = [isinstance(one, list) and all(isinstance(x, str) for x in one) for one in lists]
    if texts != [True, True] or len(lists[0]) != len(lists[1]):
        raise UnreadError("lists of turns of another shape")
    asked, answered = lists
    pairs = zip(asked, answered, strict=True)
    whose = ("user", "assistant")
    return [{"role": who, "content": x} for two in pairs for who, x in zip(whose, two, strict=True)]


def _top(both: Any) -> Any:
    """Of several answers the first of those with the highest number."""
    listed = isinstance(both, list) and len(both) == 2 and all(isinstance(x, list) for x in both)
    if not listed or len(both[0]) != len(both[1]):
        return None
    known = [(mark, -at) for at, one in enumerate(both[1]) if (mark := number(one)) is not None]
    return both[0][-max(known)[1]] if known else ""


def options(texts: Any) -> Any:
    """Several texts as one, each on a line behind its letter."""
    if not isinstance(texts, list) or not 2 <= len(texts) <= 26:
        return texts
    if any(one is not None and not isinstance(one, str) for one in texts):
        return texts
    lines = [(f"{chr(65 + at)}.", one) for at, one in enumerate(texts) if one]
    begun = [re.match(r"\W?([A-Z])\W", one) for _, one in lines]
    each = [
        x is not None and x[1] == letter[0] for (letter, _), x in zip(lines, begun, strict=True)
    ]
    return "\n".join(one if all(each) else f"{letter} {one}" for letter, one in lines)


def _listed(value: Any) -> Any:
    """The texts of the JSON of a list of texts; the only one where there is one. The turns of a
    list of turns, or of one of them."""
    found = (_said(value) if isinstance(value, str) else None) or []
    found = [found] if isinstance(found, dict) else found
    keys = [{*one} for one in found if isinstance(one, dict)]
    turns = [one for one in keys if {"role", "content"} <= one or {"from", "value"} <= one]
    if found and len(turns) == len(found):
        return found
    texts = found if all(isinstance(one, str) for one in found) else []
    return texts[0] if len(texts) == 1 else texts or None


def _place(value: Any) -> Any:
    if not isinstance(value, str) or value.strip().lower() in _NONE:
        return None if isinstance(value, str) else value
    found = re.search(r"-?\d+", value)
    if found is None or not re.fullmatch(r"\D{0,8}?-?\d+\.?", value.strip()):
        raise UnreadError("a place in other words")
    return int(found[0])


_ASKED = dict.fromkeys("q question 问 问题".split(), "user")
_ASKED |= dict.fromkeys("a answer 答 答案 回答".split(), "assistant")


_SAYS = r"[a-z]+[ _](utterance|response|reply|message|text|question|answer|input|output)"


def _exchanged(value: list[dict[str, Any]], two: list[str]) -> list[dict[str, Any]]:
    """Turns of objects with a text of each of two speakers, of which a system is no other one."""
    names = [re.split("[ _]", key)[0].lower() for key in two]
    names = ["assistant" if name == "system" else name for name in names]
    asks = [re.match("system[ _](message|text|input|output|question)", one.lower()) for one in two]
    if len(two) > 2 or any(asks):
        raise UnreadError("turns of another shape")
    found = []
    for one in value:
        more = {key: x for key, x in one.items() if key not in two}
        said = [{"role": who, "content": one.get(key)} for who, key in zip(names, two, strict=True)]
        found += [said[0], {**said[1], **more}]
    return [turn for turn in found if turn["content"]]


def turned(value: Any) -> Any:
    """Turns with ``role`` and ``content``, of those with keys of their own."""
    if isinstance(value, dict):
        places = [(int(found[0]), key) for key in value if (found := re.search(r"\d+$", key))]
        if len(places) == len(value):
            value = [value[key] for _, key in sorted(places)]
        elif all(isinstance(one, list) for one in value.values()):
            value = [
                dict(zip(value, one, strict=True)) for one in zip(*value.values(), strict=True)
            ]
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        begun = [re.match(r"\s*([^\W\d_]+)\s*[:：]\s*", one) for one in value]
        value = [[x[1], one[x.end() :]] if x else one for x, one in zip(begun, value, strict=True)]
        value = [[_ASKED.get(one[0].lower(), one[0]), one[1]] for one in value if one[1:]]
    couples = isinstance(value, list) and all(isinstance(one, list) for one in value)
    if couples and all([*map(type, one)] == [str, str] for one in value):
        value = [{"role": who, "content": what} for who, what in value]
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UnreadError("turns of another shape")
    first = value[0] if value else {}
    who = next((key for key in first if key in _WHO and isinstance(first[key], str)), "")
    what = next((key for key in _WHAT if key in first and key != who), "")
    if not who and (two := [key for key in first if re.fullmatch(_SAYS, key, re.IGNORECASE)])[1:]:
        return _exchanged(value, two)
    if not who or not what:
        raise UnreadError("turns of another shape")
    others = [{k: x for k, x in one.items() if k not in (who, what)} for one in value]
    both = zip(value, others, strict=True)
    return [{"role": one.get(who), "content": one.get(what), **more} for one, more in both]


def _parted(value: Any) -> Any:
    """The parts of a text that commas part."""
    if not isinstance(value, str):
        return value
    return [one.strip() for one in value.replace(";", ",").replace("|", ",").split(",")]


_WRONG = (
    "0",
    "0.0",
    "false",
    "-",
    "-1",
    "incorrect",
    "wrong",
    "bad",
    "no",
    "fail",
    "failed",
    "invalid",
)


def _stopped(both: Any) -> list[Any]:
    """Marks up to a bad one, with nothing for each step that is left."""
    if not isinstance(both, list) or [*map(type, both)] != [list, list]:
        raise UnreadError("marks of steps of another shape")
    marks, steps = both
    if len(marks) < len(steps) and str([None, *marks][-1]).lower() not in _WRONG:
        raise UnreadError("marks that end before the steps do")
    return [*marks, *(None for _ in steps[len(marks) :])]


_OF_ONE: dict[str, Callable[[Any], Any]] = {
    "turns": turned,
    "exchanges": _exchanges,
    "top": _top,
    "options": options,
    "place": _place,
    "nearest": _nearest,
    "order": _order,
    "listed": _parted,
    "stopped": _stopped,
    "json": _listed,
}
