"""A prompt column beside a conversation: it repeats a part of it, or the row is refused."""

from __future__ import annotations

from stages.contract import Message, Row
from stages.errors import RowError
from stages.formats import _turns
from stages.rows.watched import peek

COLUMNS = {"prompt": ("prompt",)}


def require_prompt(row: Row, turns: list[Message]) -> None:
    """A prompt column beside a whole conversation must be a part of that conversation.

    Args:
        turns: of the conversation; for a pair, those that both sides share.

    Raises:
        RowError: ``prompt_differs``: it says something else.
    """
    named = peek(row, "prompt")
    if not named or not turns:
        return
    if isinstance(named, str):
        wanted = [Message("user", named)]
    elif _turns.are_turns(named):
        wanted = _turns.conversation(named, "prompt")
    else:  # neither text nor turns: nothing that a conversation could hold
        return
    said = {(turn.content or "").strip() for turn in turns}
    if any((turn.content or "").strip() not in said for turn in wanted):
        detail = "the prompt column says something that is not in the conversation"
        raise RowError("prompt_differs", f"{detail}; --ignore prompt leaves the column out")
    _ = row["prompt"]  # read: the conversation says it


def dialogue(row: Row, column: str) -> list[Message]:
    """A column that holds a whole conversation, its last answer included.

    Raises:
        RowError: a prompt column says something else.
    """
    turns = _turns.whole(row, column)
    require_prompt(row, turns)
    return turns
