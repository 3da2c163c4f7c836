"""Results of tools stand in the order of their calls, where the template prints no ids.

Such a template prints the results of a turn's calls one after another. The model learns that the
first belongs to the first call, whatever id the row gives it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.contract import Message
from stages.errors import RowError

FIELD = "tool_call_id"
_FIX = "the chat template prints no tool_call_id; put results in the order of their calls"


def _due(message: Message) -> list[str | None]:
    """The ids of a turn's calls; None for a call without one."""
    calls = message.fields.get("tool_calls") if message.fields else None
    return [str(call["id"]) if call.get("id") else None for call in calls or ()]


def _answered(due: list[list[str | None]], of: str) -> None:
    """Take the call that a result is of from the calls without a result.

    Calls of earlier turns that are still without one get none: the row goes on without it.

    Raises:
        RowError: ``misplaced_result``: it is not the next one, or there is no such call.
    """
    for at in reversed(range(len(due))):
        if due[at][0] in (of, None):
            del due[:at], due[0][0]
            if not due[0]:
                del due[0]
            return
        if of in due[at]:
            what = f"the result of call {of!r} stands where that of {due[at][0]!r} is expected"
            raise RowError("misplaced_result", f"{what}; {_FIX}")
    what = f"no call {of!r} is without a result here"
    raise RowError("misplaced_result", f"a tool's result says {FIELD} {of!r}, and {what}; {_FIX}")


def require_order(messages: Sequence[Message]) -> None:
    """Results with ids stand behind their calls, in the order of these.

    Results without an id, and those in a conversation whose calls have none, are what their places
    say.

    Raises:
        RowError: ``misplaced_result``.
    """
    if not any(one.role == "tool" and one.fields and FIELD in one.fields for one in messages):
        return
    named = any(any(_due(message)) for message in messages)
    due: list[list[str | None]] = []
    for message in messages:
        if calls := _due(message):
            due.append(calls)
        if message.role != "tool":
            continue
        of = (message.fields or {}).get(FIELD)
        if of and named:
            _answered(due, str(of))
        elif due:
            del due[-1][0]
            if not due[-1]:
                del due[-1]
