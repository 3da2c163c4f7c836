"""``input.messages`` with ``preferred_output`` and ``non_preferred_output``, each one answer."""

from __future__ import annotations

from typing import Any

from stages.contract import Columns, Example, FormatOptions, Pair, Row
from stages.errors import RowError
from stages.formats import _pairs, _turns
from stages.formats._asked import Asking
from stages.kinds import PAIR
from stages.rows.watched import peek

_SIDES = ("preferred_output", "non_preferred_output")


class _PreferredOutput(Asking):
    name = "preferred_output"
    kinds = (PAIR,)
    columns: Columns = {"prompt": ("input",), "answers": _SIDES, **_pairs.MARGIN}

    def matches(self, row: Row) -> str | None:
        asked = peek(row, "input")
        if not isinstance(asked, dict) or not all(name in row for name in _SIDES):
            return None
        return "input.messages, preferred_output and non_preferred_output"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        asked: Any = row.get("input")
        if not isinstance(asked, dict):
            raise RowError("bad_column", "column 'input' is not an object with messages")
        prompt = _turns.conversation(asked.get("messages"), "input.messages")
        chosen, rejected = (_pairs.side(row.get(name), name) for name in _SIDES)
        _pairs.require_answers([chosen, rejected])
        margin = _pairs.margin(row, options.columns)
        return [Pair(prompt, chosen, rejected, margin=margin, tools=_turns.tools(asked))]


FORMAT = _PreferredOutput()
