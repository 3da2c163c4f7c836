"""``response_chosen`` and ``response_rejected``, or the same words the other way round."""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row
from stages.formats import _pairs

_SIDES = (("response_chosen", "response_rejected"), ("chosen_response", "rejected_response"))


def _sides(row: Row) -> tuple[str, str] | None:
    """The columns of both answers."""
    return next((names for names in _SIDES if all(name in row for name in names)), None)


class _HistoryPair:
    name = "history_pair"
    tasks = ("rm",)
    fans_out = False
    columns: Columns = {
        "answers": tuple(name for names in _SIDES for name in names),
        **_pairs.BESIDE,
    }
    prompts = _pairs.PROMPTS

    def matches(self, row: Row) -> str | None:
        names = _sides(row)
        return f"{names[0]} and {names[1]}" if names else None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        chosen, rejected = _sides(row) or _SIDES[0]
        return [_pairs.pair(row, row.get(chosen), row.get(rejected), options)]


FORMAT = _HistoryPair()
