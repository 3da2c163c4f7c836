"""A tree of messages as conversations: one for each path that ends in an answer.

An answer that several paths share is trained once, in a conversation that ends with it: whatever
becomes of the paths that go on from there, it is neither lost nor trained again. Where answers are
ranked, ``message_paths/best`` follows the best of them and ``message_paths/all`` all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages.contract import (
    Columns,
    Conversation,
    Example,
    FormatOptions,
    Message,
    Refused,
    Row,
)
from stages.errors import RowError, UndecidedError
from stages.format import Format
from stages.formats import _replies
from stages.kinds import CONVERSATION

VARIANTS = ("best", "all")


def _has_ranks(node: Any) -> bool:
    if not isinstance(node, dict):
        return False
    given = [value for value in map(node.get, ("replies", "children")) if isinstance(value, list)]
    children = [one for value in given for one in value if isinstance(one, dict)]
    answers = [one for one in children if _replies.is_answer(one)]
    return _replies.ranked(answers) or any(map(_has_ranks, children))


class _MessagePaths(Format):
    """The format; ``which`` of ranked answers are followed."""

    name = "message_paths"
    kinds = (CONVERSATION,)
    columns: Columns = _replies.COLUMNS
    fans_out = True

    def __init__(self, which: str = "") -> None:
        self._which = which

    @property
    def variants(self) -> Mapping[str, Format]:
        return {name: _MessagePaths(name) for name in VARIANTS}

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        ranked = sum(_has_ranks(_replies.first(row)) for row in rows)
        if not ranked:
            return "", "a conversation for each path"
        what = f"the answers of {ranked} of {len(rows)} trees are ranked, so the best may be meant"
        raise UndecidedError(f"{what}, or all", VARIANTS)

    def matches(self, row: Row) -> str | None:
        column = _replies.where(row)
        if column is None:
            return None
        return f"a message with replies in {column}" if column else "a message with replies"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        node = _replies.root(row)
        return self._below(node, [_replies.message(node)])

    def _below(self, node: Row, path: list[Message]) -> list[Example]:
        """The conversations that begin with a path."""
        children, gone = _replies.replies(node)
        answers = [child for child in children if _replies.is_answer(child)]
        followed = self._followed(answers)
        examples: list[Example] = list(gone)
        for child in children:
            if _replies.is_answer(child) and not any(child is one for one in followed):
                detail = f"{_replies.quoted(child)} is not the best answer"
                examples.append(Refused("not_the_best", detail))
                continue
            examples += self._below(child, [*path, _replies.message(child)])
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

    def _followed(self, answers: list[Row]) -> list[Row]:
        if self._which == "all" or not _replies.ranked(answers):
            return answers
        if not self._which:
            raise RowError("ranked_answers", "the answers are ranked; see --format message_paths")
        ranks = [rank for one in answers if (rank := _replies.rank(one)) is not None]
        return [one for one in answers if _replies.rank(one) == min(ranks)]


FORMAT = _MessagePaths()
