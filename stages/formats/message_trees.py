"""Message trees: each message has the replies to it, and answers to one message may be ranked."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stages.contract import Conversation, Example, FormatOptions, Message, Pair, Refused, Row
from stages.errors import RowError, UndecidedError
from stages.formats import _messages, _turns
from stages.formats._fields import Asking, Field, below, columns_of, lists_of, required
from stages.kinds import CONVERSATION, PAIR
from stages.rows.column_names import peek
from stages.rows.speakers import role_named

_ROOTS = ("prompt", "tree", "root", "message_tree", "message")
_CHILDREN = ("replies", "children")
_TEXTS = ("text", "content")
_TEXT = Field("text of a message", _TEXTS)
# What a message says of itself when it was taken out of its tree.
_FLAGS = {"deleted": True, "is_deleted": True, "removed": True, "review_result": False}


def _is_node(value: Any) -> bool:
    spoken = isinstance(value, dict) and isinstance(peek(value, "role"), str)
    answered = spoken and any(isinstance(peek(value, name), list) for name in _CHILDREN)
    return answered and any(isinstance(peek(value, name), str) for name in _TEXTS)


def where(row: Row) -> str | None:
    """The column that holds the tree; empty where the row itself is its first message."""
    if _is_node(row):
        return ""
    return next((name for name in _ROOTS if _is_node(peek(row, name))), None)


def _root(row: Row) -> Row:
    """The first message of a tree that can be used.

    Raises:
        RowError: there is no tree, or its first message was taken out.
    """
    column = required(where(row), "there is no message with replies")
    node: Row = row[column] if column else row
    why = _is_gone(node)
    if why is not None:
        raise RowError("deleted_message", f"the first message says that {why}")
    return node


def _message(node: Row) -> Message:
    """The message of a node.

    Raises:
        RowError: its role is unknown, or it has no text.
    """
    role = role_named(node.get("role"))
    if role is None:
        raise _messages.unknown_role(node.get("role"), "a message of the tree")
    return Message(role, _turns.text(node, _TEXT.needed(node, before="**.")))


def _is_answer(node: Row) -> bool:
    """Whether the assistant says it."""
    return isinstance(node, dict) and role_named(peek(node, "role")) == "assistant"


def _is_gone(node: Row) -> str | None:
    """The flag by which a message says that it was taken out; None where none does.

    Raises:
        RowError: such a flag is neither true nor false.
    """
    why = None
    for name, gone in _FLAGS.items():
        value = node.get(name)
        if value is not None and not isinstance(value, bool):
            what = f"{name} of the message {_quoted(node)} is {value!r}, not true or false"
            raise RowError("bad_column", what)
        if value is gone:
            why = why or f"{name} is {str(gone).lower()}"
    return why


def _replies(node: Row) -> tuple[list[Row], list[Refused]]:
    """The replies to a message, in order, without those taken out, which are counted.

    Raises:
        RowError: they are no messages, or stand in two lists.
    """
    names = [name for name in _CHILDREN if peek(node, name) not in (None, [])]
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
            after = len([*below(one, _CHILDREN)])
            more = f" and the {after} after it" if after else ""
            gone.append(Refused("deleted_message", f"{_quoted(one)}{more}: {why}"))
    return kept, gone


def _rank(node: Row) -> float | None:
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


def _ranked(answers: list[Row]) -> bool:
    """Whether there are two answers to one message of which one has a rank."""
    return len(answers) > 1 and any(peek(one, "rank") is not None for one in answers)


def _quoted(node: Row) -> str:
    """The beginning of a message's text, for a sentence."""
    text = next((node[name] for name in _TEXTS if isinstance(peek(node, name), str)), "")
    return repr(text[:40])


class _Tree(Asking, abstract=True):
    """A format whose rows are trees of messages."""

    columns = columns_of("message_tree")
    fans_out = True

    def matches(self, row: Row) -> str | None:
        column = where(row)
        if column is None or not self._never.isdisjoint(row):
            return None
        return f"a message with replies in {column}" if column else "a message with replies"


def _has_ranks(node: Row) -> bool:
    """Whether there are ranked answers to one message of a tree."""
    every = (node, *below(node, _CHILDREN))
    lists = (peek(one, key) for one in every for key in lists_of(one, _CHILDREN))
    return any(_ranked([one for one in some if _is_answer(one)]) for some in lists)


