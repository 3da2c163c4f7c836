"""The ways on that a remedy offers: what a build's options, or the user's command, are after each.

A remedy is a sentence with options in it, each spelled as on a command line, and options that
belong together beside each other: ``Say which: --where ok=true, or --map a=b --map c=d.``
"""

import re
import shlex
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline import tasks
from pipeline.options import build_options
from pipeline.options.command_line import not_read
from pipeline.options.many_values import Pairs
from pipeline.options.values import Number, OneOf, Switch, misfit
from pipeline.secrets import GAP, named, redacted

if TYPE_CHECKING:
    from pipeline.options.config import Config

TASK = "--task"
FLAGS = {flag: one for one in build_options.OPTIONS.values() for flag in one.flags}
# What a sentence speaks of, but nobody should paste: what gives up a check, and places.
_NOT_PASTED = ("--max-reject", "--tolerance", "--drift", "--replace", "--model", "--output", "-o")
# How a value is written, not which; and an option that has to go.
_NOT_OFFERED = re.compile(r"\b(?:[Ff]or example:?|[Ll]eave) $")
_MOST = 4  # conditions that leave out rows for one reason, in one way
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s'"])+""")

Way = tuple[tuple[str, str], ...]  # flags and values; no value is the empty text


class _Place(NamedTuple):
    """A way, and where it stands in a remedy."""

    start: int
    stop: int
    way: Way


def _places(remedy: str) -> list[_Place]:
    """What stands together in a sentence belongs together."""
    found: list[_Place] = []
    for start, stop, flag, value in _options(remedy):
        beside = bool(found) and remedy[found[-1].stop : start] == " "
        before = found.pop() if beside else _Place(start, start, ())
        found.append(_Place(before.start, stop, (*before.way, (flag, value))))
    return found


def ways(remedy: str) -> list[Way]:
    """The ways on, in the order of the sentence."""
    return [place.way for place in _places(remedy)]


def leaving(remedies: Sequence[str]) -> str:
    """The conditions of several remedies, of which each leaves out some rows, as one way; empty
    where one of them is not one condition."""
    each = [ways(remedy) for remedy in remedies]
    conditions = [one[0] for one in each if len(one) == 1 and one[0][0][0] == "--where"]
    said = dict.fromkeys(map(written, conditions))
    return " ".join(said) if len(conditions) == len(each) and len(said) <= _MOST else ""


def given(arguments: Sequence[str], remedy: str) -> list[Way]:
    """The ways on of a remedy that some arguments have taken already."""
    every = {*pairwise((*arguments, "")), *((one, "") for one in arguments)}
    every |= {(flag, value) for flag, _, value in (one.partition("=") for one in arguments)}
    return [way for way in ways(remedy) if all(pair in every for pair in way)]


_SENTENCE = re.compile(r"(?<=[.?])\s+(?=[A-Z])")
_BETWEEN = re.compile(r",? (?:or|and) |, (?=--)")
_NUMBER = re.compile("\0([0-9]+)\0")  # stands for a way, whose values end no sentence


def without(remedy: str, dead: Container[Way]) -> str:
    """A remedy that does not offer some ways: neither their words, nor sentences that have no
    other."""
    places, text = _places(remedy), remedy
    for number, place in reversed([*enumerate(places)]):
        text = f"{text[: place.start]}\0{number}\0{text[place.stop :]}"
    said = []
    for sentence in _SENTENCE.split(text):
        mine = _NUMBER.findall(sentence)
        left = [number for number in mine if places[int(number)].way not in dead]
        if left and len(left) < len(mine):
            sentence = _only(sentence, left)
        elif mine and not left:  # a way that is no option stays
            head = sentence.partition("\0")[0].rpartition(" or ")[0]
            sentence = f"{head.rstrip(',')}." if head else ""
        said.append(sentence)
    spelled = [remedy[place.start : place.stop] for place in places]
    return _NUMBER.sub(lambda match: spelled[int(match[1])], " ".join(filter(None, said)))


def _only(sentence: str, left: Container[str]) -> str:
    """A sentence with some of its ways, each with the words around it that no other way has."""
    head, *rest = _NUMBER.split(sentence)
    opening, colon, before = head.rpartition(": ")
    before = before if colon else ""
    clauses: list[str] = []
    for number, words in zip(rest[::2], rest[1::2], strict=True):
        tail, *following = _BETWEEN.split(words, maxsplit=1)
        if number in left:
            clauses.append(f"{before}\0{number}\0{tail if following else tail.rstrip('.')}")
        before = "".join(following)
    if not colon:  # as in: Say which with A, or with B
        return f"{head}{', or '.join(clauses).removeprefix('with ')}."
    return f"{opening}: {', or '.join(clauses)}."


