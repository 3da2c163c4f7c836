"""What a column may say where no format reads it: the words of its name, and shapes of values.

The words are looked up from the last to the first, since the last one says what a column holds: a
``reasoning_score`` is a score, and a ``score_model_name`` is a name. A class holds only where the
value has its shape: a score is a number, and reasoning is a text."""

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from stages.files import printed
from stages.rows import words
from stages.rows.words import FILLERS, RATING, SIDES, signs, signs_of

_ABOUT = words.exact("about", "both", "sign") | words.exact("spread", "sign")
_COUNTED, _ENDED = words.exact("counted", "sign"), words.exact("ended", "sign")
_PLACES, _DONE = words.exact("place", "sign"), words.exact("done", "sign")
_SETS = words.exact("elsewhere", "sign")
_BEST = words.exact("best", "index")
_STATUS = words.exact("failing", "name") | _ENDED
_FAILED = words.exact("failing", "value") | words.exact("value", "bad")
_REWARDS = {"0", "1", "0.0", "1.0"}
_MEASURES = words.exact("measure", "sign")
_GENERAL = FILLERS | words.exact("general", "sign")
_ADDRESS = ("path", "url", "file", "uri")
_ASKING = ("is", "has", "was")
_IS = (("is",), ("was",))  # before a word that says that something is bad
_NUMBERED = re.compile(r"([^\W\d_]+)([\W_]*)[0-2](?!\d)")


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("[]", "").split(".") if not part.isdecimal()]


def _last(path: str) -> tuple[str, ...]:
    """The words of the last part of a path."""
    return tuple(word for part in _parts(path)[-1:] for word in words.words(part))


def _is_place(said: Sequence[str]) -> bool:
    """Whether the words of a name say where the first mistake is."""
    return "error" in signs_of(said) and not _PLACES.isdisjoint(said)


def _is_done(said: Sequence[str]) -> bool:
    """Whether the words of a name say when, why or by whom a row was taken away, or that another
    set has it too (``in_gsm8k_train``)."""
    if len(said) > 2 and said[0] == "in" and said[-1] in _SETS and said[1] not in _SETS:
        return True
    pairs = [*itertools.pairwise(said)]
    away = any(then in _DONE and "untrained" in signs(word) for word, then in pairs)
    return away or any(then in ("at", "by") and _is_bad(word) for word, then in pairs)


def _is_bad(word: str) -> bool:
    return {*signs(word)} == {"verdict"} and bool(words.is_low(word))


@functools.lru_cache(8192)
def is_about(path: str) -> bool:
    """Whether a column only counts, names or dates something, whatever its other words are."""
    said = _last(path)
    if _is_place(said) or _is_done(said) or (said[:1] in _IS and any(map(_is_bad, said))):
        return False
    last = next((word for word in reversed(said) if signs(word) or word in _ABOUT), "")
    if last in _ABOUT and not signs(last):
        return not (last in _ADDRESS and "media" in signs_of(said))
    return bool(said) and said[0] in _COUNTED


def _is_of_a_score(said: Sequence[str]) -> bool:
    """Whether a reason is one for a score, or for an end, and not for an answer."""
    before = {*itertools.takewhile(lambda word: "reasoning" not in signs(word), said)} - SIDES
    return not _ENDED.isdisjoint(before) or not signs_of(before).isdisjoint(RATING)


@functools.lru_cache(8192)
def classes(path: str) -> Mapping[str, bool]:
    """The classes of a column's name, the last word's first, each with whether it says no more.

    Where its last part is too general to say something (``value``), the part before it is taken;
    where it says nothing, that part may still say that it is a score.
    """
    parts, said = _parts(path), _last(path)
    if is_about(path):
        return {}
    if _is_place(said):
        return {"place": True}
    if _is_done(said):
        return {"untrained": True}
    every = dict.fromkeys(name for word in reversed(said) for name in signs(word))
    found = {name: words.says_no_more(said, name) for name in every}
    head = next(iter(found), "")
    named = head in ("question", "answer", "context") and said[0] not in _ASKING
    if head in ("tools", "media"):  # target tools are no target
        found = {name: alone for name, alone in found.items() if name not in RATING}
    if named or ("corrected" in found and "number" not in found):
        # A correct answer, or a corrected one, is no verdict; whether an answer is correct is one.
        rated = [found.pop(name) for name in ("label", "verdict") if name in found]
        if named and rated:
            found["sign"] = False
    again = all({"corrected", "question"}.intersection(signs(w)) or w in FILLERS for w in said)
    if again and found.keys() >= {"corrected", "question"}:
        found["rewritten"] = found.pop("corrected")
    for name in ("question", "answer"):
        if not found.get(name, True):  # an output format is no output
            del found[name]
    if "reasoning" in found and _is_of_a_score(said):
        del found["reasoning"]
    if not found and len(parts) > 1:
        general = all(word in _GENERAL for word in said)
        above = classes(".".join(parts[:-1]))
        return {k: v for k, v in above.items() if general or k in RATING}
    return found


