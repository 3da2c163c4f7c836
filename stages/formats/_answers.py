"""An answer in a list or a column of its own: a text, an object with a text, a turn, or turns."""

from __future__ import annotations

from typing import Any

from stages.formats._asked import open_question, says
from stages.unread import ignore
from stages.watched import peek

_TEXTS = ("text", "content", "response", "answer", "output", "completion")


def text_of(answer: Any, where: str) -> Any:
    """The answer itself; a turn or turns stay as they are.

    Args:
        where: its place in the row, ``answers[2]``.

    Raises:
        AskError: an object has two texts that differ.
    """
    if not isinstance(answer, dict) or not {"role", "from"}.isdisjoint(answer):
        return answer
    names = [name for name in _TEXTS if says(answer, name)]
    if not names:
        return answer
    odd = [name for name in names if peek(answer, name) != peek(answer, names[0])]
    if odd:
        place = f"{where.partition('[')[0]}{'[]' if '[' in where else ''}"
        flags = [
            " ".join(ignore(f"{place}.{n}") for n in (names[0], *odd) if n != kept)
            for kept in (names[0], *odd)
        ]
        what = f"{' and '.join((names[0], *odd))} of {where} could each be the answer"
        raise open_question(what, f"Say which with {' or '.join(flags)}")
    said = [answer[name] for name in names]  # all of them are read: they say the same
    return said[0]
