"""PRM800K: several completions per step, each rated -1, 0 or 1; one of them was chosen.

As TRL published it: one example for each completion that is not the chosen one (the chosen steps
before it, then it), and one for the whole chosen chain. Following only the chosen completions
would give no bad step at all. A human-written step stands in for a missing chosen one.

A completion that is in no example is refused by name: one that nobody rated, and one that comes
behind a step where nothing was chosen.
"""

from __future__ import annotations

from typing import Any

from stages.contract import Columns, Example, FormatOptions, Refused, Row, StepChain
from stages.errors import RowError
from stages.format import Format
from stages.formats import _ratings, _turns
from stages.kinds import STEPS

Rated = tuple[str, float | None]


def _rated(completion: Any, where: str, options: FormatOptions) -> Rated:
    if not isinstance(completion, dict):
        raise RowError("bad_column", f"{where} is not an object")
    value = completion.get("rating")
    if value is not None and value not in (-1, 0, 1):
        raise RowError("bad_label", f"{where} has the rating {value!r}, not -1, 0 or 1")
    label = None if value is None else _ratings.signed_ratings(options)[value]
    return _turns.text(completion, "text"), label


def _chosen(step: dict[str, Any], rated: list[Rated], where: str) -> Rated | None:
    index = step.get("chosen_completion")
    if index is not None:
        if type(index) is not int or not 0 <= index < len(rated):
            raise RowError("bad_column", f"{where} chooses completion {index!r} of {len(rated)}")
        return rated[index]
    human = step.get("human_completion")
    if human is None:
        return None
    return _turns.text(human if isinstance(human, dict) else {"text": human}, "text"), 1.0


class _PRM800K(Format):
    name = "prm800k"
    kinds = (STEPS,)
    fans_out = True
    columns: Columns = {"problem": ("question",), "steps": ("label",)}

    def matches(self, row: Row) -> str | None:
        label, question = row.get("label"), row.get("question")
        known = isinstance(label, dict) and "steps" in label and isinstance(question, dict)
        return "question.problem and label.steps" if known else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        question, label = row.get("question"), row.get("label")
        if not isinstance(question, dict) or not isinstance(label, dict):
            raise RowError("bad_column", "there is no question.problem and label.steps")
        problem, steps = _turns.text(question, "problem"), label.get("steps")
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise RowError("bad_column", "label.steps is not a list of steps")
        chain: list[Rated] = []
        examples: list[Example] = []
        ended = len(steps)
        for number, step in enumerate(steps):
            where = f"step {number + 1}"
            completions = step.get("completions") or []
            rated = [
                _rated(c, f"{where} completion {i}", options) for i, c in enumerate(completions)
            ]
            chosen = step.get("chosen_completion")
            for i, one in enumerate(rated):
                if i != chosen and completions[i].get("rating") is None:
                    detail = f"{where} completion {i} has no rating"
                    examples.append(Refused("unrated_completion", detail))
                elif i != chosen:
                    examples.append(_as_chain(problem, [*chain, one]))
            taken = _chosen(step, rated, where)
            if chosen is not None and step.get("human_completion") is not None:
                detail = f"{where}: a human wrote a completion, but another one is chosen"
                examples.append(Refused("unrated_completion", detail))
            if taken is None:
                ended = number
                break
            chain.append(taken)
        examples += [_as_chain(problem, chain)] if chain else []
        return examples + _behind(steps, ended)


def _as_chain(problem: str, rated: list[Rated]) -> StepChain:
    return StepChain(problem, [text for text, _ in rated], [label for _, label in rated])


def _behind(steps: list[dict[str, Any]], ended: int) -> list[Example]:
    """The completions behind the step where the chain ends."""
    detail = f"nothing was chosen at step {ended + 1}, so no later step continues from it"
    refused: list[Example] = []
    for number, step in enumerate(steps[ended + 1 :], ended + 2):
        names = [f"completion {i}" for i in range(len(step.get("completions") or []))]
        names += ["human completion"] * (step.get("human_completion") is not None)
        refused += [
            Refused("behind_chain_end", f"step {number} {name}: {detail}") for name in names
        ]
    return refused


FORMAT = _PRM800K()
