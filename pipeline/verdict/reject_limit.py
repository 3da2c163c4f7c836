"""The error of a build that refused too many rows: how many, why, and the options that help."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline import tasks
from pipeline.manifest.records import REJECTS
from pipeline.options.config import Config
from pipeline.publish import failed
from pipeline.verdict.rejects import Ledger
from stages.errors import DataError

MIN_REJECTS = 10  # a handful of refused rows fails no build
_FITTING = 0.99  # of the rows that are too long, for the length that a message offers


def too_many(refused: int, rows: int, limit: float) -> bool:
    """Whether so many refused rows fail a build: more than the limit allows, and more than
    ``MIN_REJECTS`` unless the limit is 0."""
    return refused > limit * rows and (refused > MIN_REJECTS or limit == 0)


def _length_for(lengths: Sequence[int]) -> int:
    """A length that nearly all of them fit in, rounded up to a multiple of 1,024."""
    ordered = sorted(lengths)
    longest = ordered[min(len(ordered) - 1, math.ceil(_FITTING * len(ordered)) - 1)]
    return math.ceil(longest / 1024) * 1024


def _for_long(lengths: Sequence[int], config: Config) -> str:
    length = _length_for(lengths)
    fitting = sum(n <= length for n in lengths)
    trims = tasks.kind_of(config.task).trims if config.parts.too_long == "reject" else ""
    return (
        f"{fitting} of the {len(lengths)} examples that are too long fit --max-length {length}."
        + (f" --too-long trim-{trims} drops whole {trims} from their ends." if trims else "")
    )


def refuse_too_many(ledger: Ledger, rows: int, left: int, config: Config) -> None:
    """Stop a build that lost more rows than ``--max-reject`` allows, or all of them.

    Args:
        rows: rows that were read and not left out on purpose; left: examples that are kept.

    Raises:
        DataError: it did; the refused rows are in ``DIR.failed/rejects.jsonl``.
    """
    if left and not too_many(ledger.rejected_rows, rows, config.judge.max_reject):
        return
    error = error_of(ledger, rows, left=bool(left), config=config)
    listed = failed.folder_of(config.run.output) / REJECTS
    raise DataError(error.what, f"{error.remedy} Every refused row is in {listed}.".lstrip())


def error_of(ledger: Ledger, rows: int, left: bool, config: Config, of: str = "rows") -> DataError:
    """The error: how many rows were refused, by reason, and the options that would help.

    Args:
        left: whether any example is left.
        of: what the message calls the rows.
    """
    refused = ledger.rejected_rows
    reasons = "\n".join(
        f"  {count:>7} {code}: {', '.join(ledger.first[code])} ({ledger.details[code]})"
        for code, count in ledger.rows_by_code.most_common()
    )
    what = f"{refused} of {rows} {of} were refused" if left else "Nothing is left"
    ways = [_for_long(ledger.long, config)] if ledger.long else []
    if left:
        share = min(1.0, math.ceil(1000 * refused / rows) / 1000)
        ways.append(f"Fix or drop those rows, or allow them with --max-reject {share:g}.")
    return DataError(f"{what}:\n{reasons}", " ".join(ways))
