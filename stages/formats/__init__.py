"""One record format per file: each provides FORMAT. ``detect`` says which one a file has."""

from __future__ import annotations

from collections.abc import Sequence

from stages import catalog
from stages.contract import Format, Row
from stages.errors import DataError, UsageError


def load(name: str) -> Format:
    """The format of this name."""
    found: Format = catalog.load(__name__, name, "FORMAT")
    return found


def rates_to_first_error(name: str) -> bool:
    """Whether the format's rows rate their steps up to the first error only."""
    return bool(getattr(load(name), "first_error", False))


def for_task(task: str) -> list[Format]:
    """The formats that feed a task."""
    return [f for f in map(load, catalog.names(__name__)) if task in f.tasks]


def choose(name: str, task: str) -> Format:
    """The format that ``--format`` names.

    Raises:
        UsageError: there is none, or it cannot feed the task.
    """
    found = load(name)
    if task not in found.tasks:
        raise UsageError(
            f"Format {name} feeds {' and '.join(found.tasks)}, not {task}.",
            f"For {task}: {', '.join(f.name for f in for_task(task))}.",
        )
    return found


def _unpaired(rows: Sequence[Row]) -> bool:
    return all("completion" in row and "label" in row and "rejected" not in row for row in rows)


def detect(rows: Sequence[Row], task: str, where: str) -> tuple[Format, str]:
    """The one format that the sampled rows have, and why.

    Raises:
        DataError: none has it, or more than one does.
    """
    if task == "rm" and rows and _unpaired(rows):
        raise DataError(
            f"{where} holds unpaired data: one completion and a label a row. A reward model is "
            "trained on pairs, and there is no second answer to compare with.",
            "Give rows with chosen and rejected, or train with KTO, which reads unpaired data.",
        )
    scores = {}
    for candidate in for_task(task):
        reasons = [reason for row in rows if (reason := candidate.matches(row)) is not None]
        if reasons:
            scores[candidate.name] = (len(reasons), reasons[0])
    best = max((count for count, _ in scores.values()), default=0)
    winners = [name for name, (count, _) in scores.items() if count == best]
    if best * 2 <= len(rows) or not winners:
        keys = ", ".join(sorted({key for row in rows[:10] for key in row})[:12])
        raise DataError(
            f"{where}: no {task} format fits rows with the columns {keys or '(none)'}.",
            f"Name the columns with --map, or the format with --format "
            f"({', '.join(f.name for f in for_task(task))}).",
        )
    if len(winners) > 1:
        raise DataError(f"{where} reads as {' and as '.join(winners)}.", "Say which with --format.")
    return load(winners[0]), f"{scores[winners[0]][1]} in {best} of {len(rows)} sampled rows"
