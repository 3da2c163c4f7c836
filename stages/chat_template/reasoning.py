"""Reasoning that a row has in a field of its own: where it is printed, stripped, or not trained.

Rows have several names for the field, and so do templates. A template that prints such a field gets
it under the template's name. For templates that do not, ``--reasoning-in think`` puts it into the
answer, in the form that other templates print.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from stages.chat_template.segments import TRAINED
from stages.contract import Message
from stages.errors import RowError

FIELD = "reasoning_content"  # the name in examples
SPELLINGS = (FIELD, "reasoning", "thinking")


OPEN, CLOSE = "<think>", "</think>"
# With the blank lines behind it, which may merge with it into one token.
_END = re.compile(rf"{CLOSE}\s*")
_ALONE = re.compile(r"(?:\A|\n)[ \t]*\Z")  # what stands before a tag at the start of a line


def length(answer: str, before: str = "") -> int:
    """How many characters of an answer are the reasoning that it begins with; 0 where it has none.

    A prompt may have opened the block, as DeepSeek-R1's does: its end then begins a line.

    Raises:
        RowError: ``unclosed_reasoning``: where it ends, or begins, cannot be told.
    """
    opened = answer.lstrip().startswith(OPEN) or before.rstrip().endswith(OPEN)
    end = None if before.rstrip().endswith(CLOSE) else _END.search(answer)
    if end is None and opened:
        raise RowError("unclosed_reasoning", f"an answer's reasoning has no {CLOSE}")
    if end is None or (not opened and OPEN in answer[: end.start()]):
        return 0
    if not opened and not _ALONE.search(answer[: end.start()]):
        raise RowError("unclosed_reasoning", f"an answer has {CLOSE} in a line, and no {OPEN}")
    return end.end()


def strip(messages: Iterable[Message]) -> None:
    """Remove the reasoning of every answer: its field, and a ``<think>`` block at its start.

    Raises:
        RowError: ``unclosed_reasoning``.
    """
    for message in messages:
        if message.role != "assistant":
            continue
        if message.fields:
            message.fields = {k: v for k, v in message.fields.items() if k not in SPELLINGS} or None
        if message.content:
            message.content = message.content[length(message.content) :]


def untrain(texts: Sequence[str], kinds: bytes) -> tuple[list[str], bytes]:
    """Segments in which reasoning is not trained: each answer is trained from the end of it.

    Args:
        texts, kinds: one conversation's segments, of which only the answers are trained.

    Raises:
        RowError: ``unclosed_reasoning``.
    """
    segments: list[tuple[str, int]] = []
    # Go from answer to answer: a run of trained segments, whose reasoning may span some of them.
    before = ""
    at = 0
    while at < len(texts):
        stop = at
        while stop < len(texts) and kinds[stop] & TRAINED:
            stop += 1
        left = length("".join(texts[at:stop]), before) if stop > at else 0
        stop = max(stop, at + 1)
        # ``left`` characters of the run are reasoning: cut the segment in which they end.
        for text, kind in zip(texts[at:stop], kinds[at:stop], strict=True):
            head, tail = text[:left], text[left:]
            left -= len(head)
            segments += [(head, kind & ~TRAINED)] * bool(head) + [(tail, kind)] * bool(tail)
        before, at = texts[stop - 1], stop
    return [text for text, _ in segments], bytes(kind for _, kind in segments)


def spelled_by(fields: Collection[str]) -> str | None:
    """The one of the fields that a template prints that holds reasoning; None where none does."""
    return next((name for name in SPELLINGS if name in fields), None)


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
