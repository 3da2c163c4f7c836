"""Prompts without an answer, with or without a reference to check answers against: RL data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stages.contract import Row
from stages.formats import _roles, _turns
from stages.formats._unusable import Unusable
from stages.kinds import CONVERSATION, PAIR
from stages.rows import column_names
from stages.rows.watched import peek

_TURNS = ("prompt", "context_messages")
_TEXTS = ("prompt", "question", "problem", "query", "instruction")
_CHECKED = ("reward_model", "ground_truth", "reference_answer", "verification_info", "test_cases")
# Any of these may hold an answer; then the row is for another format.
_ANSWERS = column_names.ANSWERED | frozenset(
    "answers responses solutions completions chosen rejected candidates messagecontent steps "
    "labels replies children instances text inputids".split()
)


def _ends_unanswered(value: Any) -> bool:
    if not _turns.are_turns(value):
        return False
    return all(_roles.role_of(turn) in ("system", "user") for turn in value)


def _evidence(row: Row) -> str | None:
    said = [name for name, value in row.items() if value not in (None, "", [], {})]
    checked = next((name for name in _CHECKED if name in said), None)
    turns = next((name for name in _TURNS if _ends_unanswered(peek(row, name))), None)
    asked = turns or next((name for name in _TEXTS if isinstance(peek(row, name), str)), None)
    if asked is None or (not checked and not turns and asked != "prompt"):
        return None
    names = [column_names.plain(name) for name in said]
    if any(name in _ANSWERS or "response" in name or "output" in name for name in names):
        return None
    if any(isinstance(peek(row, name), (list, dict)) for name in said if name not in _HELD):
        return None
    return f"{asked} and {checked}" if checked else f"{asked} without an answer"


_HELD = {*_TURNS, *_CHECKED, "extra_info", "metadata", "meta", "tools", "tags", "info"}

_WHAT = "no answer is written here that could be trained, as in prompts for reinforcement learning"
_INSTEAD = (
    "Give rows with an answer (messages that end with the assistant, or prompt and completion; for "
    "rm chosen and rejected)"
)


def unanswered(rows: Sequence[Row], columns: Iterable[str]) -> tuple[str, str] | None:
    """What rows are of which every one has turns and no turn of an assistant; as ``doubt`` says it.

    Args:
        columns: those that may hold the turns.
    """
    for name in columns:
        if rows and all(_ends_unanswered(peek(row, name)) for row in rows):
            return f"{name} without an answer: {_WHAT}", _INSTEAD
    return None


FORMAT = Unusable(
    name="prompts_alone",
    kinds=(
        CONVERSATION,
        PAIR,
    ),
    columns={"prompt": tuple(dict.fromkeys((*_TURNS, *_TEXTS))), "checked": _CHECKED},
    evidence=_evidence,
    what=_WHAT,
    instead=_INSTEAD,
)
