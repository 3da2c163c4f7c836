"""``chosen`` and ``rejected``: text, one turn or turns, with or without a prompt of any kind."""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row
from stages.formats import _named_prompt, _pairs, answer_lists, hh_rlhf
from stages.formats._asked import Asking
from stages.kinds import PAIR


class _Preference(Asking):
    name = "preference"
    kinds = (PAIR,)
    columns: Columns = {"answers": ("chosen", "rejected"), **_pairs.BESIDE}
    prompts = (*_pairs.PROMPTS, "instruction", "chosen")
    answers = ("chosen", "rejected")
    asks = _pairs.PROMPTS
    asks_in_turns = _pairs.TURNS
    restates = _named_prompt.COLUMNS["prompt"]

    def matches(self, row: Row) -> str | None:
        if "chosen" not in row or "rejected" not in row or hh_rlhf.is_dialogue(row):
            return None
        if answer_lists.FORMAT.matches(row) is not None:
            return None
        return "chosen and rejected"

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        return [_pairs.pair(row, row.get("chosen"), row.get("rejected"), options)]


FORMAT = _Preference()
