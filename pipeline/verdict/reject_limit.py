"""The error of a build that refused too many rows: how many, why, and the options that help."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from pipeline import tasks
from pipeline.options.config import Config
from pipeline.verdict.rejects import Ledger
from stages.errors import DataError

MIN_REJECTS = 10  # a handful of refused rows fails no build
_STEP = 1024  # lengths that a message offers are multiples of it
_SHARES = (0.5, 0.9, 0.99, 1.0)  # of the examples that are too long


def too_many(refused: int, rows: int, limit: float) -> bool:
    """Whether so many refused rows fail a build: more than the limit allows, and more than
    ``MIN_REJECTS`` unless the limit is 0."""
    return refused > limit * rows and (refused > MIN_REJECTS or limit == 0)


def _up(length: int) -> int:
    return -(-length // _STEP) * _STEP


def fitting(lengths: Sequence[int]) -> dict[int, int]:
    """For a few lengths of ``--max-length``, how many of the examples that are too long fit."""
    ordered = sorted(lengths)
    at = [math.ceil(share * len(ordered)) - 1 for share in _SHARES]
    offered = sorted({_up(ordered[place]) for place in at})
    return {length: bisect.bisect_right(ordered, length) for length in offered}


def _enough(ledger: Ledger, rows: int, limit: float) -> int | None:
    """The least length with which few enough rows are refused; None where none is enough."""
    others = ledger.rejected_rows - len(ledger.long)
    for done, length in enumerate(sorted(ledger.long), start=1):
        if not too_many(others + len(ledger.long) - done, rows, limit):
            return _up(length)
    return None


def _for_long(ledger: Ledger, rows: int, config: Config, of: str) -> tuple[str, dict[str, Any]]:
    """What helps rows that are too long: a sentence or two, and their figures."""
    fits, count = fitting(ledger.long), len(ledger.long)
    listed = [
        f"{'all' if n == count else n} fit --max-length {length}" for length, n in fits.items()
    ]
    text = f"Of the {count} examples that are too long, {', '.join(listed)}."
    enough = _enough(ledger, rows, config.judge.max_reject)
    if enough is not None:
        goal = "this build passes" if of == "rows" else "this sample passes"
        text += f" With --max-length {enough} {goal}."
    trims = tasks.kind_of(config.task).trims if config.parts.too_long == "reject" else ""
    if trims:
        text += f" --too-long trim-{trims} drops whole {trims} from their ends."
    figures = {"examples": count, "max_length": config.plan.longest_example, "passes_at": enough}
    return text, {**figures, "fit": {str(length): n for length, n in fits.items()}}


def refuse_too_many(ledger: Ledger, rows: int, left: int, config: Config) -> None:
    """Stop a build that lost more rows than ``--max-reject`` allows, or all of them.

    Args:
        rows: rows that were read and not left out on purpose; left: examples that are kept.

    Raises:
        DataError: it did.
    """
    if not left or too_many(ledger.rejected_rows, rows, config.judge.max_reject):
        raise error_of(ledger, rows, left=bool(left), config=config)


def error_of(ledger: Ledger, rows: int, left: bool, config: Config, of: str = "rows") -> DataError:
    """The error: how many rows were refused, by reason, and the options that would help.

    Args:
        left: whether any example is left.
        of: what the message calls the rows.
    """
    refused, limit = ledger.rejected_rows, config.judge.max_reject
    share = refused / max(rows, 1)
    figures: dict[str, Any] = {
        "of": of,
        "rows": rows,
        "refused": refused,
        "share": round(share, 6),
        "max_reject": limit,
        "by_code": {
            code: {
                "rows": count,
                "share": round(count / max(rows, 1), 6),
                "first": ledger.first[code],
                "detail": ledger.details[code],
            }
            for code, count in ledger.rows_by_code.most_common()
        },
    }
    reasons = "\n".join(
        f"  {one['rows']:>7} {code} ({one['share']:.1%}): {', '.join(one['first'])} "
        f"({one['detail']})"
        for code, one in figures["by_code"].items()
    )
    allowed = f" ({share:.1%}; --max-reject {limit:g} allows {limit:.1%})" if left else ""
    what = f"{refused} of {rows} {of} were refused{allowed}" if left else "Nothing is left"
    ways = []
    if ledger.long:
        text, figures["too_long"] = _for_long(ledger, rows, config, of)
        ways.append(text)
    if left:
        figures["passes_with_max_reject"] = least = min(1.0, math.ceil(1000 * share) / 1000)
        ways.append(f"Fix or drop those rows, or allow them with --max-reject {least:g}.")
    return DataError(f"{what}:\n{reasons}", " ".join(ways), figures)
