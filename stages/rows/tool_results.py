"""Results of tools stand in the order of their calls, where the template prints no ids.

Such a template prints the results of a turn's calls one after another. The model learns that the
first belongs to the first call, whatever id the row gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stages.contract import Message
from stages.errors import RowError

FIELD = "tool_call_id"
_FIX = "the chat template prints no tool_call_id; put results in the order of their calls"


def _id(value: Any) -> str | None:
    """An id as text, since rows number calls too; None where there is none."""
    return None if value is None or value == "" else str(value)


def _ids(message: Message) -> list[str | None]:
    """The ids of a turn's calls, beside the function or in it; None for a call without one."""
    calls = message.fields.get("tool_calls") if message.fields else None
    return [_id(call.get("id")) or _id(call["function"].get("id")) for call in calls or ()]


class _Due:
    """The calls that wait for a result, turn by turn."""

    def __init__(self, known: frozenset[str | None]) -> None:
        self._known = known
        self._turns: list[list[str | None]] = []
        self._calls = 0  # of the last turn that has any
        self._last: str | None = None  # the call that the last result was of

    def add(self, ids: list[str | None]) -> None:
        """The calls of one more turn."""
        self._turns.append(ids)
        self._calls = len(ids)

    def _take(self, at: int) -> None:
        self._last = self._turns[at].pop(0)
        self._turns = [ids for ids in self._turns if ids]

    def next(self) -> None:
        """A result that does not say what it is of is that of the last turn's next call."""
        if self._turns:
            self._take(-1)

    def of(self, call: str) -> None:
        """A result that names its call.

        Calls of earlier turns that are still without one get none: the row goes on without it.

        Raises:
            RowError: ``misplaced_result``: it is not the next one, or no such call waits.
        """
        for at in reversed(range(len(self._turns))):
            if self._turns[at][0] in (call, None):
                del self._turns[:at]
                self._take(0)
                self._last = call
                return
            if call in self._turns[at]:
                wanted = self._turns[at][0]
                what = f"the result of call {call!r} stands where that of {wanted!r} is expected"
                raise RowError("misplaced_result", f"{what}; {_FIX}")
        if not self._turns and call == self._last:
            return  # one more part of what the last call gave
        if len(self._turns) == self._calls == 1 and call not in self._known:
            self.next()  # one call waits and its turn has no other, so the result is of that
            return
        what = f"a tool's result says {FIELD} {call!r}, and no such call waits for a result here"
        raise RowError("misplaced_result", f"{what}; {_FIX}")


def require_order(messages: Sequence[Message]) -> None:
    """Results with ids stand behind their calls, in the order of these.

    Results without an id, and those in a conversation whose calls have none, are what their places
    say. So is one with an id of its own behind a turn with one call.

    Raises:
        RowError: ``misplaced_result``.
    """
    if not any(one.role == "tool" and one.fields and FIELD in one.fields for one in messages):
        return
    known = frozenset(one for message in messages for one in _ids(message))
    due = _Due(known)
    for message in messages:
        if ids := _ids(message):
            due.add(ids)
        if message.role != "tool":
            continue
        of = _id((message.fields or {}).get(FIELD))
        if of is None or known <= {None}:
            due.next()
        else:
            due.of(of)
