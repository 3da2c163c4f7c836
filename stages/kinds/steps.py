"""Solutions in steps, each with a rating that is read at a marker after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stages import kinds
from stages.contract import StepChain
from stages.rows import examples

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize


class Steps(kinds.Kind):
    """A problem and its steps; with ``raw`` the row's own text between its tags."""

    name = formats = trains_as = kinds.STEPS
    words = "rated steps"
    columns = ("problem", "steps", "tail", "step_labels", "note")
    texts = ("problem", "steps")
    requires = (*kinds.Kind.requires, "step_positions", "step_labels")
    marks = True
    legend = ("context", "good", "bad", "open")
    end_of_turn = "closes the answer, untrained"
    trims = "steps"
    plain = True

    def notes(self, example: StepChain, normalize: Normalize) -> list[str]:
        """Whether stripping the steps removes indents or blank lines."""
        rewritten = not normalize.raw and examples.is_rewritten(example.steps)
        return ["steps_rewritten"] if rewritten else []

    def ready(self, example: StepChain, normalize: Normalize) -> list[Any]:
        """The chain with stripped steps, and its steps as the row has them."""
        return [(examples.chain(example), example.steps)]

    def filled(self, ready: Sequence[Any], normalize: Normalize) -> dict[str, Any]:
        """Problem, steps, the text after the last step, ratings."""
        chains = [row[0] if row else None for row in ready]
        said = [_said(row, normalize) for row in ready]
        return {
            "problem": [chain.problem if chain else None for chain in chains],
            "steps": [steps for steps, _ in said],
            "tail": [tail for _, tail in said],
            "step_labels": [chain.labels if chain else [] for chain in chains],
        }


def _said(
    row: tuple[StepChain, list[str]] | None, normalize: Normalize
) -> tuple[list[str], str | None]:
    """The steps of a chain, and the text after them, as its row has them where that is asked for.

    Args:
        row: a chain and its steps as written; None for one that is refused.
    """
    if row is None:
        return [], None
    chain, written = row
    if not normalize.raw:
        return chain.steps, None
    if chain.pieces is not None:
        return chain.pieces[:-1], chain.pieces[-1]
    return _one_text(chain.problem, written, normalize.step_separator), ""


def _one_text(problem: str, steps: list[str], separator: str) -> list[str]:
    """The pieces of one text from a problem and steps given as a list: the steps as written, with a
    separator where the row has no line break between them."""
    pieces, before = [], problem
    for number, step in enumerate(steps):
        between = separator if number else "\n"
        broken = before.endswith("\n") or step.startswith("\n")
        pieces.append(step if broken else f"{between}{step}")
        before = step
    return [problem + pieces[0], *pieces[1:]]


KIND = Steps()
