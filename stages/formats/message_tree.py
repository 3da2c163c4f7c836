"""A tree of messages whose answers are ranked: a pair for each two ranked answers to one message.

The prompt of a pair is the path to the message that both answer. ``message_tree/all`` makes pairs
of each two, not only of neighbours in rank. An answer that is in no pair is refused by name: one
without a rank beside others, and one without others where the tree ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from stages.contract import Columns, Example, FormatOptions, Message, Pair, Refused, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _replies
from stages.kinds import PAIR


def _is_alone(child: Row, answers: list[Row]) -> bool:
    """Whether a reply is the one answer to its message, or the one answer with a rank."""
    rated = answers if len(answers) == 1 else [a for a in answers if _replies.rank(a) is not None]
    return len(rated) == 1 and rated[0] is child


class _MessageTree(Format):
    """The format; ``every`` makes pairs of all ranked answers, not only of neighbours."""

    name = "message_tree"
    kinds = (PAIR,)
    columns: Columns = _replies.COLUMNS
    fans_out = True

    def __init__(self, every: bool = False) -> None:
        self._every = every

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"adjacent": _MessageTree(), "all": _MessageTree(every=True)}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        return "", "a pair for each two neighbours in rank; message_tree/all makes them of all"

    def matches(self, row: Row) -> str | None:
        column = _replies.where(row)
        if column is None or "chosen" in row:
            return None
        return f"a message with replies in {column}" if column else "a message with replies"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        node = _replies.root(row)
        examples = self._below(node, [_replies.message(node)])
        if not examples:
            raise RowError("no_pair", "no message has an answer")
        return examples

    def _below(self, node: Row, path: list[Message]) -> list[Example]:
        children, gone = _replies.replies(node)
        answers = [child for child in children if _replies.is_answer(child)]
        examples: list[Example] = [*gone, *(self._pairs(answers, path) if len(answers) > 1 else [])]
        for child in children:
            below = self._below(child, [*path, _replies.message(child)])
            if _is_alone(child, answers) and not any(isinstance(one, Pair) for one in below):
                detail = f"{_replies.quoted(child)} has no other answer to compare it with"
                examples.append(Refused("only_answer", detail))
            examples += below
        return examples

    def _pairs(self, answers: list[Row], path: list[Message]) -> list[Example]:
        """The pairs of the answers to the last message of a path."""
        ranks = [(rank, one) for one in answers if (rank := _replies.rank(one)) is not None]
        examples: list[Example] = [
            Refused("unranked_answer", f"{_replies.quoted(one)} has no rank")
            for one in answers
            if _replies.rank(one) is None
        ]
        ordered = sorted(ranks, key=lambda pair: pair[0])
        couples = itertools.combinations(ordered, 2) if self._every else itertools.pairwise(ordered)
        for (high, better), (low, worse) in couples:
            if high == low:
                both = f"{_replies.quoted(better)} and {_replies.quoted(worse)}"
                examples.append(Refused("tie", f"{both} have the same rank {high:g}"))
                continue
            sides = ([_replies.message(better)], [_replies.message(worse)])
            examples.append(Pair(list(path), *sides))
        return examples


FORMAT = _MessageTree()
