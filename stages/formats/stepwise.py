"""``prompt``, ``completions`` (the steps) and ``labels`` (one a step)."""

from __future__ import annotations

from stages.contract import Example, FormatOptions, Row, StepChain
from stages.formats import _steps, _turns


class _Stepwise:
    name = "stepwise"
    tasks = ("prm",)
    fans_out = False

    def matches(self, row: Row) -> str | None:
        if isinstance(row.get("completions"), list) and isinstance(row.get("labels"), list):
            return "prompt, completions and labels"
        return None

    def read(self, row: Row, task: str, options: FormatOptions) -> list[Example]:
        steps = _steps.texts(row.get("completions"), "completions")
        labels = _steps.ratings(row.get("labels"), len(steps), "labels")
        return [StepChain(_turns.text(row, "prompt"), steps, labels)]


FORMAT = _Stepwise()
