"""Writes ``rejects.jsonl``: every refused row, with its id and its offset in the whole file.

A part knows only its own split; ids and offsets need the rows of the splits before it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.builds import failed
from pipeline.manifest.dataset_files import json_text
from pipeline.manifest.json_records import one_line
from pipeline.manifest.records import Reject
from pipeline.messages.result import of_error
from pipeline.options.config import Config
from pipeline.shards.chain import Gone, Refusal, refusals
from pipeline.shards.checks import PartReject, raw_text
from pipeline.shards.collect import PartSource, row_ids_of
from pipeline.shards.part import Work
from pipeline.shards.storage import here
from stages import columns
from stages.columns import Ints
from stages.contract import Batch, Record, Split
from stages.errors import DataError

ORIGIN = ("row_id", "offset", "raw")  # columns of a stage file


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
    of_sources: dict[int, Ledger] = field(default_factory=dict)

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


def _entries(work: Work, source: PartSource) -> Iterator[tuple[int, Reject]]:
    """The refused rows of a part, each with its line in the part."""
    with here(work.files.rejects).open("rb") as file:
        for text in file:
            entry = PartReject(**json.loads(text))
            suffix = f"#{entry.sequence}" if entry.sequence >= 0 else ""
            row_id = f"{source.name}:{source.first_line + entry.line + 1}{suffix}"
            yield entry.line, _reject(entry, row_id, _in_file(work.split, entry.offset), entry.raw)


def _reject(why: Refusal | PartReject, row_id: str, offset: int | None, raw: str) -> Reject:
    source, _, place = row_id.rpartition(":")
    return Reject(
        id=row_id,
        source=source,
        line=int(place.partition("#")[0]),
        offset=offset,
        stage=why.stage,
        code=why.code,
        detail=why.detail,
        raw=raw,
    )


def _in_file(split: Split, offset: int | None) -> int | None:
    """Where a row begins in its file, by where it begins in its split."""
    return None if offset is None else offset + (split.start if split.reader == "jsonl" else 0)


def with_origin(batch: Batch, source: PartSource, split: Split, records: Sequence[Record]) -> Batch:
    """What normalize made of records, with the columns ``ORIGIN``.

    A stage file has them, so that a stage that runs alone can write down what it refuses.
    """
    by_line = {record.line: record for record in records}
    rows = [by_line[line] for line in batch.column("line").to_pylist()]
    offsets = [_in_file(split, record.offset) for record in rows]
    batch = columns.put(batch, "row_id", row_ids_of(source, batch))
    batch = columns.put(batch, "offset", pa.array(offsets, pa.int64()))
    return columns.put(batch, "raw", pa.array(map(raw_text, rows), pa.string()))


def of_batch(gone: Iterable[Gone]) -> list[Reject]:
    """The refused rows of one batch of a stage file, in input order.

    Args:
        gone: with the columns ``ORIGIN``.
    """
    found: list[Reject] = []
    for one in gone:
        origins = zip(*(one.rows.column(name).to_pylist() for name in ORIGIN), strict=True)
        found += [
            _reject(refusal, *origin)
            for refusal, origin in zip(refusals([one]), origins, strict=True)
        ]
    return sorted(found, key=lambda reject: reject.line)


def _with_examples(refused: Ints, encoded: Ints) -> set[int]:
    """Those of the refused lines that have an example.

    Args:
        encoded: the lines of the examples, ascending.
    """
    if not len(encoded):
        return set()
    place = np.minimum(np.searchsorted(encoded, refused), len(encoded) - 1)
    return set(refused[encoded[place] == refused].tolist())


def write(
    path: Path,
    works: list[Work],
    sources: list[PartSource],
    encoded: Callable[[Work], Ints],
) -> Ledger:
    """Write the file, in input order.

    Args:
        encoded: gives the lines of a part's examples, ascending; a row with an example is not
            refused. It is asked for parts with refused rows alone.
    """
    ledger = Ledger()
    with path.open("w", encoding="utf-8") as file:
        for work, source in zip(works, sources, strict=True):
            entries = sorted(_entries(work, source), key=lambda pair: pair[0])
            if not entries:
                continue
            times = Counter(line for line, _ in entries)
            # A row with an example counts as used, whatever else of it was refused.
            counted = _with_examples(np.array(list(times), np.int64), encoded(work))
            # Rows that became more than one sequence, refused ones included.
            several = counted | {line for line, count in times.items() if count > 1}
            for line, entry in entries:
                file.write(one_line(entry) + "\n")
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
    files = {failed.REASONS: json_text(result.without_manifest()), failed.PAGE: text}
    folder = failed.keep(output, staged, files)
    if folder is None:
        return error
    paths = failed.paths_of(output)
    some = "rejects" in paths and Path(paths["rejects"]).stat().st_size
    rejects = f"Every refused row is in {paths['rejects']}; why" if some else "Why"
    where = f"{rejects} the build was refused is in {paths['report']}."
    return type(error)(error.what, f"{error.remedy} {where}".lstrip(), error.figures)
