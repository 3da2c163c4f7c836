"""Turns where each assistant turn has a rating: a question, then one rated step per turn.

``rated_messages/signed`` reads ratings of -1 (bad), 0 (neutral) and 1 (good). A turn of somebody
else between two steps has no place in a chain of steps: such rows are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _roles, _steps, _turns, rated_steps
from stages.kinds import STEPS
from stages.rows.watched import read_key

_COLUMNS = ("messages", "conversations", "conversation")


def _speaks(turn: Row) -> bool:
    return _roles.role_of(turn) == "assistant"


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _column(row: Row) -> str | None:
    """The column with turns of which an assistant's has a rating."""
    for name in _COLUMNS:
        turns: Any = dict.get(row, name)
        if not _turns.are_turns(turns):
            continue
        keys = [(turn, rated_steps.rating_of(turn)) for turn in turns if _speaks(turn)]
        if any(key and _is_number(turn[key]) for turn, key in keys):
            return name
    return None


class _RatedMessages(Format):
    """The format; ``signed`` ratings are -1, 0 and 1."""

    name = "rated_messages"
    kinds = (STEPS,)
    columns: Columns = {
        "turns": _COLUMNS,
        "system text": _turns.SYSTEM,
        "history": ("history",),
    }

    def __init__(self, signed: bool = False) -> None:
        self._signed = signed

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"signed": _RatedMessages(signed=True), "unsigned": _RatedMessages()}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        turns = [turn for row in rows for turn in row[_column(row) or ""] if _speaks(turn)]
        if rated_steps.is_signed([turn.get(rated_steps.rating_of(turn) or "") for turn in turns]):
            return "signed", "ratings are -1, 0 and 1; 0 follows --neutral"
        return "", ""

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        for row in rows:
            name = _column(row) or ""
            if keys := rated_steps.rivals(filter(_speaks, dict.get(row, name) or [])):
                return rated_steps.which(keys, name)
        return None

    def matches(self, row: Row) -> str | None:
        name = _column(row)
        return f"{name} with a rating of each step" if name else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _column(row)
        if name is None:
            raise RowError("bad_column", "no assistant turn has a rating")
        turns = row[name]
        plain = [{k: v for k, v in turn.items() if k not in rated_steps.RATINGS} for turn in turns]
        before = {key: row[key] for key in (*_turns.SYSTEM, "history") if key in row}
        said = _steps.conversation({**before, name: plain}, options)
        roles = [message.role for message in said]
        if roles[0] != "user" or set(roles[1:]) != {"assistant"}:
            role = next((role for role in roles[1:] if role != "assistant"), roles[0])
            detail = f"a turn ({role}) that is not a step is among the steps"
            raise RowError("turns_between_steps", detail)
        labels = []
        for number, turn in enumerate(turns):
            if _speaks(turn):
                where = f"{name}[{number}]"
                labels.append(
                    rated_steps.rating_in(turn, where, signed=self._signed, options=options)
                )
            elif key := next((k for k in rated_steps.RATINGS if turn.get(k) is not None), None):
                what = f"{name}[{number}] has a {key}, but only assistant turns are steps"
                raise RowError("bad_label", what)
            for key in rated_steps.RATINGS:
                if key in turn:
                    read_key(row, name, key)  # the turns were read without it
        texts = [message.content or "" for message in said[1:]]
        return [StepChain(said[0].content or "", texts, labels)]


FORMAT = _RatedMessages()
