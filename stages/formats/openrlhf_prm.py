"""``input`` text with a step tag, and a list of ratings: ``+``/``-`` or numbers."""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row
from stages.formats import _rivals, _steps, _turns
from stages.formats._asked import Asking
from stages.kinds import STEPS

_LABELS = ("value", "label", "labels", "values")


class _OpenRLHF(Asking):
    name = "openrlhf_prm"
    kinds = (STEPS,)
    columns: Columns = {"text": ("input",), "ratings": _LABELS, **_turns.BEFORE}
    prompts = ("input",)
    step_text = (("input",), _LABELS)

    def matches(self, row: Row) -> str | None:
        name = _turns.first_of(row, _LABELS)
        if isinstance(row.get("input"), str) and name and isinstance(row[name], list):
            return f"input text and a list in {name}"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        _steps.require_alone(row, options)
        name = _rivals.rated(row, _LABELS, options.columns) or "value"
        _rivals.require_same_ratings(row, name, _LABELS, options.columns)
        text = _turns.text(row, "input")
        pieces = text.split(_steps.find_tag(text, options))
        labels = _steps.ratings(row.get(name), len(pieces) - 1, name)
        return [_steps.chain(pieces, labels, options)]


FORMAT = _OpenRLHF()
