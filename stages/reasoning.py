"""Where reasoning goes that a row keeps beside the answer.

Rows spell its field in several ways, and so do templates. A template that prints one gets it under
its own name; for one that prints none, ``--reasoning-in think`` puts it into the answer, in the
form that templates with reasoning print.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from stages.contract import Message
from stages.errors import RowError
from stages.segments import TRAINED

FIELD = "reasoning_content"  # how the formats spell it
_SPELLINGS = (FIELD, "reasoning", "thinking")


OPEN, CLOSE = "<think>", "</think>"
_END = re.compile(r"</think>\s*")  # the blank lines belong to the block, and merge with its end


def strip(messages: Iterable[Message]) -> None:
    """Take the reasoning out of every answer: its field, and a ``<think>`` block in front.

    Raises:
        RowError: ``unclosed_reasoning``: the block has no end.
    """
    for i, message in enumerate(messages):
        if message.role != "assistant":
            continue
        if message.fields:
            rest = {k: v for k, v in message.fields.items() if k not in _SPELLINGS}
            message.fields = rest or None
        if message.content and message.content.lstrip().startswith(OPEN):
            _, closed, answer = message.content.partition(CLOSE)
            if not closed:
                raise RowError("unclosed_reasoning", f"turn {i + 1} has no {CLOSE}")
            message.content = answer.lstrip()


def _end_of_reasoning(run: str, before: str) -> int:
    """How many characters of a trained answer are reasoning; 0 where it has none."""
    if not run.lstrip().startswith(OPEN) and not before.rstrip().endswith(OPEN):
        return 0
    end = _END.search(run)
    if end is None:
        raise RowError("unclosed_reasoning", f"an answer's reasoning has no {CLOSE}")
    return end.end()


def untrain(texts: Sequence[str], kinds: bytes) -> tuple[list[str], bytes]:
    """Segments whose reasoning is context only: each answer is trained from behind it.

    Args:
        texts, kinds: one conversation's segments, its answers alone trained.

    Raises:
        RowError: ``unclosed_reasoning``.
    """
    segments: list[tuple[str, int]] = []
    before = ""
    at = 0
    while at < len(texts):
        stop = at
        while stop < len(texts) and kinds[stop] & TRAINED:
            stop += 1
        left = _end_of_reasoning("".join(texts[at:stop]), before) if stop > at else 0
        stop = max(stop, at + 1)
        for text, kind in zip(texts[at:stop], kinds[at:stop], strict=True):
            head, tail = text[:left], text[left:]
            left -= len(head)
            segments += [(head, kind & ~TRAINED)] * bool(head) + [(tail, kind)] * bool(tail)
        before, at = texts[stop - 1], stop
    return [text for text, _ in segments], bytes(kind for _, kind in segments)


def spelled_by(template: str) -> str | None:
    """The name under which a chat template looks for reasoning; None when it does not."""
    for name in _SPELLINGS:
        if re.search(rf"(?:\.|\[['\"]|get\(['\"]){name}\b", template):
            return name
    return None


def place(messages: Iterable[Message], name: str | None) -> None:
    """Move each turn's reasoning to a field of this name; with None, into a ``<think>`` block."""
    for message in messages:
        if not message.fields or not isinstance(message.fields.get(FIELD), str):
            continue
        fields = dict(message.fields)
        thought = fields.pop(FIELD)
        if name is not None:
            message.fields = {**fields, name: thought}
            continue
        answer = (message.content or "").lstrip("\n")
        stripped = thought.strip("\n")
        message.content = f"<think>\n{stripped}\n</think>\n\n{answer}"
        message.fields = fields or None
