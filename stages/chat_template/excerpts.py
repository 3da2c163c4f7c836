"""Excerpts: a few turns of a long conversation, on which one of its turns is proved.

What a template prints for a turn depends on the turns beside it and on those that open the
conversation. So to learn how one turn of a long conversation is printed, a short conversation is
rendered: the turns before the first user turn, the exchange before the turn's own, its own exchange
up to the turn, and what follows up to the next answer. Of many tool calls within an exchange the
last few stay. Only whole exchanges, and whole calls with their results, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

SHORT = 32  # turns; a conversation of at most so many is proved as a whole
_OPENING = 4  # turns before the first user turn, at most
_STEPS = 3  # turns that stay of a long exchange, at least
_REACH = 32  # turns that are searched for the beginning of a step


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
        """Whether a turn is proved with all turns before it, not on an excerpt.

        The first turns are, and then one answer each time the conversation has doubled, so that
        all these renderings together take time linear in its length.
        """
        # The index of the answer before has fewer bits: a power of two lies between the two.
        return index < SHORT or self._answered[index].bit_length() < index.bit_length()

    def of(self, index: int) -> list[int] | None:
        """The turns of the excerpt for a turn; None where no turn can be left out."""
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
        """The index after the next answer."""
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