def _options(remedy: str) -> Iterator[tuple[int, int, str, str]]:
    """Options that are complete: where they begin and end, the flag and the value."""
    for match in re.finditer(r"(?<=\bpipeline run )[a-z_]+|--[a-z][a-z-]*", remedy):
        name = match[0]
        if _NOT_OFFERED.search(remedy, 0, match.start()):
            continue
        if not name.startswith("-"):
            if name in tasks.names():
                yield match.start(), match.end(), TASK, name
            continue
        option = None if name in _NOT_PASTED else FLAGS.get(name)
        if option is not None and isinstance(option.value, Switch):
            yield match.start(), match.end(), name, ""
            continue
        word = _WORD.match(remedy, match.end() + 1) if remedy[match.end() :][:1] == " " else None
        if word is None or (option is None and name != TASK):
            continue
        written = word[0].rstrip(".,;:?)") if word[0][-1:] not in "'\"" else word[0]
        value = "".join(shlex.split(written))
        several = name != TASK and FLAGS[name].value.many
        if word[0].endswith("?") and several and not isinstance(FLAGS[name].value, Pairs):
            continue  # instead of another value of it, which a command would keep
        if _is_value(name, value):
            yield match.start(), match.end() + 1 + len(written), name, value


def _is_value(flag: str, value: str) -> bool:
    """Whether a word after a flag is one of its values, not the next word of the sentence."""
    if flag == TASK:
        return value in tasks.names()
    if flag == "--format":
        from stages import catalog

        return re.split("[/?]", value)[0] in catalog.names("stages.formats")
    kind = FLAGS[flag].value
    if isinstance(kind, Pairs):
        return re.fullmatch(r"[^=]+=\S.*", value) is not None and value[-7:] != "=COLUMN"
    if isinstance(kind, OneOf | Number):
        return misfit(kind.loosened(value), kind.schema()) is None
    if kind.metavar in (None, "TEXT") and value.isalpha() and value.islower():
        return False
    places = re.findall("[A-Z]+", kind.metavar or "")  # in which the user writes something
    return bool(value) and re.split("[+=]", value)[0] not in places


def written(way: Way) -> str:
    """The options of a way as they are typed; another task as the command that has it."""
    head = ["pipeline", "run", way[0][1]] if way[0][0] == TASK else []
    pairs = way[1:] if head else way
    return shlex.join([*head, *(word for pair in pairs for word in pair if word)])


def applied(way: Way, config: "Config") -> "Config":
    """The options of a build after a way was added to them.

    Raises:
        UsageError: the options do not go together, or have no such value.
    """
    for flag, value in way:
        if flag == TASK:  # without options that this one does not read
            options = build_options.OPTIONS.items()
            rest = {n: one.default for n, one in options if n == "too_long" or not_read(n, value)}
            config = config.but(task=value, layout="", **rest)
            continue
        option = FLAGS[flag]
        now = getattr(config.source, option.name, None)
        given: Any = True
        if value and option.value.many:
            given = option.value.settled((value,))
            given = {**now, **given} if isinstance(now, dict) else (*(now or ()), *given)
        elif value:
            given = option.value.settled(value)
        config = config.but(**{option.name: given})
    return config


# The user's own command, corrected as a remedy says: one for each way that it offers.

_COMMANDS = ("run", "plan", "init", "stage", "parts", "shards", "commit", "build")


def commands(arguments: Sequence[str], remedy: str) -> list[str]:
    """Commands that can be pasted, one for each way on; none where that cannot be said.

    Args:
        arguments: of the command that stopped, without the program's name.
    """
    given = list(arguments)
    if not given or given[0] not in _COMMANDS:
        return []
    each = (_with(given, way) for way in ways(remedy))
    found = (shlex.join(["pipeline", *map(_shortened, words)]) for words in each if words)
    return list(dict.fromkeys(map(named, found)))


def _shortened(word: str) -> str:
    """An argument whose address has gaps to fill in; a sentence with an address stays one."""
    return word if re.search(r"\s", word.partition("://")[0]) else redacted(word, GAP)


def reads_stdin(command: str) -> bool:
    """Whether rows have to be piped into a command again: its standard input has been read."""
    before = [one for one, word in pairwise(shlex.split(command)) if word == "-"]
    return any(one not in FLAGS or isinstance(FLAGS[one].value, Switch) for one in before)


def _with(given: list[str], way: Way) -> list[str]:
    """The arguments with one way's options in place of what they say otherwise.

    Empty where a recipe has several values of the option: those of a command replace them.
    """
    at = given.index("--") if "--" in given else len(given)
    own, data = given[:at], given[at:]
    in_recipe = any(word.endswith(".toml") for word in own[1:2] + data)
    for flag, value in way:
        option = FLAGS.get(flag)
        many = option is not None and option.value.many
        if many and in_recipe:
            return []
        if flag == TASK:
            own = _words_for_task(own, value)
        elif not value:
            own = [*own, flag]
        else:
            name = value.partition("=")[0] if option and isinstance(option.value, Pairs) else None
            own = own if many and name is None else _without(own, flag, name)
            own = [*own, flag, value]
    return [*own, *data]


def _words_for_task(own: list[str], task: str) -> list[str]:
    """The same for another task, without options that this one does not read."""
    run = own[0] == "run"
    words = [own[0], task, *own[2:]] if run else [*_without(own, TASK), TASK, task]
    for flag, option in FLAGS.items():
        if not_read(option.name, task):
            words = _without(words, flag)
    return words


def _without(own: list[str], flag: str, name: str | None = None) -> list[str]:
    """Arguments without an option and its value; of ``NAME=VALUE`` only where it has this name."""
    found: list[str] = []
    words = iter(own)
    for word in words:
        before, _, value = word.partition("=")
        whole = [word]
        if word == flag:
            value = next(words, "")
            whole.append(value)
        if before != flag or (name is not None and value.partition("=")[0] != name):
            found += whole
    return found
