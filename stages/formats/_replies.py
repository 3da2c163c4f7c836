"""Message trees: each message has the replies to it, and answers to one message may be ranked."""

from __future__ import annotations

from typing import Any

from stages.contract import Message, Refused, Row
from stages.errors import RowError
from stages.formats import _turns

_ROOTS = ("prompt", "tree", "root", "message_tree", "message")
_CHILDREN = ("replies", "children")
_TEXTS = ("text", "content")
COLUMNS = {"tree": (*_ROOTS, *_CHILDREN, *_TEXTS, "role")}


def _is_node(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and any(isinstance(dict.get(value, name), list) for name in _CHILDREN)
        and any(isinstance(dict.get(value, name), str) for name in _TEXTS)
        and isinstance(dict.get(value, "role"), str)
    )


def where(row: Row) -> str | None:
    """The column that holds the tree; empty where the row itself is its first message."""
    if _is_node(row):
        return ""
    return next((name for name in _ROOTS if _is_node(dict.get(row, name))), None)


def root(row: Row) -> Row:
    """The first message of the row's tree.

    Raises:
        RowError: there is no tree.
    """
    column = where(row)
    if column is None:
        raise RowError("bad_column", "there is no message with replies")
    node: Row = row[column] if column else row
    return node


def message(node: Row) -> Message:
    """The message of a node.

    Raises:
        RowError: its role is unknown, or it has no text.
    """
    role = _turns.ROLES.get(str(node.get("role")).lower())
    if role is None:
        raise RowError("unknown_role", f"a message of the tree has the role {node.get('role')!r}")
    name = next((name for name in _TEXTS if name in node), _TEXTS[0])
    return Message(role, _turns.text(node, name))


def is_answer(node: Row) -> bool:
    """Whether the assistant says it."""
    return _turns.ROLES.get(str(dict.get(node, "role")).lower()) == "assistant"


def replies(node: Row) -> tuple[list[Row], list[Refused]]:
    """The replies to a message, in order, without the deleted ones, which are counted.

    Raises:
        RowError: they are no messages.
    """
    name = next((name for name in _CHILDREN if dict.get(node, name) is not None), None)
    found = node[name] if name else []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise RowError("bad_column", "the replies to a message are no list of messages")
    gone = [one for one in found if one.get("deleted") is True]
    said = [Refused("deleted_message", f"{quoted(one)} and what follows it") for one in gone]
    return [one for one in found if dict.get(one, "deleted") is not True], said


def rank(node: Row) -> float | None:
    """Its rank among the answers to one message, the best lowest; None where it has none.

    Raises:
        RowError: it is no number.
    """
    value = node.get("rank")
    if value is None:
        return None
    if type(value) not in (int, float) or value != value:
        raise RowError("bad_label", f"the rank {value!r} is no number")
    return float(value)


def ranked(answers: list[Row]) -> bool:
    """Whether there are two answers to one message of which one has a rank."""
    return len(answers) > 1 and any(dict.get(one, "rank") is not None for one in answers)


def quoted(node: Row) -> str:
    """The beginning of a message's text, for a sentence."""
    text = next((node[name] for name in _TEXTS if isinstance(dict.get(node, name), str)), "")
    return repr(text[:40])
