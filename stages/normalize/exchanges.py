"""A fast path for batches in which every row is one question and one answer.

Most rows of SFT data are two texts. A batch of only such rows becomes columns without an object per
row. If one row is anything else, the whole batch takes the ordinary path, which gives the same
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stages import columns
from stages.chat_template import loss_weights
from stages.chat_template.reasoning import OPEN
from stages.columns import make_list
from stages.contract import Row
from stages.conversations import stop_text, templated
from stages.conversations.unfinished import opens_reasoning
from stages.kinds import Kind
from stages.rows import column_names


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Rows that are a question and an answer.

    Attributes:
        unread: the other columns, none of which changes what is trained.
    """

    prompts: list[str]
    replies: list[str]
    unread: list[str]


def _means_more(rows: Sequence[Row], column: str, kind: Kind) -> bool:
    """Whether a column must be looked at row by row; see ``unread.require_asked``."""
    named = column_names.seen(column, kind) or column_names.weighs(column)
    return bool(named) or any(column_names.rates(column, row[column], kind) for row in rows)


def texts(
    rows: Sequence[Row], kind: Kind, questions: Sequence[str], answers: Sequence[str]
) -> Exchanges | None:
    """Questions and answers of rows that are all exchanges; None where one row is anything else.

    Args:
        questions, answers: the names that a format reads them under.
    """
    if not rows:
        return None
    keys = rows[0].keys()
    asking = [name for name in questions if name in keys]
    answering = [name for name in answers if name in keys]
    if len(asking) != 1 or len(answering) != 1 or not all(row.keys() == keys for row in rows):
        return None
    unread = [name for name in keys if name not in (asking[0], answering[0])]
    if any(_means_more(rows, column, kind) for column in unread):
        return None
    prompts, replies = [row[asking[0]] for row in rows], [row[answering[0]] for row in rows]
    # Checked with map and set, without a Python loop over the rows.
    if {*map(type, prompts), *map(type, replies)} != {str} or not all(map(str.strip, replies)):
        return None
    # Most texts are seen to be ordinary by one character; only the others are looked into.
    if any(templated.read(text) for text in prompts if text[0:1] in templated.FIRST):
        return None
    stopped = [text for text in replies if text.rstrip()[-1] in stop_text.LAST]
    if any(map(stop_text.ending_stop, stopped)):
        return None
    if any(opens_reasoning(text) for text in replies if OPEN in text):
        return None
    return Exchanges(prompts, replies, unread)


def as_columns(prompts: Sequence[str], replies: Sequence[str]) -> dict[str, Any]:
    """The columns of such conversations: the answer is trained, the question is not."""
    count = len(prompts)
    # Turns alternate: even ones are questions, odd ones answers.
    contents = [""] * (2 * count)
    contents[::2], contents[1::2] = prompts, replies
    arrays = [
        pa.array(["user", "assistant"]).take(pa.array(np.tile([0, 1], count))),
        pa.array(contents, pa.string()),
        pa.nulls(2 * count, pa.string()),
        pa.array(np.tile([False, True], count)),
    ]
    turns = pa.StructArray.from_arrays(arrays, fields=list(columns.MESSAGES.value_type))
    return {
        "messages": make_list(2 * np.arange(count + 1), turns),
        "turn_weights": loss_weights.lists({}, count),
        "tools": pa.nulls(count, pa.string()),
    }