@functools.lru_cache(8192)
def may_number_the_best(path: str) -> bool:
    """Whether a whole number under a name may say which of several answers is the best."""
    said = {*_last(path)}
    aside = said & (_COUNTED | _MEASURES) or "number" in signs_of(said)
    return not (aside or _BEST.isdisjoint(said))


def has_side(path: str) -> bool:
    """Whether a column is of one side of a pair, or of one numbered answer."""
    numbered = _NUMBERED.findall("".join(_parts(path)[-1:]))
    each = [(words.words(before)[-1], between) for before, between in numbered]
    named = any(between or signs(last) or last in _ABOUT | FILLERS for last, between in each)
    return named or not SIDES.isdisjoint(words.words(path))


def whose(path: str) -> frozenset[str]:
    """The words of a name but the last that means something, its side and its numbers, which say
    whose a thing is: of ``gpt_rationale`` and of ``gpt_answer`` the same."""
    said = [word for part in _parts(path)[-1:] for word in words.parts(part)]
    last = next((one for one in reversed(said) if signs(one) or words.role(one)), "")
    aside = (_ABOUT | FILLERS) - SIDES
    return frozenset(one for one in said if one not in aside and one != last and not signs(one))


def meant(path: str) -> tuple[str, ...]:
    """The words of a name that mean something, whatever stands between them and behind them."""
    return tuple(word for word in words.words(path) if signs(word))


def is_score(name: str) -> bool:
    """Whether a name is that of a score, and does not say of what."""
    *said, last = words.words(name) or ("",)
    return last in _MEASURES and not any(map(signs, said))


def is_low(path: str) -> bool:
    """Whether a high number (or true) means that the answer is bad."""
    said = reversed(words.words(path))
    low = (words.is_low(word) for word in said if word not in _MEASURES)
    return next((one for one in low if one is not None), False)


# Shapes of values.

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)\s*(?:%|/\s*\d+)?")
_SAID, _TELLING = words.exact("value", "said"), words.exact("value", "telling")
_SWITCH = words.exact("value", "switch")
_OFF = {*words.exact("value", "no"), "", "0", "none", "null", "-"}
_STATE = re.compile(r"[a-z]+ed|spam|duplicate")
_TIES = re.compile(r"tied?|draw|equal|neither|unsure|(?:tie)?\W*both\W*(?:bad|good|same)\W*", re.I)
FEW, SHORT = 6, 40  # different texts that a column of verdicts has at most, and their length
LONGEST = 80  # characters of a label


def _plain(text: str) -> str:
    return "".join(text.casefold().split()).rstrip(".!")


def is_telling(value: Any) -> bool:
    """Whether a text is a verdict, whatever its column is called."""
    return type(value) is str and len(value) < 16 and _plain(value) in _TELLING


def is_set(value: Any) -> bool:
    """Whether a value says yes: true, a number but 0, a mark, a time, a name."""
    return _plain(value) not in _OFF if isinstance(value, str) else bool(value)


def is_taken_away(value: Any) -> bool:
    """Whether a text says that a row was taken away, whatever its column is called."""
    if not isinstance(value, str) or len(value) > SHORT or not _STATE.fullmatch(_plain(value)):
        return False
    return "untrained" in signs(_plain(value))


def is_given_up(value: Any) -> bool:
    """Whether a text says that nobody came to an end with a row: ``give_up``, ``bad_problem``."""
    said = words.words(value) if isinstance(value, str) and len(value) <= SHORT else ()
    bad = len(said) == 2 and "question" in signs(said[1]) and words.is_low(said[0])
    return bool(bad) or "aside" in signs("".join(said))


def keys_of(path: str, values: Sequence[Any]) -> Mapping[str, list[Any]]:
    """What some objects say under each of their keys, by the path of it."""
    found: dict[str, list[Any]] = {}
    for one in values:
        for key, value in one.items() if isinstance(one, dict) else ():
            if value not in (None, ""):
                found.setdefault(f"{path}.{key}", []).append(value)
    return found


def is_failure(path: str, value: Any) -> bool:
    """Whether a text under a name for how something ended says that it failed."""
    short = isinstance(value, str) and len(value) <= SHORT and not _STATUS.isdisjoint(_last(path))
    return short and not _FAILED.isdisjoint(words.words(value))


def say_failed(path: str, values: Sequence[Any], of: int) -> bool:
    """Whether some values of a column, but not most of so many rows, say that something failed:
    a status, the text of an error, a reward of 0 among those of 1 in an object."""
    if are_few(values):
        return any(is_failure(path, value) for value in values)
    if is_error(path):
        return 2 * len(values) < of and all(isinstance(one, str) and is_set(one) for one in values)
    rewards = "." in path and "reward" in _last(path) and {*map(str, values)} <= _REWARDS
    return rewards and len({*values}) > 1


