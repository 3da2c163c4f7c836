"""Columns that hold how an answer begins, or the whole of one that a row has the end of.

An answer that goes on from a text that the model never sees is trained, or compared, as if it began
there. So such a column is asked about for answers and for both sides of a pair alike.
"""

from typing import Any

from stages.contract import Conversation, Example, Pair, Row
from stages.errors import AskError
from stages.rows.column_names import EMPTY, Watched
from stages.rows.unread import ReadRow, ignore, mapped, turns_of
from stages.rows.words import parts

_BEGIN = frozenset(("prefix", "prefill"))
_SHARE = frozenset(("initial", "partial", "full", "whole"))  # of what the other part names
_REASONING = frozenset(("reason", "reasoning"))
_ANSWER = frozenset(
    "answer chosen completion output reason reasoning rejected response solution step steps".split()
)


def _parts(path: str) -> frozenset[str]:
    return frozenset(parts(path.rpartition(".")[2]))


def begins_answer(path: str) -> bool:
    """Whether a column's name says that it is the beginning, or the whole, of an answer."""
    parts = _parts(path)
    return bool(parts & _BEGIN) or bool(parts & _SHARE and parts & _ANSWER)


def _is_text(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(isinstance(one, str) and one.strip() for one in listed)


def require_read(row: Row, examples: list[Example]) -> None:
    """No column that begins an answer is left out without an option.

    Raises:
        AskError: one is.
    """
    if not isinstance(row, Watched) or not examples:
        return
    if not all(isinstance(one, Conversation | Pair) for one in examples):
        return
    trained = isinstance(examples[0], Conversation)
    read = ReadRow(row, examples)
    spoken = (turn for turn in turns_of(examples) if turn.role == "assistant")
    answers = tuple(said.rstrip() for turn in spoken if (said := turn.content or "").strip())
    left: dict[str, str | None] = {}  # the column whose text is the end of it, by path
    for path, value in row.unread():
        if value in EMPTY or not begins_answer(path) or not _is_text(value):
            continue
        if trained and _REASONING & _parts(path):
            continue  # which may be trained as such: the words of names ask about it
        part = next((n for n in row.read_columns if n != path and path.endswith(f"_{n}")), None)
        whole = part and isinstance(value, str) and value.rstrip().endswith(answers)
        if whole or not read.repeats(value):
            left[path] = part if whole else None
    if not left:
        return
    ways = [" ".join(mapped(part, path) for path, part in left.items() if part)] * all(
        left.values()
    )
    ways.append(" ".join(map(ignore, left)))
    told = ("read as the answer with ", "left out with ")[-len(ways) :]
    how = f"Say which: {', or '.join(f'{s}{way}' for s, way in zip(told, ways, strict=True))}"
    what = f"{' and '.join(left)}: the beginning of an answer, or all of it, which nothing reads"
    raise AskError("unread_column", f"{what}; {how[:1].lower()}{how[1:]}", how)
