"""Writes ``rejects.jsonl``: every refused row, with its id and its offset in the whole file.

A part knows only its own split; ids and offsets need the rows of the splits before it.
"""

import bisect
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import tasks
from pipeline.builds import failed
from pipeline.manifest import dataset_files, json_records, records
from pipeline.messages.result import of_error
from pipeline.options.config import Config
from pipeline.shards import collect, part
from pipeline.shards.chain import Refusal
from pipeline.shards.examples import columns_of
from pipeline.shards.storage import here
from stages import columns, contract
from stages.errors import DataError, counted, were


@dataclass(slots=True)
class Ledger:
    """Counts of refused rows.

    Attributes:
        rows_by_code: refused rows, by the code of their first refused sequence.
        examples_by_code: refused sequences; a row that is refused as a whole counts as none.
        first: the first ids of each code.
        details: the sentence for the first row of each code.
        long: tokens of every row that was refused for its length.
        of_sources: the same for the rows of each source alone, by its number.
    """

    rows_by_code: Counter[str] = field(default_factory=Counter)
    examples_by_code: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    long: list[int] = field(default_factory=list)
    of_sources: "dict[int, Ledger]" = field(default_factory=dict)

    def count(self, code: str, detail: str, row_id: str, source: int | None = None) -> None:
        """One refused row; ``source``: the number of its source."""
        if source is not None:
            self.of_sources.setdefault(source, Ledger()).count(code, detail, row_id)
        self.rows_by_code[code] += 1
        self.details.setdefault(code, detail)
        listed = self.first.setdefault(code, [])
        if len(listed) < 5:
            listed.append(row_id)
        if code == "too_long":
            self.long.append(int(detail.partition(" ")[0]))  # the detail begins with the tokens

    @property
    def rejected_rows(self) -> int:
        return self.rows_by_code.total()


def _entries(work: part.Work, source: collect.PartSource) -> Iterator[tuple[int, records.Reject]]:
    """The refused rows of a part, each with its line in the part."""
    with here(work.files.rejects).open("rb") as file:
        for text in file:
            entry = Refusal(**json.loads(text))
            suffix = f"#{entry.sequence}" if entry.sequence >= 0 else ""
            row_id = f"{source.name}:{source.first_line + entry.line + 1}{suffix}"
            yield entry.line, reject(entry, row_id, in_file(work.split, entry.offset), entry.raw)


def reject(why: Refusal, row_id: str, offset: int | None, raw: str) -> records.Reject:
    """The line of ``rejects.jsonl`` of a row; ``offset``: in its file."""
    source, _, place = row_id.rpartition(":")
    return records.Reject(
        id=row_id,
        source=source,
        line=int(place.partition("#")[0]),
        offset=offset,
        stage=why.stage,
        code=why.code,
        detail=why.detail,
        raw=raw,
    )


def in_file(split: contract.Split, offset: int | None) -> int | None:
    """Where a row begins in its file, by where it begins in its split."""
    return None if offset is None else offset + (split.start if split.reader == "jsonl" else 0)


def _with_examples(refused: columns.Ints, encoded: columns.Ints) -> set[int]:
    """Those of the refused lines that have an example.

    Args:
        encoded: the lines of the examples, ascending.
    """
    if not len(encoded):
        return set()
    place = np.minimum(np.searchsorted(encoded, refused), len(encoded) - 1)
    return set(refused[encoded[place] == refused].tolist())


def write(path: Path, works: list[part.Work], sources: list[collect.PartSource]) -> Ledger:
    """Write the file, in input order. A row with an example is not refused."""
    ledger = Ledger()
    with path.open("w", encoding="utf-8") as file:
        for work, source in zip(works, sources, strict=True):
            entries = sorted(_entries(work, source), key=lambda pair: pair[0])
            if not entries:
                continue
            times = Counter(line for line, _ in entries)
            # A row with an example counts as used, whatever else of it was refused.
            encoded = columns_of(work.files.plan, ("line",)).column("line").to_numpy()
            counted = _with_examples(np.array(list(times), np.int64), encoded)
            # Rows that became more than one sequence, refused ones included.
            several = counted | {line for line, count in times.items() if count > 1}
            for line, entry in entries:
                file.write(json_records.one_line(entry) + "\n")
                if entry.stage != "normalize" or line in several:
                    ledger.examples_by_code[entry.code] += 1
                if line not in counted:
                    counted.add(line)
                    ledger.count(entry.code, entry.detail, entry.id, work.source)
    return ledger


# A refused build: what it leaves in ``DIR.failed``, and the error that names it.


def kept(error: DataError, config: Config, staged: Path | None = None) -> DataError:
    """The same error, which names what was left in ``DIR.failed``.

    Args:
        staged: the staging directory, if the build came that far.
    """
    from pipeline.report import page  # builds and plans that are not refused start without it

    output = config.run.place
    result = of_error(error, {"output": config.run.shown})
    text = page.render_refused(result, staged)
    files = {failed.REASONS: dataset_files.json_text(result.without_manifest()), failed.PAGE: text}
    folder = failed.keep(output, staged, files)
    if folder is None:
        return error
    paths = failed.paths_of(output)
    some = "rejects" in paths and Path(paths["rejects"]).stat().st_size
    rejects = f"Every refused row is in {paths['rejects']}; why" if some else "Why"
    where = f"{rejects} the build was refused is in {paths['report']}."
    return type(error)(error.what, f"{error.remedy} {where}".lstrip(), error.figures)


# The error of a build that refused too many rows: how many, why, and the options that help.


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