def is_error(path: str) -> bool:
    """Whether a column by its name has the text of an error."""
    return words.words(path)[-1:] in (("error",), ("exception",), ("traceback",))


def is_tie(value: Any) -> bool:
    """Whether a text says that two answers are equally good."""
    return isinstance(value, str) and len(value) < 24 and bool(_TIES.fullmatch(value.strip()))


def is_rating(value: Any) -> bool:
    """Whether a value is a number, true or false, a word for good or bad, or some of these."""
    if isinstance(value, list | dict):
        inside = list(value.values()) if isinstance(value, dict) else value
        return bool(inside) and all(map(is_rating, inside))
    if not isinstance(value, str):
        return isinstance(value, bool | int | float)
    if len(value) > SHORT:
        return False
    text = _plain(value)
    if text in _SAID or text in _TELLING or _NUMBER.fullmatch(value.strip()):
        return True
    said = words.parts(value)
    named = "/" in value or any(map(str.isdecimal, said))  # the name of a model that judges
    return 1 < len(said) <= 5 and not named and not signs_of(said).isdisjoint(RATING)


def are_shares(value: Any) -> bool:
    """Whether a value is a list of numbers from 0 to 1, and one of them between these."""
    numbers = isinstance(value, list) and bool(value) and {*map(type, value)} <= {int, float}
    return numbers and all(0 <= one <= 1 for one in value) and any(0 < one < 1 for one in value)


def are_few(values: Sequence[Any]) -> bool:
    """Whether the values of a column are few short texts, and more than one."""
    if not all(isinstance(one, str) and len(one) <= SHORT for one in values):
        return False
    return 1 < len({*values}) <= min(FEW, len(values) // 2)


def is_prose(value: Any) -> bool:
    """Whether a value has a text that is more than a name."""
    if isinstance(value, str):
        text = value.strip()
        return len(text) >= 12 and (" " in text or "\n" in text or not text.isascii())
    inside = value.values() if isinstance(value, dict) else value if type(value) is list else ()
    return any(map(is_prose, inside))


def is_text(value: Any, alone: bool) -> bool:
    """Whether a value can be read by a model.

    Args:
        alone: the column's name says nothing else, so that a single word will do.
    """
    if not alone:
        return is_prose(value)
    return bool(value.strip()) if isinstance(value, str) else isinstance(value, list | dict)


def are_flags(values: Sequence[Any]) -> bool:
    """Whether the values of a column are switches."""
    return all(isinstance(one, str) and _plain(one) in _SWITCH for one in values)


def is_media(value: Any, alone: bool) -> bool:
    """Whether a value can be a file, or what is in one."""
    if isinstance(value, str):
        named = "." in value or "/" in value or len(value) > 200
        return bool(value.strip()) and (alone or (named and " " not in value.strip()))
    return isinstance(value, list | dict | bytes)


def is_declared(value: Any, alone: bool) -> bool:
    """Whether a value can be tools or calls: objects, or their JSON."""
    if isinstance(value, str):
        return value.lstrip()[:1] in ("[", "{") or (alone and is_prose(value))
    listed = isinstance(value, list) and (alone or dict in map(type, value))
    return isinstance(value, dict) or listed


def nested_in(value: Any) -> Any:
    """The list or the object of a text that is the JSON of one, or that Python or numpy printed;
    None of any other text, and any other value itself."""
    if not isinstance(value, str):
        return value
    if value.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return printed.value_of(value)


_BETWEEN = re.compile(r"\}\s*\{")
_SCHEMAS = frozenset(("parameters", "input_schema", "inputSchema"))
_ARGUMENTS = frozenset(("arguments", "args", "input"))


def are_tools(value: Any) -> bool:
    """Whether a value declares tools, whatever its column is called: a list of objects that each
    have a name and a schema of their arguments, as they are or under ``function``; or its JSON, or
    that of one object after another."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        keys = re.findall(r'"(\w+)"\s*:', value)
        listed = value if value.lstrip()[0] == "[" else f"[{_BETWEEN.sub('},{', value)}]"
        value = None if _SCHEMAS.isdisjoint(keys) else nested_in(listed)
    return isinstance(value, list) and bool(value) and _are_named(value, _SCHEMAS)


def are_calls(value: Any) -> bool:
    """Whether a value is a list of calls of tools: objects with a name and arguments, as they are
    or under ``function``."""
    return isinstance(value, list) and bool(value) and _are_named(value, _ARGUMENTS)


def _are_named(several: list[Any], keys: frozenset[str]) -> bool:
    each = [one.get("function", one) if isinstance(one, dict) else None for one in several]
    return all(isinstance(one, dict) and "name" in one and keys & one.keys() for one in each)
