"""The error of a build that refused too many rows: how many, why, and the options that help."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline import tasks
from pipeline.builder.rejects import Ledger
from pipeline.manifest.counts import DoubleCounts, FilterCounts
from pipeline.options.config import Config
from pipeline.shards.examples import Fate
from pipeline.shards.facts import Counts
from pipeline.shards.filters import Filtered
from pipeline.shards.plan import Chosen
from stages.errors import DataError, PipelineError, counted, were

MIN_REJECTS = 10  # a handful of refused rows fails no build
_STEP = 1024  # lengths that a message offers are multiples of it
_SHARES = (0.5, 0.9, 0.99, 1.0)  # of the examples that are too long


def too_many(refused: int, rows: int, limit: float) -> bool:
    """Whether so many refused rows fail a build: more than the limit allows, and more than
    ``MIN_REJECTS`` unless the limit is 0."""
    return refused > limit * rows and (refused > MIN_REJECTS or limit == 0)


@dataclass(frozen=True, slots=True)
class Limit:
    """A share of refused rows that fails a build, and whose rows it is for.

    Attributes:
        sources: numbers of the sources; ``name``: of a source with a limit of its own.
    """

    share: float
    sources: tuple[int, ...]
    name: str = ""

    @property
    def whose(self) -> str:
        """What a message says behind the rows."""
        return f" of source {self.name}" if self.name else ""

    @property
    def option(self) -> str:
        """Where the share is said."""
        return f"max-reject of source {self.name}" if self.name else "--max-reject"

    def raised(self, share: float) -> str:
        """How another share is said."""
        if self.name:
            return f"max-reject = {share:g} in its [[source]]"
        return f"--max-reject {share:g}"


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


def _for_long(
    ledger: Ledger, rows: int, config: Config, limit: Limit, of: str
) -> tuple[str, dict[str, Any]]:
    """What helps rows that are too long: a sentence or two, and their figures."""
    fits, count = fitting(ledger.long), len(ledger.long)
    listed = [
        f"{'all' if n == count else n} fit --max-length {length}" for length, n in fits.items()
    ]
    text = f"Of {counted(count, 'example')} too long, {', '.join(listed)}."
    enough = _enough(ledger, rows, limit.share)
    if enough is not None:
        goal = "this sample passes" if of else "this build passes"
        text += f" With --max-length {enough} {goal}."
    trims = tasks.kind_of(config.task).trims if config.parts.too_long == "reject" else ""
    if trims:
        text += f" --too-long trim-{trims} drops whole {trims} from their ends."
    figures = {"examples": count, "max_length": config.plan.longest_example, "passes_at": enough}
    return text, {**figures, "fit": {str(length): n for length, n in fits.items()}}


def limits(config: Config) -> list[Limit]:
    """The limits of a build: sources without one of their own have that of the build together."""
    sources = list(enumerate(config.sources))
    own = [
        Limit(one.max_reject, (number,), one.name)
        for number, one in sources
        if one.max_reject is not None
    ]
    others = tuple(number for number, one in sources if one.max_reject is None)
    return [*own, *([Limit(config.judge.max_reject, others)] if others else [])]


def refuse_too_many(ledger: Ledger, rows: Mapping[int, int], left: int, config: Config) -> None:
    """Stop a build that lost more rows than ``--max-reject`` allows, or all of them.

    Args:
        rows: rows that were read and not left out on purpose, by the number of their source.
        left: examples that are kept.

    Raises:
        DataError: it did.
    """
    for limit in limits(config):
        some = _joined(ledger, limit.sources)
        read = sum(rows[number] for number in limit.sources)
        if not left or too_many(some.rejected_rows, read, limit.share):
            if not left:
                some, read = ledger, sum(rows.values())
            raise error_of(some, read, left=bool(left), config=config, limit=limit)


def _joined(ledger: Ledger, sources: Sequence[int]) -> Ledger:
    """The counts of some sources alone."""
    if not ledger.of_sources.keys() - set(sources):
        return ledger
    found = Ledger()
    for one in (ledger.of_sources[number] for number in sources if number in ledger.of_sources):
        found.rows_by_code.update(one.rows_by_code)
        for code, names in one.first.items():
            found.first.setdefault(code, []).extend(names)
            found.details.setdefault(code, one.details[code])
        found.long += one.long
    return found


def error_of(
    ledger: Ledger, rows: int, *, left: bool, config: Config, limit: Limit, of: str = ""
) -> DataError:
    """The error: how many rows were refused, by reason, and the options that would help.

    Args:
        left: whether any example is left.
        of: what the message says of the rows, with a space behind it.
    """
    refused = ledger.rejected_rows
    share = refused / max(rows, 1)
    figures: dict[str, Any] = {
        "of": f"{of}rows{limit.whose}",
        "rows": rows,
        "refused": refused,
        "share": round(share, 6),
        "max_reject": limit.share,
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
    allowed = f" ({share:.1%}; at most {limit.share:.1%} by {limit.option})" if left else ""
    of_all = f"{refused:,} of {counted(rows, f'{of}row')}{limit.whose} {were(refused)} refused"
    what = f"{of_all}{allowed}" if left else "Nothing is left"
    ways = []
    if ledger.long:
        text, figures["too_long"] = _for_long(ledger, rows, config, limit, of)
        ways.append(text)
    if left:
        figures["passes_with_max_reject"] = least = min(1.0, math.ceil(1000 * share) / 1000)
        ways.append(f"Fix or drop those rows, or allow them with {limit.raised(least)}.")
    if ledger.rows_by_code:
        ((first, _),) = ledger.rows_by_code.most_common(1)
        ways.append(f"What it means, and the fix: pipeline explain {first}")
    return DataError(f"{what}:\n{reasons}", " ".join(ways), figures)


# What filters and ``--dedup`` left out of a build, by filter and by source: for its manifest.


def filters(
    config: Config, plan: Chosen | None, filtered: Filtered | None
) -> tuple[FilterCounts, ...]:
    """What each filter left out; empty without filters.

    Raises:
        PipelineError: the build does not leave out just what the filters say.
    """
    if filtered is None or plan is None:
        return ()
    if not np.array_equal(plan.choice.fate == Fate.FILTERED, filtered.by > 0):
        raise PipelineError("What the filters leave out is not what was left out.")
    count = len(filtered.filters) + 1
    examples = np.bincount(filtered.by, minlength=count).tolist()
    null = np.bincount(filtered.by[filtered.null], minlength=count).tolist()
    rows = np.bincount(_of_rows(plan, filtered), minlength=count).tolist()
    return tuple(
        FilterCounts(
            expression=text,
            source=config.sources[source].name or None,
            examples=examples[number],
            null=null[number],
            rows=rows[number],
        )
        for number, (source, text) in enumerate(filtered.filters, 1)
    )


def _of_rows(plan: Chosen, filtered: Filtered) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Of each row whose examples are all filtered, the last filter that one of them came to."""
    row = plan.examples.row
    if not len(row):
        return filtered.by
    begin = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    every = np.logical_and.reduceat(plan.choice.fate == Fate.FILTERED, begin)
    last: np.ndarray[tuple[int], np.dtype[np.uint16]] = np.maximum.reduceat(filtered.by, begin)
    return last[every]


def doubles(config: Config, counts: Counts) -> tuple[DoubleCounts, ...]:
    """What ``--dedup`` left out, by pair of sources; empty where sources have no names."""
    if not config.plan.dedup:
        return ()
    names = [one.name for one in config.sources]
    return tuple(
        DoubleCounts(source=names[gone], kept_in=names[stays], examples=count)
        for (gone, stays), count in sorted(counts.doubles.items())
        if count
    )
