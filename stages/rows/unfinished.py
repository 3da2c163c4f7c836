"""Answers that were cut off: trained like complete ones, they teach a model to stop too early."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from stages.chat_template.reasoning import CLOSE, OPEN
from stages.contract import Message
from stages.errors import RowError

_OPENED = re.compile(rf"(?:\A|\n)\s*{OPEN}")
_CUT = ("length", "max_tokens", "max_output_tokens", "model_length")
# Fields of a turn, and which of their values mean that the turn is not complete.
FLAGS: dict[str, Callable[[Any], bool]] = {
    "prefix": lambda value: value is True,
    "partial": lambda value: value is True,
    "end_turn": lambda value: value is False,
    "finish_reason": lambda value: value in _CUT,
    "stop_reason": lambda value: value in _CUT,
    "status": lambda value: value in ("incomplete", "in_progress"),
}


def opens_reasoning(text: str) -> bool:
    """Whether a text opens a block of reasoning and does not close it."""
    if OPEN not in text:
        return False
    last = text.rfind(CLOSE)
    return _OPENED.search(text, max(last, 0)) is not None


def require_finished(message: Message, where: str) -> None:
    """Refuse a trained answer that is not complete.

    Raises:
        RowError: ``unclosed_reasoning``, ``unfinished_answer``.
    """
    if message.content and opens_reasoning(message.content):
        detail = f"{where} opens {OPEN} and never closes it: it was cut off inside its reasoning"
        raise RowError("unclosed_reasoning", detail)
    for name, value in (message.fields or {}).items():
        if name in FLAGS and isinstance(value, str | bool) and FLAGS[name](value):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            detail = f"{where} has {name}: {shown}, so it is the beginning of an answer"
            raise RowError("unfinished_answer", f"{detail}; leave it out, or do not train it")
