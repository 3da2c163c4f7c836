"""Texts that already carry a chat template, and the turns inside them.

A text is *already templated* when it begins with a turn marker and parses as turns from there to
its end. Rendered as the content of one turn it would be templated twice. Its turns, parsed here,
are rendered once, to the ids that the conversation has without any template.
"""

from __future__ import annotations

import re
from typing import Any

from stages.chat_template.reasoning import CLOSE, OPEN
from stages.contract import Message
from stages.errors import RowError
from stages.rows.dialects import DIALECTS, Dialect, Turns

_NO_REASONING = re.compile(rf"\s*{OPEN}\s*{CLOSE}\s*")
FIRST = "<[#BHUA \n\t\r"  # what a templated text can begin with
_OPENS = re.compile("|".join(f"(?P<d{i}>{d.opens})" for i, d in enumerate(DIALECTS)))


def read(text: str) -> tuple[Dialect, Turns] | None:
    """The dialect and the turns of a text; None when it is not templated."""
    opened = _OPENS.match(text) if text[:1] in FIRST else None
    if opened is None:
        return None
    dialect = DIALECTS[int((opened.lastgroup or "d0")[1:])]
    turns = dialect.parse(text)
    if turns is None or all(message.role != "user" for message in turns.messages):
        return None
    return dialect, turns


def dialect_of(value: Any) -> str | None:
    """The dialect's name, when the value is a text that is already templated."""
    templated = read(value) if isinstance(value, str) else None
    return templated[0].name if templated else None


def allowed(text: str, where: str, already_templated: bool) -> tuple[Dialect, Turns] | None:
    """The same as ``read``, where the option ``--already-templated`` allows what there is.

    Raises:
        RowError: the option was not given.
    """
    parsed = read(text)
    if parsed is not None:
        require_allowed(parsed[0], where, already_templated)
    return parsed


def require_allowed(dialect: Dialect, where: str, allowed: bool) -> None:
    """Refuse templated text without ``--already-templated``.

    Raises:
        RowError: the option was not given.
    """
    if not allowed:
        detail = f"{where} already carries a chat template ({dialect.name}); "
        raise RowError("already_templated", detail + "see --already-templated")


def _unclosed(answer: str, dialect: Dialect) -> str:
    """An answer without the end marker of a turn behind it."""
    text = answer
    for _ in range(2):  # the end of the turn, and the end of the text
        trimmed = text.rstrip()
        closer = next((c for c in dialect.closers if trimmed.endswith(c)), None)
        text = trimmed[: -len(closer)] if closer else text
    return text.strip() if dialect.strips else text


def _begun(start: str) -> str:
    """The part of the generation prompt's text that belongs to the answer.

    An empty block of reasoning does not: the template prints it by itself.
    """
    return "" if _NO_REASONING.fullmatch(start) else start


def answered(dialect: Dialect, prompt: Turns, answer: str) -> list[Message]:
    """A templated prompt's turns and the answer to them.

    Where the prompt begins the answer, with ``<think>`` for instance, the answer continues it,
    unless it has its own beginning.
    """
    messages = list(prompt.messages)
    last = messages[-1]
    own = dialect.parse(answer)
    if own is not None and own.messages[0].role != "assistant":
        own = None
    if last.role == "assistant" and not prompt.closed:  # the generation prompt
        start = _begun(last.content or "")
        if own is not None and not start.strip():
            return [*messages[:-1], *own.messages]
        text = _unclosed(answer.removeprefix(prompt.owed), dialect)
        if start.strip() == OPEN and text.lstrip().startswith(OPEN):
            start = ""
        elif dialect.strips and start == OPEN:
            start += "\n"  # which the dialect has stripped
        return [*messages[:-1], Message("assistant", start + text)]
    if own is not None:
        return messages + own.messages
    return [*messages, Message("assistant", _unclosed(answer, dialect))]


def opening(prompt: Turns) -> str:
    """The beginning of the answer in a templated prompt (``<think>``); empty for none."""
    last = prompt.messages[-1]
    begins = last.role == "assistant" and not prompt.closed
    return _begun(last.content or "").strip() if begins else ""


def question(prompt: Turns) -> list[Message]:
    """A templated prompt's turns without an empty beginning of the answer."""
    begins = prompt.messages[-1].role == "assistant" and not prompt.closed
    return prompt.messages[: -1 if begins and opening(prompt) in ("", OPEN) else None]
