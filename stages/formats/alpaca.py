"""``instruction``, ``input``, ``output``; the input, when there is one, follows a blank line."""

from __future__ import annotations

from stages.contract import Conversation, Example, FormatOptions, Message, Row
from stages.errors import RowError
from stages.formats import _turns


def user_turn(row: Row) -> Message:
    """The user's turn of an instruction row."""
    instruction = _turns.text(row, "instruction")
    extra = row.get("input")
    if extra is not None and not isinstance(extra, str):
        raise RowError("bad_column", f"column 'input' is a {type(extra).__name__}, not text")
    return Message("user", f"{instruction}\n\n{extra}" if extra else instruction)


class _Alpaca:
    name = "alpaca"
    tasks = ("sft",)
    fans_out = False

    def matches(self, row: Row) -> str | None:
        if "instruction" in row and "output" in row and "chosen" not in row:
            return "instruction and output"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        messages = [user_turn(row), Message("assistant", _turns.text(row, "output"))]
        system = row.get("system")
        if isinstance(system, str) and system:
            messages.insert(0, Message("system", system))
        return [Conversation(messages)]


FORMAT = _Alpaca()
