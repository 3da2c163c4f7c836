"""The error of a build that refused too many rows: how many, why, and the options that help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    def rows(self) -> str:
        """What a message calls the rows."""
        return f"rows of source {self.name}" if self.name else "rows"

    def raised(self, share: float) -> str:
        """How another share is said."""
        if self.name:
            return f"max-reject = {share:g} in its [[source]]"
        return f"--max-reject {share:g}"


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
        DataError: it did; the refused rows are in ``DIR.failed/rejects.jsonl``.
    """
    for limit in limits(config):
        some = _joined(ledger, limit.sources)
        read = sum(rows[number] for number in limit.sources)
        if not left or too_many(some.rejected_rows, read, limit.share):
            some = some if left else ledger
            error = error_of(some, read, left=bool(left), config=config, limit=limit)
            listed = failed.folder_of(config.run.output) / REJECTS
            remedy = f"{error.remedy} Every refused row is in {listed}.".lstrip()
            raise DataError(error.what, remedy)


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
    reasons = "\n".join(
        f"  {count:>7} {code}: {', '.join(ledger.first[code])} ({ledger.details[code]})"
        for code, count in ledger.rows_by_code.most_common()
    )
    what = f"{refused} of {rows} {of}{limit.rows} were refused" if left else "Nothing is left"
    ways = [_for_long(ledger.long, config)] if ledger.long else []
    if left:
        share = min(1.0, math.ceil(1000 * refused / rows) / 1000)
        ways.append(f"Fix or drop those rows, or allow them with {limit.raised(share)}.")
    return DataError(f"{what}:\n{reasons}", " ".join(ways))
