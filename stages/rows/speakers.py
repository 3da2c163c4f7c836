"""Who a name of a role means: one rule for the keys of turns and for the marks of templates.

A name is read in its parts, split at case, underscores, hyphens, dots and blanks. One part says who
speaks; others may only say that it is a role, a question or an answer: ``function-call``,
``toolResponse``, ``gpt4``, ``ai_message``. A name with any other part is nobody that is known.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stages.errors import UsageError, did_you_mean
from stages.rows import signals, words

SYSTEM, USER, ASSISTANT, TOOL = ROLES = ("system", "user", "assistant", "tool")
_CALLS = {"call", "calls"}
CALL = "call"  # a turn of the assistant whose text is a call
_WORDS = {word: role for role in ROLES for word in words.exact("speaker", role)}
# A word at the beginning of a line that says who speaks there, as dialogues in one text have it.
_LONGEST = sorted(_WORDS.keys() - words.exact("speaker", TOOL), key=lambda word: (-len(word), word))
_FORMS = ((w.capitalize(), w.upper(), w.capitalize().replace("gpt", "GPT")) for w in _LONGEST)
SPOKEN = "|".join(dict.fromkeys(itertools.chain.from_iterable(_FORMS)))
_WORDS |= {word: role for role in (USER, ASSISTANT) for word in words.exact("party", role)}
_PEOPLE = words.exact("party", "role")
_LONG_NAME = 5  # words that the name of a doctor may have
_ENDS = (".", "?", "!", "。", "？", "！")  # of a sentence
_ANY = words.exact("turn", "both")
_BESIDE = {role: words.exact("turn", "both", role) for role in ROLES}  # the name of a role


_SURELY = words.exact("who", "sure")
_COUNTING = words.exact("counting", "sign")
_COUNTED = words.exact("counted", "sign") - _COUNTING
_WHO = _SURELY | words.exact("who", "role")
_WHAT, _SAYING = words.listing("what", "role"), words.exact("saying", "role")
_REPLYING = words.exact("saying", "sign")  # a system message is no answer


@functools.lru_cache(4096)
def _meaning(name: str) -> str | None:
    parts = {*words.words(name)}
    roles = {_WORDS[part] for part in parts if part in _WORDS}
    if len(roles) != 1:
        return None
    (role,) = roles
    calls = parts & _CALLS if role == TOOL else set()
    beside = parts.difference(_WORDS, calls)
    if calls and beside <= _ANY:
        return CALL
    return role if beside <= _BESIDE[role] else None


def meaning(name: Any) -> str | None:
    """The role that a name means, or ``CALL``; None where it is nobody that is known."""
    return _meaning(name) if isinstance(name, str) else None


def may_be_people(path: str, values: Sequence[Any]) -> bool:
    """Whether a column is called after people, and most of its texts are no sentences of theirs."""
    texts = [value.strip() for value in values if isinstance(value, str)]
    said = [text for text in texts if len(text.split()) > _LONG_NAME or text.endswith(_ENDS)]
    return not _PEOPLE.isdisjoint(words.words(path)[-1:]) and 2 * len(said) <= len(texts)


def role_named(name: Any) -> str | None:
    """The role that a name means; None where it is nobody that is known."""
    found = meaning(name)
    return ASSISTANT if found == CALL else found


# Turns inside of a row: lists of objects with a role, at any depth, also written as JSON text.


KEYS = ("role", "from")  # of a turn, under which it says who speaks


_SAID = ("content", "value", "parts", "tool_calls")  # under which it says what


def is_turn(value: Any) -> bool:
    """Whether a value says who speaks, and what."""
    both = (KEYS, _SAID)
    return isinstance(value, dict) and all(any(key in value for key in keys) for keys in both)


def _opened(value: Any) -> Any:
    """A value; of a text that is the JSON of a list of turns, these."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    return signals.nested_in(value) if any(f'"{key}"' in value for key in KEYS) else value


def renamed(value: Any, roles: Mapping[str, str]) -> Any:
    """A value in which turns have other names of roles; itself where there is nothing to rename."""
    opened = _opened(value)
    if isinstance(opened, list):
        items = [renamed(one, roles) for one in opened]
        return value if items == opened else items
    if not isinstance(opened, dict):
        return value
    found = {key: renamed(one, roles) for key, one in opened.items()}
    for key in filter(_says_who, found):
        said = found[key]
        if isinstance(said, list):
            found[key] = [roles.get(str(one), one) for one in said]
        elif isinstance(said, str | int):
            found[key] = roles.get(str(said), said)
    return value if found == opened else found


@functools.lru_cache(4096)
def _says_who(key: str) -> bool:
    """Whether a key is surely that of who speaks."""
    return not _SURELY.isdisjoint(words.words(key)[-1:])


CALLS = ("tool_calls", "function_call")  # the keys of a turn with its calls


