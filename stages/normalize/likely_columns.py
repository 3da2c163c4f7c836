"""Suggestions of ``--map`` for rows that no format fits.

Three signs are enough for a suggestion, but none for a guess: a list of turns under an unknown
name, two columns whose names mean question and answer, and exactly two columns of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.contract import Row
from stages.formats._messages import role_of
from stages.kinds import Kind
from stages.rows.column_names import ANSWERED, ANSWERING, ASKED, plain
from stages.rows.unread import mapped

_TEXTS = ("content", "value")
# A gold answer is what an answer is checked against, not an answer to train.
_ANSWERS = (ANSWERED | ANSWERING) - {"goldanswer", "finalanswer"}


def offer(rows: Sequence[Row], kind: Kind) -> str:
    """A suggestion for rows that no format fits, as a sentence; empty where there is none."""
    if not kind.trains_answers or not rows:
        return ""
    if all(_is_turn(row) for row in rows):
        return 'Each row is one turn; write the turns of a conversation as {"messages": [...]}.'
    turns = _turns(rows)
    if turns:
        return f"Did you mean {mapped('messages', turns)}?"
    named = answered(rows)
    if named:
        return f"Did you mean {named}?"
    texts = _texts(rows)
    if len(texts) != 2:
        return ""
    one, other = texts
    return (
        f"Say which column asks and which answers: {_asked(one, other)}, or {_asked(other, one)}."
    )


def _asked(question: str, answer: str) -> str:
    return f"{mapped('prompt', question)} {mapped('completion', answer)}"


def answered(rows: Sequence[Row]) -> str:
    """``--map`` options for rows with one question column and one answer column, else empty.

    Also empty where ``prompt_completion`` reads these names already.
    """
    texts = _texts(rows)
    asks = [key for key in texts if plain(key) in ASKED]
    answers = [key for key in texts if plain(key) in _ANSWERS]
    if len(asks) != 1 or len(answers) != 1:
        return ""
    pairs = zip(("prompt", "completion"), (asks[0], answers[0]), strict=True)
    return " ".join(mapped(name, key) for name, key in pairs if name != key)


def _texts(rows: Sequence[Row]) -> list[str]:
    """The columns that hold a text in every row, in the order of the first."""
    return [
        key
        for key in rows[0]
        if all(isinstance(row.get(key), str) and row[key].strip() for row in rows)
    ]


def _turns(rows: Sequence[Row]) -> str:
    """The one column with answered turns in every row; empty where there is none, or several."""
    answered_columns = [key for key in rows[0] if all(_are_answered(row.get(key)) for row in rows)]
    return answered_columns[0] if len(answered_columns) == 1 else ""


def _are_answered(value: Any) -> bool:
    if not isinstance(value, list) or not all(map(_is_turn, value)):
        return False
    return any(role_of(turn) == "assistant" for turn in value)


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and bool(role_of(value)) and any(t in value for t in _TEXTS)
