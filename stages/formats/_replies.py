"""Message trees: each message has the replies to it, and answers to one message may be ranked."""

from __future__ import annotations

from typing import Any

from stages.contract import Message, Refused, Row
from stages.errors import RowError
from stages.formats import _roles, _turns

_ROOTS = ("prompt", "tree", "root", "message_tree", "message")
_CHILDREN = ("replies", "children")
_TEXTS = ("text", "content")
# What a message says of itself when it was taken out of its tree.
_FLAGS = {"deleted": True, "is_deleted": True, "removed": True, "review_result": False}
COLUMNS = {"tree": (*_ROOTS, *_CHILDREN, *_TEXTS, "role")}


def _is_node(value: Any) -> bool:
    # dict.get looks without reading: only row[name] and row.get(name) count as read.
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


def first(row: Row) -> Row | None:
    """The first message of the row's tree; None where there is none."""
    column = where(row)
    if column is None:
        return None
    node: Row = row[column] if column else row
    return node


def root(row: Row) -> Row:
    """The first message of a tree that can be used.

    Raises:
        RowError: there is no tree, or its first message was taken out.
    """
    node = first(row)
    if node is None:
        raise RowError("bad_column", "there is no message with replies")
    why = _is_gone(node)
    if why is not None:
        raise RowError("deleted_message", f"the first message says that {why}")
    return node


def message(node: Row) -> Message:
    """The message of a node.

    Raises:
        RowError: its role is unknown, or it has no text.
    """
    role = _roles.ROLES.get(str(node.get("role")).lower())
    if role is None:
        raise RowError("unknown_role", f"a message of the tree has the role {node.get('role')!r}")
    names = [name for name in _TEXTS if dict.get(node, name) not in (None, "")]
    said = _turns.text(node, names[0] if names else _TEXTS[0])
    if any(_turns.text(node, name) != said for name in names[1:]):
        raise RowError("bad_column", f"text and content of the message {said[:40]!r} differ")
    return Message(role, said)


def is_answer(node: Row) -> bool:
    """Whether the assistant says it."""
    return _roles.ROLES.get(str(dict.get(node, "role")).lower()) == "assistant"


def _is_gone(node: Row) -> str | None:
    """The flag by which a message says that it was taken out; None where none does.

    Raises:
        RowError: such a flag is neither true nor false.
    """
    why = None
    for name, gone in _FLAGS.items():
        value = node.get(name)
        if value is not None and not isinstance(value, bool):
            what = f"{name} of the message {quoted(node)} is {value!r}, not true or false"
            raise RowError("bad_column", what)
        if value is gone:
            why = why or f"{name} is {str(gone).lower()}"
    return why


def _below(node: Row) -> int:
    """How many messages follow a message."""
    lists = (dict.get(node, name) for name in _CHILDREN)
    below = [one for value in lists if isinstance(value, list) for one in value]
    return sum(1 + _below(one) for one in below if isinstance(one, dict))


def replies(node: Row) -> tuple[list[Row], list[Refused]]:
    """The replies to a message, in order, without those taken out, which are counted.

    Raises:
        RowError: they are no messages, or stand in two lists.
    """
    names = [name for name in _CHILDREN if dict.get(node, name) not in (None, [])]
    if len(names) > 1:
        raise RowError("bad_column", f"{' and '.join(names)} of a message both hold replies")
    children = node[names[0]] if names else []
    if not isinstance(children, list) or not all(isinstance(one, dict) for one in children):
        raise RowError("bad_column", "the replies to a message are not a list of messages")
    kept, gone = [], []
    for one in children:
        why = _is_gone(one)
        if why is None:
            kept.append(one)
        else:
            after = _below(one)
            more = f" and the {after} after it" if after else ""
            gone.append(Refused("deleted_message", f"{quoted(one)}{more}: {why}"))
    return kept, gone


def rank(node: Row) -> float | None:
    """Its rank among the answers to one message, the best lowest; None where it has none.

    Raises:
        RowError: it is not a number.
    """
    value = node.get("rank")
    if value is None:
        return None
    if type(value) not in (int, float) or value != value:
        raise RowError("bad_label", f"the rank {value!r} is not a number")
    return float(value)


def ranked(answers: list[Row]) -> bool:
    """Whether there are two answers to one message of which one has a rank."""
    return len(answers) > 1 and any(dict.get(one, "rank") is not None for one in answers)


def quoted(node: Row) -> str:
    """The beginning of a message's text, for a sentence."""
    text = next((node[name] for name in _TEXTS if isinstance(dict.get(node, name), str)), "")
    return repr(text[:40])
