"""Two aligned texts: a step tag in ``input``, the rating at the same place in ``label``.

Only the characters of ``label`` that stand where ``input`` has the tag are ratings; every other
``+`` and ``-`` is arithmetic.
"""

from __future__ import annotations

from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError
from stages.format import Format
from stages.formats import _steps, _turns
from stages.kinds import STEPS


def _signs(pieces: list[str], label: str) -> list[float | None]:
    signs: list[float | None] = []
    at = 0
    for number, piece in enumerate(pieces):
        if not label.startswith(piece, at):
            detail = f"input and label differ before tag {number + 1}, near character {at}"
            raise RowError("misaligned", detail)
        at += len(piece)
        if number < len(pieces) - 1:
            signs.append(_steps.rating(label[at : at + 1], f"the label of step {number + 1}"))
            at += 1
    if at != len(label):
        raise RowError("misaligned", f"label goes on after character {at}, where input ends")
    return signs


class _MathShepherd(Format):
    name = "math_shepherd"
    kinds = (STEPS,)
    columns: Columns = {"text": ("input",), "ratings": ("label",), **_turns.BEFORE}
    prompts = ("input",)
    step_texts = (("input",), ("label",))

    def matches(self, row: Row) -> str | None:
        if isinstance(row.get("input"), str) and isinstance(row.get("label"), str):
            return "input and label texts"
        return None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        _steps.require_alone(row, options)
        text = _turns.text(row, "input")
        pieces = text.split(_steps.find_tag(text, options))
        return [_steps.chain(pieces, _signs(pieces, _turns.text(row, "label")), options)]


FORMAT = _MathShepherd()
