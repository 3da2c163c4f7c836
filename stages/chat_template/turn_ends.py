"""What ends an assistant's turn, read off what a chat template prints behind it.

A turn ends in a token of its own (``<|im_end|>``; gpt-oss has ``<|return|>`` after an answer and
``<|call|>`` after a call), or a server stops where the next turn opens (GLM: ``<|user|>`` after an
answer, ``<|observation|>`` after a call). Such a template prints nothing after the last turn of a
conversation, so what it prints there once another turn follows is appended and trained.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

from stages.chat_template.template import Template
from stages.errors import RowError

_LIKE = {"type": "object", "properties": {"word": {"type": "string"}}}
_TOOL = {"name": "look_up", "description": "Looks a word up.", "parameters": _LIKE}
TOOLS = [{"type": "function", "function": _TOOL}]
CALLS = "tool_calls"  # the field of a turn that calls tools
Turn: TypeAlias = dict[str, Any]


def asks(text: str) -> Turn:
    """A user's turn."""
    return {"role": "user", "content": text}


def answers(text: str, **fields: Any) -> Turn:
    """An assistant's turn."""
    return {"role": "assistant", "content": text, **fields}


def calls(*words: str, **fields: Any) -> Turn:
    """An assistant's turn that looks words up."""
    made = [{"name": "look_up", "arguments": {"word": word}} for word in words]
    listed = [
        {"id": f"abcdefgh{i}", "type": "function", "function": one} for i, one in enumerate(made)
    ]
    return answers("", **{CALLS: listed}, **fields)


def last_text(turn: Turn) -> str:
    """The last line of an answer, or the last word that a turn looks up."""
    text: str = turn["content"].rpartition("\n")[2]
    return text or turn[CALLS][-1]["function"]["arguments"]["word"]


def result(text: str, number: int = 0) -> Turn:
    """What a tool returns for a call of a turn."""
    return {"role": "tool", "name": "look_up", "tool_call_id": f"abcdefgh{number}", "content": text}


class End(NamedTuple):
    """What ends one kind of turn.

    Attributes:
        token: the last token of the turn that is trained.
        appended: what stands behind the last turn of a conversation once another one follows, up to
            the token; empty where the template prints the token there by itself.
        follower: the role of the turn that follows then.
    """

    token: str
    appended: str = ""
    follower: str = ""


class Ends(NamedTuple):
    """What ends a turn of text, and one of calls."""

    answer: End
    call: End

    def of(self, fields: Mapping[str, Any] | None) -> End:
        """What ends an assistant's turn with these fields."""
        return self.call if fields and fields.get(CALLS) else self.answer

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that end turns."""
        return tuple(dict.fromkeys((self.answer.token, self.call.token)))


class _Tails(NamedTuple):
    """What stands behind a turn: as the last one, and before another of the role ``follower``.

    Attributes:
        inner: the control tokens inside of turns, and those that open one.
    """

    last: str
    following: str
    follower: str
    inner: Collection[str]


def _tails(
    template: Template, turns: Sequence[Turn], follower: Turn, inner: Collection[str]
) -> _Tails:
    """What stands behind the last of some turns, whose own text is printed.

    Raises:
        RowError: the template refuses the turns.
    """
    own, tools = last_text(turns[-1]), TOOLS if CALLS in turns[-1] else None
    last = template.render(turns, tools).rpartition(own)[2]
    try:
        longer = template.render([*turns, follower], tools).rpartition(own)[2]
    except RowError:  # only such a turn may come last
        longer = last
    return _Tails(last, longer.partition(follower["content"])[0], follower["role"], inner)


def _between_calls(template: Template) -> str:
    """What is printed between two calls of a turn; empty where the template refuses them."""
    try:
        text = template.render([asks("a question"), calls("quince", "medlar")], TOOLS)
    except RowError:
        return ""
    return text.rpartition("medlar")[0].rpartition("quince")[2]


def _opener(template: Template, controls: re.Pattern[str]) -> str:
    """What a generation prompt adds to a question; where it is always printed, or never, the tokens
    that a text begins with: they open turns as well."""
    try:
        asked = [template.render([asks("x")], add_generation_prompt=x) for x in (False, True)]
    except RowError:
        return ""
    if asked[0] == asked[1]:
        begins = re.match(rf"(?:{controls.pattern}|\s)*", asked[0])
        return begins[0] if begins and begins[0] != asked[0] else ""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(*asked, strict=False))
    return asked[1][sum(1 for _ in alike) :]


def _of_answers(template: Template, controls: re.Pattern[str]) -> _Tails:
    turns = [asks("a question"), answers("an answer")]
    return _tails(template, turns, asks("another"), controls.findall(_opener(template, controls)))


def _of_calls(template: Template, controls: re.Pattern[str]) -> _Tails:
    turns = [asks("a question"), calls("quince")]
    if "quince" not in template.render(turns, TOOLS):
        raise RowError("lost_in_template", "the chat template prints no calls")
    inside = _between_calls(template) + _opener(template, controls)
    return _tails(template, turns, result("a fruit"), controls.findall(inside))


def _of_tails(tails: _Tails, controls: re.Pattern[str], stops: Collection[str]) -> End | None:
    """What ends a turn, by what stands behind it; None where no control token does.

    Args:
        stops: where a server is known to stop; one of these is it, where one of these is there.
    """
    last, following = controls.findall(tails.last), controls.findall(tails.following)
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(last, following, strict=False))
    alike = [token for token, _ in pairs]

    def outer(tokens: Sequence[str]) -> list[str]:
        own = [token for token in tokens if token not in tails.inner]
        return [token for token in own if token in stops] or own

    if outer(alike):
        return End(outer(alike)[-1])
    if outer(last):
        return End(outer(last)[0])
    opened = next(iter(following[len(last) :]), None)
    # What opens a turn of any role ends none.
    return None if opened is None or opened in tails.inner else _appended(tails, opened)


def _appended(tails: _Tails, token: str) -> End | None:
    """The end of turns whose token is printed once another turn follows; None where it is not."""
    rest = tails.following.removeprefix(tails.last)
    if not tails.following.startswith(tails.last) or token not in rest:
        return None
    return End(token, rest[: rest.index(token) + len(token)], tails.follower)


_KINDS = (_of_answers, _of_calls)


def of_answers(
    template: Template, controls: re.Pattern[str], stops: Collection[str]
) -> tuple[str | None, str]:
    """The token that ends an answer, None where none does, and what stands behind the last one.

    Args:
        stops: where a server is known to stop.

    Raises:
        RowError: the template refuses a question and its answer.
    """
    tails = _of_answers(template, controls)
    end = _of_tails(tails, controls, stops)
    return (end.token if end else None), tails.last


def of_calls(
    template: Template, controls: re.Pattern[str], answer: str, stops: Collection[str]
) -> str | None:
    """The token that ends a turn of calls; None where it is that of an answer, or there is none."""
    try:
        tails = _of_calls(template, controls)
    except RowError:  # rows with calls are refused
        return None
    if answer in tails.last or _appended(tails, answer):
        return None
    end = _of_tails(tails, controls, stops)
    return end.token if end else None


def declared(template: Template, controls: re.Pattern[str], tokens: Sequence[str]) -> Ends:
    """How a template prints the tokens that are known to end a turn of text, and one of calls."""

    def placed() -> Iterator[End]:
        for tails_of, token in zip(_KINDS, tokens, strict=True):
            try:
                tails = tails_of(template, controls)
            except RowError:  # rows of this kind are refused
                yield End(token)
                continue
            printed = token in tails.last
            yield (None if printed else _appended(tails, token)) or End(token)

    return Ends(*placed())
