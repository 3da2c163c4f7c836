"""What the PRM formats have in common: ratings, and the split of a joined text."""

from __future__ import annotations

import math
from typing import Any

from stages.contract import FormatOptions, StepChain
from stages.errors import RowError

# Step tags in the wild: Math-Shepherd, Qwen2.5-Math-PRM, Llama PRMs.
TAGS = ("ки", "<extra_0>", "<|reserved_special_token_0|>", "<step>", "<|step|>")
_SIGNS = {"+": 1.0, "-": 0.0}


def rating(value: Any, where: str) -> float | None:
    """A label as a rating from 0 (bad) to 1 (good); null is unlabelled.

    Raises:
        RowError: it is something else.
    """
    if value is None:
        return None
    if isinstance(value, str) and value.strip() in _SIGNS:
        return _SIGNS[value.strip()]
    if isinstance(value, (bool, int, float)) and math.isfinite(value) and 0 <= value <= 1:
        return float(value)
    raise RowError("bad_label", f"{where} is {value!r}; a rating is +, -, a boolean or 0 to 1")


def ratings(values: Any, steps: int, column: str) -> list[float | None]:
    """One rating per step.

    Raises:
        RowError: there are more or fewer than steps.
    """
    if not isinstance(values, list):
        raise RowError("bad_column", f"column {column!r} holds no list of labels")
    if len(values) != steps:
        raise RowError("label_count", f"{steps} steps and {len(values)} labels")
    return [rating(value, f"{column}[{i}]") for i, value in enumerate(values)]


def find_tag(text: str, options: FormatOptions) -> str:
    """The step tag that the text uses.

    Raises:
        RowError: none of the known ones stands in it.
    """
    tags = (options.step_tag,) if options.step_tag else TAGS
    tag = next((tag for tag in tags if tag in text), None)
    if tag is None:
        raise RowError("no_steps", f"no step tag ({', '.join(tags)}) stands in the text")
    return tag


def chain(pieces: list[str], labels: list[float | None], options: FormatOptions) -> StepChain:
    """A chain from a joined text, cut at its tags.

    The problem ends where the first step begins: at the first ``Step 1:``, or at what
    ``--prompt-separator`` says.

    Raises:
        RowError: text follows the last tag, or no step begins where one should.
    """
    if pieces[-1].strip():
        detail = f"text after the last step tag: {pieces[-1].strip()[:60]!r}"
        raise RowError("text_after_last_step", detail)
    at = pieces[0].find(options.prompt_separator)
    if at < 0:
        detail = f"no {options.prompt_separator!r} before the first tag; see --prompt-separator"
        raise RowError("no_first_step", detail)
    steps = [pieces[0][at:], *pieces[1:-1]]
    return StepChain(pieces[0][:at], steps, labels, pieces)


def texts(value: Any, column: str) -> list[str]:
    """A column that must hold a list of texts."""
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        raise RowError("bad_column", f"column {column!r} holds no list of texts")
    return value