def spoken(value: Any) -> Iterator[list[tuple[Any, bool]]]:
    """Who speaks in each list of turns inside of a value, or of an object with a list for each key
    of turns, in their order, and whether that turn calls a tool."""
    opened = _opened(value)
    if not isinstance(opened, dict | list):
        return
    several = _several(opened) if isinstance(opened, dict) else opened
    turns = [one for one in several if isinstance(one, dict)]
    keys = ((key for key in (*KEYS, *filter(_says_who, one)) if key in one) for one in turns)
    each = zip(turns, keys, strict=True)
    said = [next((one[key] for key in of if one[key] is not None), None) for one, of in each]
    if any(name is not None for name in said):
        yield [(name, any(map(one.get, CALLS))) for name, one in zip(said, turns, strict=True)]
    for one in opened.values() if isinstance(opened, dict) else opened:
        yield from spoken(one)


def _who(turns: list[Any]) -> tuple[str, ...]:
    """The keys under which turns say who speaks: a name, or whether it is the assistant."""
    each: dict[tuple[str, ...], Any] = {}
    for key, value in turns[0].items():
        inner = value if isinstance(value, dict) else {}
        each |= {(key,): value, **{(key, name): one for name, one in inner.items()}}
    for path, value in each.items():
        named = not _WHO.isdisjoint(words.words(path[0])) and role_named(value)
        if named or (isinstance(value, bool) and role_named(path[-1].removeprefix("is_"))):
            return path
    return ()


def _turn(turn: Mapping[str, Any], who: tuple[str, ...], what: str) -> dict[str, Any]:
    """A turn with ``role`` and ``content``, and what else it has, also beside who speaks."""
    left = {**turn}
    said, name = left.pop(what, None), left.pop(who[0], None)
    for key in who[1:]:
        beside = {**name} if isinstance(name, dict) else {}
        name = beside.pop(key, None)
        if any(one is not None for one in beside.values()):
            left[who[0]] = beside
    if isinstance(name, bool):
        role = role_named(who[-1].removeprefix("is_"))
        name = role if name else {USER: ASSISTANT, ASSISTANT: USER}.get(str(role))
    return {"role": name, "content": said, **left}


def _several(value: Mapping[str, Any]) -> list[Any]:
    """The values of an object whose keys count them, and the objects of an object of lists that are
    equally long, of each list one value; none of any other object."""
    at = {key: words.parts(key)[-1:] for key in value}
    if all(part and part[0].isdecimal() for part in at.values()):
        return [value[key] for key in sorted(value, key=lambda key: int(at[key][0]))]
    lists = [one for one in value.values() if isinstance(one, list)]
    if len(lists) < 2 or len(lists) < len(value) or len({*map(len, lists)}) > 1:
        return []
    return [dict(zip(value, one, strict=True)) for one in zip(*lists, strict=True)]


def turned(value: Any) -> list[Any] | None:
    """The turns of a list, of an object whose keys count them or of one with a list for each key of
    a turn, in which who speaks and what stand under any names (``speaker``, ``is_bot``,
    ``author.role``; ``utterance``) or before a text (``marked``), with ``role`` and ``content``;
    None for any other value."""
    turns = _several(value) if isinstance(value, dict) else marked(value) or value
    if isinstance(turns, list) and turns and all(map(_is_couple, turns)):
        turns = [{"role": who, "content": said} for who, said in turns]
    if not turns or not isinstance(turns, list) or not all(isinstance(t, dict) for t in turns):
        return None
    who = _who(turns)
    if not who:
        return _keyed(turns)
    what = next((key for key in _WHAT if key in turns[0] and key != who[0]), None)
    return None if what is None else [_turn(one, who, what) for one in turns]


def _keyed(turns: Sequence[Mapping[str, Any]]) -> list[Any] | None:
    """The turns of objects whose keys say who speaks: a role each, or beside other keys two words
    (``user utterance``, ``system response``), where system is the one who answers a user."""
    every = [(key, text) for turn in turns for key, text in turn.items()]
    if all(role_named(key) and isinstance(text, str) for key, text in every):
        return [{"role": key, "content": text} for key, text in every]
    texts = {key: words.words(key) for key, text in turns[0].items() if isinstance(text, str)}
    two = {key: said for key, said in texts.items() if len(said) == 2 and said[1] in _SAYING}
    who = {key: role_named(said[0]) for key, said in two.items()}
    roles = [*who.values()]
    answers = {said[1] for said in two.values() if role_named(said[0]) == SYSTEM} <= _REPLYING
    if sorted(map(str, roles)) not in ([ASSISTANT, USER], [SYSTEM, USER]) or not answers:
        return None
    said = [
        {"role": USER if role == USER else ASSISTANT, "content": turn.get(key)}
        for turn in turns
        for key, role in who.items()
    ]
    for at, turn in enumerate(turns, 1):  # what else the object has
        said[2 * at - 1] |= {key: value for key, value in turn.items() if key not in who}
    return [one for one in said if one["content"]]


