"""``instruction``, ``input``, ``output``, or an instruction with several ``instances`` of both.

The input, when there is one, follows the instruction after a blank line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Conversation, Example, Format, FormatOptions, Row
from stages.errors import RowError
from stages.formats import _turns

_INPUTS = ("input", "context")
_OUTPUTS = ("output", "response")


def asked(row: Mapping[str, Any]) -> str:
    """What the user says in an instruction row."""
    instruction = _turns.text(row, "instruction")
    name = _turns.first_of(row, _INPUTS)
    extra = row[name] if name else None
    if extra is not None and not isinstance(extra, str):
        raise RowError("bad_column", f"column {name!r} is a {type(extra).__name__}, not text")
    return f"{instruction}\n\n{extra}" if extra else instruction


def _one(row: Row, options: FormatOptions) -> Conversation:
    answer = _turns.text(row, _turns.chosen_of(row, _OUTPUTS, options.columns) or "output")
    return Conversation(_turns.exchange(row, asked(row), answer, options))


class _Alpaca:
    name = "alpaca"
    tasks: tuple[str, ...] = ("sft",)
    fans_out = False
    prompts: tuple[str, ...] = ("instruction",)

    def matches(self, row: Row) -> str | None:
        if "instruction" not in row or "chosen" in row:
            return None
        if isinstance(row.get("instances"), list):
            return "instruction and instances"
        output = next((name for name in _OUTPUTS if name in row), None)
        return f"instruction and {output}" if output else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        return [_one(row, options)]

    @property
    def variants(self) -> Mapping[str, Format]:
        return {"instances": _Instances()}

    def settle(self, rows: Sequence[Row]) -> tuple[str, str]:
        nested = any(isinstance(row.get("instances"), list) for row in rows)
        return ("instances", "one example per instance") if nested else ("", "")


class _Instances(_Alpaca):
    fans_out = True

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        if "instances" not in row:
            return [_one(row, options)]
        instances = row["instances"]
        if not isinstance(instances, list) or not all(isinstance(one, dict) for one in instances):
            raise RowError("bad_column", "column 'instances' holds no list of objects")
        return [_one({**row, **one}, options) for one in instances]


FORMAT = _Alpaca()
