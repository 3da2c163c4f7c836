"""A long conversation without most of its turns: what one of its turns is proved on.

What a template prints for a turn follows from the turns beside it and from those that open the
conversation. So where one turn of a long conversation is in question, a short conversation answers:
the turns before the first user turn, the user turn before it with the steps in between, the
exchange before that one, and what follows up to the next answer. Of many steps of tools the last
few stay. Nothing is left out but whole exchanges and whole steps.
"""

from __future__ import annotations

from collections.abc import Sequence

SHORT = 32  # turns of a conversation that is proved as a whole
_OPENING = 4  # turns before the first user turn
_STEPS = 3  # turns that stay of a long exchange, at least
_REACH = 32  # turns that are looked through for where a step begins


class Excerpts:
    """The excerpts of one conversation.

    Args:
        roles: of its turns.
    """

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = roles
        self._first = next((i for i, role in enumerate(roles) if role == "user"), len(roles))
        self._asked = _before(roles, "user")
        self._answered = _before(roles, "assistant")

    def whole(self, index: int) -> bool:
        """Whether a turn is proved behind all turns before it.

        The first turns are, and then one answer in each doubling of the conversation: so much is
        linear in its length.
        """
        return index < SHORT or self._answered[index].bit_length() < index.bit_length()

    def of(self, index: int) -> list[int] | None:
        """Which turns stand for the conversation around a turn; None where none can be left out."""
        user_turn = self._asked[index]
        if self._first > _OPENING or user_turn < 0:
            return None
        picked = list(range(self._first))
        for start, stop in ((self._asked[user_turn], user_turn), (user_turn, index)):
            exchange = self._exchange(start, stop) if start >= 0 else []
            if exchange is None:
                return None
            picked += exchange
        picked += range(index, self._following(index))
        return picked if len(picked) < len(self._roles) else None

    def _exchange(self, start: int, stop: int) -> list[int] | None:
        """A user turn and what follows it, with the last of its steps."""
        if stop - start <= 2 * _STEPS:
            return list(range(start, stop))
        for step in range(stop - _STEPS, max(start + 1, stop - _REACH), -1):
            if self._roles[step] == "assistant" and self._roles[step - 1] != "assistant":
                return [start, *range(step, stop)]
        return list(range(start, stop)) if stop - start <= _REACH else None

    def _following(self, index: int) -> int:
        """Behind the next answer."""
        last = min(len(self._roles), index + _REACH)
        for at in range(index + 1, last):
            if self._roles[at] == "assistant":
                return at + 1
        return last


def _before(roles: Sequence[str], wanted: str) -> list[int]:
    """For each turn, the last turn of a role before it; -1 where there is none."""
    previous, last = [], -1
    for i, role in enumerate(roles):
        previous.append(last)
        if role == wanted:
            last = i
    return previous