class _MessagePaths(_Tree):
    """A tree of messages as conversations: one for each path that ends in an answer.

    An answer that several paths share is trained once, in a conversation that ends with it:
    whatever becomes of the paths that go on from there, it is neither lost nor trained again. Where
    answers are ranked, ``message_paths/best`` follows the best of them and ``message_paths/all``
    all.
    """

    name = "message_paths"
    kinds = (CONVERSATION,)
    ways = ("best", "all")

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        ranked = sum(_has_ranks(peek(row, where(row) or "") or row) for row in rows)
        if not ranked:
            return "", "a conversation for each path"
        what = f"the answers of {ranked} of {len(rows)} trees are ranked, so the best may be meant"
        raise UndecidedError(f"{what}, or all", self.ways)

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        node = _root(row)
        return self._below(node, [_message(node)])

    def _below(self, node: Row, path: list[Message]) -> list[Example]:
        """The conversations that begin with a path."""
        children, gone = _replies(node)
        answers = [child for child in children if _is_answer(child)]
        best: float | None = None
        if self._way != "all" and _ranked(answers):
            if not self._way:
                what = "the answers are ranked; see --format message_paths"
                raise RowError("ranked_answers", what)
            best = min(rank for one in answers if (rank := _rank(one)) is not None)
        examples: list[Example] = list(gone)
        for child in children:
            if best is not None and _is_answer(child) and _rank(child) != best:
                detail = f"{_quoted(child)} is not the best answer"
                examples.append(Refused("not_the_best", detail))
                continue
            examples += self._below(child, [*path, _message(child)])
        further = [one for one in examples if isinstance(one, Conversation)]
        if path[-1].role != "assistant":
            if further:
                return examples
            return [*examples, Refused("no_answer", f"{path[-1].content!r:.42} has no answer")]
        if len(further) == 1:  # the one conversation that goes on from here trains this answer
            return examples
        for one in further:
            one.messages[len(path) - 1] = replace(path[-1], trained=False)
        own = Conversation([replace(message) for message in path])
        return [own, *examples] if further else [*examples, own]


class _MessageTree(_Tree):
    """A tree of messages whose answers are ranked: a pair for each two ranked answers to one
    message.

    The prompt of a pair is the path to the message that both answer. ``message_tree/all`` makes
    pairs of each two, not only of neighbours in rank. An answer that is in no pair is refused by
    name: one without a rank beside others, and one without others where the tree ends.
    """

    name = "message_tree"
    kinds = (PAIR,)
    _never = frozenset(("chosen",))
    ways = ("adjacent", "all")

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        return "", "a pair for each two neighbours in rank; message_tree/all makes them of all"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        node = _root(row)
        examples = self._below(node, [_message(node)])
        if not examples:
            raise RowError("no_pair", "no message has an answer")
        return examples

    def _below(self, node: Row, path: list[Message]) -> list[Example]:
        children, gone = _replies(node)
        answers = [child for child in children if _is_answer(child)]
        examples: list[Example] = [*gone, *(self._pairs(answers, path) if len(answers) > 1 else [])]
        rated = answers if len(answers) == 1 else [a for a in answers if _rank(a) is not None]
        for child in children:
            below = self._below(child, [*path, _message(child)])
            alone = len(rated) == 1 and rated[0] is child
            if alone and not any(isinstance(one, Pair) for one in below):
                detail = f"{_quoted(child)} has no other answer to compare it with"
                examples.append(Refused("only_answer", detail))
            examples += below
        return examples

    def _pairs(self, answers: list[Row], path: list[Message]) -> list[Example]:
        """The pairs of the answers to the last message of a path."""
        ranks = [(rank, one) for one in answers if (rank := _rank(one)) is not None]
        others = (_quoted(one) for one in answers if _rank(one) is None)
        examples: list[Example] = [Refused("unranked_answer", f"{o} has no rank") for o in others]
        ordered = sorted(ranks, key=lambda pair: pair[0])
        every = self._way == "all"
        couples = itertools.combinations(ordered, 2) if every else itertools.pairwise(ordered)
        for (high, better), (low, worse) in couples:
            if high == low:
                both = f"{_quoted(better)} and {_quoted(worse)}"
                examples.append(Refused("tie", f"{both} have the same rank {high:g}"))
                continue
            sides = ([_message(better)], [_message(worse)])
            examples.append(Pair(list(path), *sides))
        return examples


TABLE = (_MessagePaths(), _MessageTree())
