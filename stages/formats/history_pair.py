"""``response_chosen`` and ``response_rejected`` to a ``question``, with ``system``, ``history``."""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row
from stages.formats import _pairs


class _HistoryPair:
    name = "history_pair"
    tasks = ("rm",)
    fans_out = False
    columns: Columns = {"answers": ("response_chosen", "response_rejected"), **_pairs.BESIDE}
    prompts = ("question",)

    def matches(self, row: Row) -> str | None:
        if "response_chosen" in row and "response_rejected" in row:
            return "response_chosen and response_rejected"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        sides = (row.get("response_chosen"), row.get("response_rejected"))
        return [_pairs.pair(row, *sides, options)]


FORMAT = _HistoryPair()
