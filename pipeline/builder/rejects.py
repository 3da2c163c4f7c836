"""Writes ``rejects.jsonl``: every refused row, with its id and its offset in the whole file.

A part knows only its own split; ids and offsets need the rows of the splits before it.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from pipeline.builds import failed
from pipeline.manifest import dataset_files, json_records, records
from pipeline.messages.result import of_error
from pipeline.options.config import Config
from pipeline.shards import chain, collect, part, storage
from pipeline.shards.chain import Refusal
from pipeline.shards.examples import columns_of
from stages import contract
from stages.errors import ContainerError, DataError

Named: TypeAlias = tuple[str, Refusal]  # with the id of what was refused
TOO_LONG = "too_long"


class Long(NamedTuple):
    """An example that is refused for its length.

    Attributes:
        name: its id.
        row: a number of its row; ``whole``: nothing of that row is left; ``stuck``: the row lost
            other examples for other reasons.
    """

    name: str

    tokens: int
    turns: int
    row: int
    whole: bool
    stuck: bool


@dataclass(slots=True)
class Codes:
    """Refused rows, or refused examples, by code.

    Attributes:
        first: the first ids of each code; ``details``: the sentence for the first of each.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)

    def add(self, row_id: str, code: str, detail: str) -> None:
        """One more."""
        self.counts[code] += 1
        self.details.setdefault(code, detail)
        listed = self.first.setdefault(code, [])
        if len(listed) < 5:
            listed.append(row_id)

    def join(self, other: "Codes") -> None:
        """Add those of another source."""
        self.counts.update(other.counts)
        for code, names in other.first.items():
            self.first.setdefault(code, []).extend(names)
            self.details.setdefault(code, other.details[code])


@dataclass(slots=True)
class Ledger:
    """Counts of refused rows and examples.

    Attributes:
        rows: those of which nothing is left, by the code of their first refused example.
        examples: refused examples; a row that is refused as a whole counts as none.
        in_part: those of them whose rows have others.
        long: what was refused for its length.
        hit: rows that were counted.
        of_sources: the same for the rows of each source alone, by its number.
    """

    rows: Codes = field(default_factory=Codes)
    examples: Codes = field(default_factory=Codes)
    in_part: Codes = field(default_factory=Codes)
    long: list[Long] = field(default_factory=list)
    hit: int = 0
    of_sources: "dict[int, Ledger]" = field(default_factory=dict)

    def count(self, refused: Sequence[Named], *, kept: bool, source: int | None = None) -> None:
        """What one row has lost.

        Args:
            refused: all that was refused of it, each with its id.
            kept: an example of it is left.
            source: the number of its source.
        """
        if source is not None:
            self.of_sources.setdefault(source, Ledger()).count(refused, kept=kept)
        several = kept or len(refused) > 1
        if not kept:
            row_id, first = refused[0]
            self.rows.add(row_id, first.code, first.detail)
        for row_id, one in refused:
            if chain.is_sequence(one, several):
                self.examples.add(row_id, one.code, one.detail)
                if kept:
                    self.in_part.add(row_id, one.code, one.detail)
        lost = [(row_id, one) for row_id, one in refused if chain.is_lost(one, several)]
        stuck = any(one.code != TOO_LONG for _, one in lost)
        self.long += [
            # The detail begins with the tokens.
            Long(row_id, int(one.detail.partition(" ")[0]), one.turns, self.hit, not kept, stuck)
            for row_id, one in lost
            if one.code == TOO_LONG
        ]
        self.hit += 1

    @property
    def rows_by_code(self) -> Counter[str]:
        return self.rows.counts

    @property
    def examples_by_code(self) -> Counter[str]:
        return self.examples.counts

    @property
    def rejected_rows(self) -> int:
        return self.rows.counts.total()

    def of(self, sources: "Sequence[int]") -> "Ledger":
        """The counts of some sources alone."""
        if not self.of_sources.keys() - set(sources):
            return self
        found = Ledger()
        for one in (self.of_sources[number] for number in sources if number in self.of_sources):
            found.rows.join(one.rows)
            found.examples.join(one.examples)
            found.in_part.join(one.in_part)
            found.long += [each._replace(row=each.row + found.hit) for each in one.long]
            found.hit += one.hit
        return found


def _entries(
    work: part.Work, source: collect.PartSource
) -> Iterator[tuple[Refusal, records.Reject]]:
    """What a part refused, and its lines of ``rejects.jsonl``."""
    with storage.here(work.files.rejects).open("rb") as file:
        for text in file:
            entry = Refusal(**json.loads(text))
            suffix = f"#{entry.sequence}" if entry.sequence >= 0 else ""
            row_id = f"{source.name}:{source.first_line + entry.line + 1}{suffix}"
            yield entry, reject(entry, row_id, in_file(work.split, entry.offset), entry.raw)


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


def write(path: Path, works: list[part.Work], sources: list[collect.PartSource]) -> Ledger:
    """Write the file, in input order. A row with an example is not refused."""
    ledger = Ledger()
    with path.open("w", encoding="utf-8") as file:
        for work, source in zip(works, sources, strict=True):
            entries = sorted(_entries(work, source), key=lambda pair: pair[0].line)
            if not entries:
                continue
            # A row with an example counts as used, whatever else of it was refused.
            encoded = columns_of(work.files.plan, ("line",)).column("line").to_numpy()
            refused = np.array([why.line for why, _ in entries])
            kept = set(refused[np.isin(refused, encoded)].tolist())
            for line, some in itertools.groupby(entries, key=lambda pair: pair[0].line):
                row = list(some)
                file.writelines(json_records.one_line(entry) + "\n" for _, entry in row)
                named = [(entry.id, why) for why, entry in row]
                ledger.count(named, kept=line in kept, source=work.source)
    return ledger


# A refused build: what it leaves in ``DIR.failed``, and the error that names it.


def kept(error: DataError, config: Config, staged: Path | None = None) -> DataError:
    """The same error, which names what was left in ``DIR.failed``.

    Args:
        staged: the staging directory, if the build came that far.
    """
    from pipeline.report import page  # builds and plans that are not refused start without it

    if isinstance(error, ContainerError):
        from pipeline.inputs.recipe import opened_otherwise

        error = opened_otherwise(error, config)
    output = config.run.place
    result = of_error(error, {"output": config.run.shown})
    text = page.render_refused(result, staged)
    files = {failed.REASONS: dataset_files.json_text(result.without_manifest()), failed.PAGE: text}
    if failed.keep(output, staged, files) is None:
        return error
    paths = failed.paths_of(output)
    some = "rejects" in paths and Path(paths["rejects"]).stat().st_size
    rejects = f"Every refused row is in {paths['rejects']}; why" if some else "Why"
    where = f"{rejects} the build was refused is in {paths['report']}."
    return type(error)(error.what, f"{error.remedy}\n{where}".lstrip(), error.figures)
