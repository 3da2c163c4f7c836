"""The two sides of a pair answer one question.

They may begin with the same answers; what they first differ in must be an answer too. Otherwise a
user or a tool says something else in each, and a comparison of the answers compares two questions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stages.contract import Message
from stages.conversations import tool_results
from stages.errors import RowError

# Each rollout has ids of its own; turns that differ in them alone say the same.
_IDS = ("id", tool_results.FIELD)
_CALLS = "tool_calls"


def _without_ids(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _IDS}


def _said(message: Message, printed: Collection[str] | None) -> tuple[str, str, dict[str, Any]]:
    """What a turn says, whether it is trained or not."""
    fields = _without_ids(message.fields or {})
    if printed is not None:
        fields = {name: value for name, value in fields.items() if name in printed}
    if calls := fields.get(_CALLS):
        functions = [{**call, "function": _without_ids(call["function"])} for call in calls]
        fields[_CALLS] = [_without_ids(call) for call in functions]
    return message.role, message.content or "", fields


def require_one_question(
    chosen: Sequence[Message], rejected: Sequence[Message], printed: Collection[str] | None = None
) -> None:
    """Two sides of a pair first differ in an answer; what others say behind it may follow from it.

    Args:
        chosen, rejected: the turns behind the prompt.
        printed: the fields of a turn that the chat template prints; None for all.

    Raises:
        RowError: ``questions_differ``: they differ first in a turn of somebody else, or one side
            ends where somebody else goes on in the other.
    """
    at = 0
    while at < min(len(chosen), len(rejected)):
        if _said(chosen[at], printed) != _said(rejected[at], printed):
            break
        at += 1
    sides = {"chosen": chosen, "rejected": rejected}
    others = {n: side[at].role for n, side in sides.items() if at < len(side)}
    spoken = next(((n, role) for n, role in others.items() if role != "assistant"), None)
    if spoken is None:
        return
    name, role = spoken
    if len(others) == 2:
        how = f"differ first in turn {at + 1} behind the prompt, a {role} turn of {name}"
    else:
        how = f"are alike until {name} goes on with a {role} turn"
    raise RowError("questions_differ", f"chosen and rejected {how}, so they answer two questions")