def exchanged(both: Any) -> list[Any] | None:
    """The turns of a list of questions and one of as many answers, or of one of each; None for
    anything else."""
    lists = [[one] if isinstance(one, str) else one for one in both or ()]
    if not all(isinstance(one, list) and one for one in lists) or len({*map(len, lists)}) > 1:
        return None
    texts = [*itertools.chain(*zip(*lists, strict=True))]
    turns = zip(itertools.cycle(("user", "assistant")), texts)
    said = [{"role": role, "content": text} for role, text in turns]
    return said if all(isinstance(text, str) for text in texts) else None


_MARK = re.compile(r"\s*([^\W\d_]{1,20})\s*[:：]\s*")
_ASKING = {"question": USER, "q": USER, "answer": ASSISTANT, "a": ASSISTANT}


def marked(value: Any) -> list[Any] | None:
    """The turns of a list of texts that each begin with a name for whoever says it (``Human: hi``,
    ``Q: ...``, ``答：...``), of a user and of the assistant; None for any other value."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return None
    marks = [*filter(None, map(_MARK.match, value))]
    said = [mark[1].casefold() for mark in marks]
    who = [role_named(one) or _ASKING.get(words.role(one) or one) for one in said]
    if len(marks) < len(value) or not {USER, ASSISTANT} <= {*who} <= {*ROLES}:
        return None
    texts = [text[mark.end() :] for text, mark in zip(value, marks, strict=True)]
    return [{"role": role, "content": text} for role, text in zip(who, texts, strict=True)]


def _is_couple(turn: Any) -> bool:
    """Whether a value is who speaks, and what."""
    two = isinstance(turn, list) and len(turn) == 2 and all(isinstance(one, str) for one in turn)
    return two and role_named(turn[0]) is not None


def guessed(rows: list[dict[str, Any]]) -> dict[str, str]:
    """For each name of nobody that is known, who it probably is, by its places among turns: who
    begins is a user, who speaks behind a call is its tool, and whoever else speaks is the
    assistant, unless the turn before says more, or the assistant speaks under another name. Empty
    where some of several names would be both (``0_Wizard``, ``1_Wizard``, ``0_Novice``)."""
    votes: dict[str, list[str]] = {}
    for turns in spoken(rows):
        said = [name for name, _ in turns]
        known = [role_named(name) for name in said]
        first = next((at for at, role in enumerate(known) if role != SYSTEM), 0)
        for at, (name, role) in enumerate(zip(said, known, strict=True)):
            if role is not None or name is None:
                continue
            mine = votes.setdefault(str(name), [])
            before = known[at - 1] if at > first else None
            asks = before in (ASSISTANT, TOOL) or (before is None and name == said[first])
            asks = asks or ASSISTANT in known  # nobody trains what others say by such a guess
            others = [calls for other, calls in turns[:at] if other != name]
            if others[-1:] == [True]:
                mine.append(TOOL)
            elif len(said) > first + 1:  # a turn alone may be either
                mine.append(USER if asks else ASSISTANT)
    who = {name: max((USER, ASSISTANT, TOOL), key=mine.count) for name, mine in votes.items()}
    spelled = {(re.sub(r"[\W\d_]+", "", name), role) for name, role in who.items()}
    bare = {name for name, _ in spelled}
    return {} if 1 < len(bare) < len(spelled) else who


def are_unsorted(path: str, values: Sequence[Any]) -> bool:
    """Whether values, or those of a key inside of them, number turns in another order than they
    stand in."""
    if dict in map(type, values):
        return any(are_unsorted(*one) for one in signals.keys_of(path, values).items())
    said = words.words(path.rpartition(".")[2])
    if _COUNTING.isdisjoint(said[-1:]) or said[0] in _COUNTED:
        return False
    whole = len(values) > 1 and {*map(type, values)} == {int}
    return whole and [*values] != sorted(values) == [*range(min(values), max(values) + 1)]


def require_said(roles: Mapping[str, str], rows: list[dict[str, Any]], where: str) -> None:
    """Each name of ``--role`` is one that a turn of some row has.

    Raises:
        UsageError: none has it.
    """
    each = itertools.chain.from_iterable(spoken(rows if roles else []))
    said = dict.fromkeys(str(name) for name, _ in each)
    for name, role in roles.items():
        if name not in said:
            what = f"--role {name}={role}: no turn of a sampled row of {where} has the role {name}."
            raise UsageError(what, did_you_mean(name, said, f"It has {', '.join(said) or 'none'}."))


_SPEAKING = re.compile(r"^\W{0,3}([^\W\d_][\w ]{0,19}?)\W{0,3}:\s", re.MULTILINE)


def is_dialogue(text: str) -> bool:
    """Whether lines of a text begin with the names of two and more speakers, one of them with a
    name that was there before, and one with a word for somebody who speaks."""
    names = [name.casefold() for name in _SPEAKING.findall(text)]
    several = len(names) > len({*names}) > 1 and _SPEAKING.match(text.lstrip()) is not None
    said = (word for name in names for word in words.words(name))
    return several and any(_WORDS.get(word) in (USER, ASSISTANT) for word in said)
