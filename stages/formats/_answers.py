"""Answers in a list or in columns of their own: texts, objects with a text, turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.contract import Row
from stages.formats._asked import open_question, says
from stages.rows.unread import ignore
from stages.rows.watched import peek

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
        empty = next((name for name in _TEXTS if peek(answer, name) is not None), None)
        return answer[empty] if empty else answer
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


def require_no_third(row: Row, names: tuple[str, str], columns: Mapping[str, str]) -> None:
    """Two answers of several are no pair that anybody chose.

    Raises:
        AskError: a column beside the two has the next number or letter.
    """
    stem, known = names[0][:-1], (*names, *columns)
    more = (f"{stem}{end}" for end in "0123cCdD")
    third = next((name for name in more if name not in known and says(row, name)), None)
    if third is not None:
        what = f"{third} could be a third answer besides {' and '.join(names)}"
        raise open_question(what, f"To leave it out, add --ignore {third}")
