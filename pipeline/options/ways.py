"""The ways on that a remedy offers, and what a build's options are after each.

A remedy is a sentence with options in it, each spelled as on a command line, and options that
belong together beside each other: ``Say which: --where ok=true, or --map a=b --map c=d.``
"""

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pipeline import tasks
from pipeline.options import build_options
from pipeline.options.many_values import Pairs
from pipeline.options.values import OneOf, Switch

if TYPE_CHECKING:
    from pipeline.options.config import Config

TASK = "--task"
FLAGS = {flag: one for one in build_options.OPTIONS.values() for flag in one.flags}
# What a sentence speaks of, but nobody should paste: what gives up a check, and places.
_NOT_PASTED = ("--max-reject", "--tolerance", "--drift", "--replace", "--model", "--output", "-o")
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s'"])+""")

Way = tuple[tuple[str, str], ...]  # flags and values; no value is the empty text


def ways(remedy: str) -> list[Way]:
    """What stands together in a sentence belongs together."""
    found: list[list[tuple[str, str]]] = []
    end = -1
    for start, stop, flag, value in _options(remedy):
        if found and remedy[end:start] == " ":
            found[-1].append((flag, value))
        else:
            found.append([(flag, value)])
        end = stop
    return [tuple(way) for way in found]


def _options(remedy: str) -> Iterator[tuple[int, int, str, str]]:
    """Options that are complete: where they begin and end, the flag and the value."""
    for match in re.finditer(r"(?<=\bpipeline run )[a-z_]+|--[a-z][a-z-]*", remedy):
        name = match[0]
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
        return re.fullmatch(r"[^=\s]+=\S.*", value) is not None and value != "NAME=COLUMN"
    if isinstance(kind, OneOf):
        return value in kind.listed()
    return bool(value) and not value.isupper()


def written(way: Way) -> str:
    """The options of a way as they are typed."""
    return shlex.join(word for pair in way for word in pair if word)


def applied(way: Way, config: "Config") -> "Config":
    """The options of a build after a way was added to them.

    Raises:
        UsageError: the options do not go together, or have no such value.
    """
    for flag, value in way:
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
