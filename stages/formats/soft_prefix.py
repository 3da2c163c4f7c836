"""``prefixes`` of a solution, each a step longer than the one before, and a value for each.

The values are shares of continuations that reached the right answer, from 0 to 1.
"""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row, StepChain
from stages.errors import RowError
from stages.formats import _rivals, _steps, _turns
from stages.formats._asked import Asking
from stages.kinds import STEPS

_PREFIXES = ("prefixes", "prefix", "partial_solutions", "step_prefixes", "cumulative_steps")
_VALUES = ("values", "value", "mc_values", "mc_value", "soft_labels", "scores", "labels", "label")


def _steps_of(prefixes: list[str]) -> list[str]:
    """What each prefix adds to the one before.

    Raises:
        RowError: one does not begin with the one before.
    """
    steps = []
    before = ""
    for number, prefix in enumerate(prefixes, 1):
        if not prefix.startswith(before):
            raise RowError("not_cumulative", f"prefix {number} does not begin with the one before")
        steps.append(prefix[len(before) :])
        before = prefix
    return steps


class _SoftPrefix(Asking):
    name = "soft_prefix"
    kinds = (STEPS,)
    columns: Columns = {**_steps.PROBLEM, "prefixes": _PREFIXES, "values": _VALUES}
    prompts = _steps.PROBLEMS

    def matches(self, row: Row) -> str | None:
        prefixes, values = _turns.first_of(row, _PREFIXES), _turns.first_of(row, _VALUES)
        if prefixes is None or values is None:
            return None
        if isinstance(row[prefixes], list) and isinstance(row[values], list):
            return f"{prefixes} and {values}"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        name = _turns.chosen_of(row, _PREFIXES, options.columns) or "prefixes"
        steps = _steps_of(_steps.texts(row.get(name), name))
        column = _rivals.rated(row, _VALUES, options.columns) or "values"
        _rivals.require_same_ratings(row, column, _VALUES, options.columns)
        labels = _steps.ratings(row.get(column), len(steps), column)
        return [StepChain(_steps.problem(row, options), steps, labels)]


FORMAT = _SoftPrefix()
