"""Which rows must not be separated: those of one group are all in train, or all in test.

A group is a 64-bit hash, of a row's question or of the value of a column. It depends on the row's
content alone, so no other row, no order and no file name moves a row to the other side. Questions
are compared by their letters and digits: what differs in case, accents, spaces or punctuation is
one question, and so is whatever a template or a tokenizer would make equal.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from stages import columns
from stages.contract import Batch, Record
from stages.rows.selection import AND_QUESTION, lookup

NAME = "group"
BY_QUESTION = ""
NO_QUESTION = 0  # the group of rows that ask nothing
ASKED = "asked"  # of rows whose groups are joined where they ask the same: the group by question
NO_GROUP = "no_group"  # the code of rows without a value in the column of --group-by
_OTHERS = re.compile(r"\W+")
# The same for ASCII, ten times as fast: what is removed, and what each byte becomes.
_OTHER_BYTES = bytes(byte for byte in range(128) if _OTHERS.match(chr(byte)))
_LOWER_BYTES = bytes(range(256)).lower()


def comparable(text: str) -> str:
    """Letters and digits of a text, without case and accents; the text itself if it has none."""
    if text.isascii():
        return text.encode().translate(_LOWER_BYTES, _OTHER_BYTES).decode() or text
    text = unicodedata.normalize("NFKD", text)
    return _OTHERS.sub("", text.casefold()) or text


def first_questions(conversations: pa.ListArray) -> list[str]:
    """What is asked before the first answer of each conversation.

    System turns are left out, since a template may print one that the row does not have. Where
    nothing is asked first, it is all that is said.
    """
    offsets, turns = columns.list_parts(conversations)
    role = turns.field("role")
    content = turns.field("content").fill_null("")
    row = np.repeat(np.arange(len(conversations)), np.diff(offsets))
    place = np.arange(len(turns))
    said = ~pc.equal(role, "system").to_numpy(zero_copy_only=False)
    answered = pc.equal(role, "assistant").to_numpy(zero_copy_only=False)
    answers = np.append(place[answered], len(turns))
    first_answer = answers[np.searchsorted(answers, offsets[:-1])]
    asked = said & (place < first_answer[row])
    counts = np.bincount(row[asked], minlength=len(conversations))
    asked |= said & (counts == 0)[row]
    counts = np.bincount(row[asked], minlength=len(conversations))
    texts = content.filter(pa.array(asked)).to_pylist()
    bounds = np.append(0, np.cumsum(counts)).tolist()
    return ["\n".join(texts[first:last]) for first, last in pairwise(bounds)]


def _of_column(records: Iterable[Record], path: str) -> dict[int, int]:
    """The group of each line that has a value there."""
    found: dict[int, int] = {}
    for record in records:
        value = lookup(record.data, path) if record.data is not None else None
        if value is not None:
            spelled = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            found[record.line] = xxh3_64_intdigest(spelled)
    return found


def _of_questions(lines: Sequence[int], questions: Iterable[str]) -> dict[int, int]:
    """The group of each line: that of the first of its sequences that asks something."""
    found: dict[int, int] = {}
    for line, question in zip(lines, questions, strict=True):
        if question and line not in found:
            found[line] = xxh3_64_intdigest(comparable(question).encode())
    return found


def put(
    batch: Batch, by: str, questions: Callable[[], list[str]], records: Iterable[Record]
) -> Batch:
    """The batch with the column ``group``; a row without a value for it is refused.

    Args:
        by: a path of a column, with ``AND_QUESTION`` behind it or not, or ``BY_QUESTION``.
        questions: of each sequence; not asked for where a column decides alone.
    """
    lines: list[Any] = batch.column("line").to_pylist()
    column = by.removesuffix(AND_QUESTION)
    if column != by:
        batch = _put(batch, ASKED, lines, _of_questions(lines, questions()))
    if by == BY_QUESTION:
        found = _of_questions(lines, questions())
    else:
        found = _of_column(records, column)
        missing = np.array([line not in found for line in lines], bool)
        details = [f"no value in {column!r}, by which rows are grouped"] * int(missing.sum())
        batch = columns.refuse(batch, missing, NO_GROUP, details)
    return _put(batch, NAME, lines, found)


def _put(batch: Batch, name: str, lines: Sequence[int], found: Mapping[int, int]) -> Batch:
    values = [found.get(line, NO_QUESTION) for line in lines]
    return columns.put(batch, name, pa.array(values, pa.uint64()))


def columns_of(by: str | None) -> tuple[str, ...]:
    """The columns that ``put`` fills; none where rows are not grouped."""
    if by is None:
        return ()
    return (NAME, ASKED) if by.endswith(AND_QUESTION) else (NAME,)
