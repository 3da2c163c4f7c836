"""One split through the stages: a part, content-addressed, written whole or not at all.

A part depends on the bytes of its split, the recipe and the code, and its name is their hash. So
a build that died finds its finished parts again, a rebuild does only what changed, and any number
of workers makes the same bytes. Lines count from the split's start; the gather knows the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline import seal
from pipeline.dataset_files import write_json
from pipeline.recipe import Recipe
from stages import columns, notes, readers, row_counts, turn_split
from stages.contract import Batch, Record, Split
from stages.errors import PipelineError, ReadingError
from stages.fold import fold

Refused: TypeAlias = tuple[int, str]  # a line, and the stage that refused a sequence of it
_KEY, _REPORT = "part", "report"  # of the part's ``.json``

PLAN_COLUMNS = ("line", "sequence", "length", "trained", "digest")


@dataclass(slots=True)
class PartReport:
    """What happened in a part; the part's ``.json`` holds it, with the part's key, under a seal.

    Attributes:
        lines: lines of the split, blank ones included.
        rows: rows read.
        sampled: rows that were read twice; ``skipped``: rows that could not be.
        made: sequences that came out of the door.
        filtered: rows that ``--where`` left out.
        sampled: of them, encoded again by the reference; ``compared``: from the vocabulary too.
        counts: sums and tallies by name.
        damage: what ended the input too early, where only the rows before it were kept.
        sha256: of the part's Arrow file; ``rejects_sha256``: of its refused rows.
    """

    lines: int = 0
    rows: int = 0
    made: int = 0
    filtered: int = 0
    sampled: int = 0
    compared: int = 0
    skipped: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    damage: str = ""
    sha256: str = ""
    rejects_sha256: str = ""

    def tally(self, name: str, values: dict[str, int]) -> None:
        """Add to the counts of one kind."""
        kind = Counter(self.counts.get(name, {}))
        kind.update(values)
        self.counts[name] = {key: int(kind[key]) for key in sorted(kind)}


@dataclass(frozen=True, slots=True)
class Work:
    """One part to make: a split, its format, and where the part goes."""

    split: Split
    format: str
    folder: str
    key: str

    @property
    def path(self) -> Path:
        return Path(self.folder) / self.key[:2] / f"{self.key}.arrow"

    @property
    def rejects(self) -> Path:
        return self.path.with_suffix(".rejects.jsonl")

    @property
    def report(self) -> Path:
        return self.path.with_suffix(".json")


def plan_parts(recipe: Recipe, splits: list[tuple[Split, str]]) -> list[Work]:
    """Name the part of every split."""
    folder = str(recipe.config.cache_dir / "parts")
    prints = {name: recipe.part_fingerprint(name) for name in set(recipe.formats)}
    works = []
    for split, name in splits:
        source = f"{prints[name]}\0{split.sha256}\0{split.piece}\0{split.reader}"
        works.append(Work(split, name, folder, hashlib.sha256(source.encode()).hexdigest()))
    return works


def finished(work: Work) -> PartReport | None:
    """The report of a part that is already there; None where any byte of it is not as written."""
    try:
        data = work.report.read_bytes()
        if seal.problem(data) is not None:
            return None
        found = json.loads(data)
        report = PartReport(**found[_REPORT])
        whole = found[_KEY] == work.key and _counts_lines(work, report)
        whole = whole and _sha256(work.path) == report.sha256
        whole = whole and _sha256(work.rejects) == report.rejects_sha256
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not whole:
        return None
    work.path.touch()  # a part in use is not pruned
    return report


def _counts_lines(work: Work, report: PartReport) -> bool:
    """Whether the part has the lines that were counted when the input was hashed."""
    return work.split.lines in (None, report.lines)


def _require_counts(work: Work, report: PartReport, made: pa.Table, refused: list[Refused]) -> None:
    """What was counted on the way is what the part holds.

    Raises:
        PipelineError: it is not; every row id behind such a part would be wrong.
    """
    refused_lines = np.array([line for line, _ in refused], np.int64)
    lines = np.union1d(made.column("line").to_numpy(), refused_lines)
    sequences = made.num_rows + sum(stage != "normalize" for _, stage in refused)
    counted = (len(lines) + report.filtered, sequences, True)
    if counted != (report.rows, report.made, _counts_lines(work, report)):
        raise PipelineError(
            f"{work.split.path}: a part counts {report.lines} lines, {report.rows} rows and "
            f"{report.made} sequences, and holds {work.split.lines or report.lines} lines, "
            f"{len(lines) + report.filtered} rows and {sequences} sequences.",
            "Nothing was built. Please report this.",
        )


class _Rejects:
    """The refused rows of a part, as lines of JSON, with their raw text."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.refused: list[Refused] = []

    def take(self, batch: Batch, stage: str, records: dict[int, Record]) -> None:
        names = ("line", "sequence", "reject_code", "reject_detail")
        data = [batch.column(name).to_pylist() for name in names]
        for line, sequence, code, detail in zip(*data, strict=True):
            record = records[line]
            entry = {
                "line": line,
                "sequence": sequence,
                "offset": record.offset,
                "stage": stage,
                "code": code,
                "detail": detail,
                "raw": record.raw.decode("utf-8", "backslashreplace"),
            }
            self.lines.append(json.dumps(entry, ensure_ascii=True).encode())
            self.refused.append((line, stage))


def split_off(batch: Batch) -> tuple[Batch, Batch | None]:
    """The rows that stay, and those whose reject columns are filled."""
    code = batch.column("reject_code")
    if code.null_count == batch.num_rows:
        return batch, None
    stays = code.is_null()
    gone = batch.filter(pa.compute.invert(stays))
    return batch.filter(stays), gone


def _stored(recipe: Recipe, batch: Batch) -> Batch:
    stored = recipe.task.stored
    return (fold(batch) if "folded" in stored else batch).select([*PLAN_COLUMNS, *stored])


def _count(recipe: Recipe, report: PartReport, batch: Batch) -> None:
    for name in ("truncated", "merged_cuts"):
        total = pa.compute.sum(batch.column(name)).as_py() or 0
        report.tally("sums", {name: total})
    for name in ("note", "rendered"):
        if name in batch.schema.names:
            report.tally(name, notes.tally(batch.column(name)))
    if recipe.splits_turns and "messages" in batch.schema.names:
        report.tally("turn_split", turn_split.count(batch))


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary path whose file takes the place of ``path`` when the block ends well."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _where(split: Split) -> str:
    """What a message calls a split; its lines count from its start."""
    name = os.path.basename(split.path)
    return name if not split.start else f"{name} from {split.start} on"


# What a row can break by what it says: texts that differ but not in their ids, and text that
# gives an id which stands for something else.
_OF_THE_DATA = {"chosen_differs", "controls_from_template", "no_bos_inside", "no_padding_inside"}


def _require_theirs(gone: Batch, stage: str, where: str) -> None:
    """What we rendered and encoded ourselves breaks no law by its own fault.

    Raises:
        PipelineError: it does, and the fault is ours.
    """
    names = ("line", "reject_code", "reject_detail")
    for line, code, detail in zip(*(gone.column(n).to_pylist() for n in names), strict=True):
        if code == "marker_count" or (stage == "validate" and code not in _OF_THE_DATA):
            raise PipelineError(
                f"{where}:{line + 1}: the example made from this row breaks {code}: {detail}.",
                "Nothing was published; please report it with the row and the recipe.",
            )


def _require_counted(report: PartReport, split: Split, last: int, kept: int) -> None:
    """The rows of the split were all read, and some of those that stayed were read twice.

    Args:
        last: the last row's line; ``kept``: how many rows stayed.

    Raises:
        ReadingError: they were not.
    """
    found = None if report.damage else row_counts.count(split)
    read = row_counts.Count(report.rows, report.lines, last)
    if found is not None and found != read:
        raise ReadingError(f"{_where(split)}: {read} were read, and {found} are there.")
    if kept and not report.sampled + report.skipped:
        raise ReadingError(f"{_where(split)}: none of its {kept} rows was read a second time.")


def _write(work: Work, report: PartReport, table: pa.Table, rejects: _Rejects) -> None:
    """Write the part's files; the report last."""
    work.path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(work.path) as path:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        report.sha256 = _sha256(path)
    with _replacing(work.rejects) as path:
        path.write_bytes(b"".join(line + b"\n" for line in rejects.lines))
        report.rejects_sha256 = _sha256(path)
    with _replacing(work.report) as path:  # last: it vouches for the others
        write_json(path, seal.sealed({_KEY: work.key, _REPORT: asdict(report)}))


def make(recipe: Recipe, work: Work) -> PartReport:
    """Make the part, unless it is there already.

    Raises:
        ContainerError, SurroundingsError: the input is damaged, or changed meanwhile.
        ParityError: a sampled row's ids are not the reference's.
        PipelineError: an example that was rendered here breaks a law.
        ReadingError: rows were lost, or a sampled row is not what it is when it is read again.
    """
    done = finished(work)
    if done is not None:
        return done
    normalize, stages, witness = _machinery(recipe, work.format)
    witness.restart()
    normalize.restart()
    report, rejects, batches = PartReport(), _Rejects(), []
    last = -1
    for lines in readers.load(work.split.reader).read(work.split):
        records = {record.line: record for record in lines.records}
        report.lines += lines.lines
        report.rows += len(lines.records)
        last = max(records, default=last)
        report.damage = lines.damage or report.damage
        batch, gone = split_off(normalize(lines.records))
        report.made += batch.num_rows
        if gone is not None:
            rejects.take(gone, "normalize", records)
        for stage in stages:
            batch, gone = split_off(stage(batch))
            if gone is not None:
                if normalize.kind != "tokens":
                    _require_theirs(gone, stage.name, _where(work.split))
                rejects.take(gone, stage.name, records)
        if batch.num_rows:
            witness(batch, records, _where(work.split))
            _count(recipe, report, batch)
            batches.append(_stored(recipe, batch))
    report.sampled, report.skipped = witness.sampled, witness.skipped
    report.compared = witness.compared
    report.filtered = normalize.tally.filtered
    report.tally("unread_rows", normalize.tally.rows)
    report.tally("unread_bytes", normalize.tally.bytes)
    _require_counted(report, work.split, last, sum(map(len, batches)))
    schema = columns.schema([*PLAN_COLUMNS, *recipe.task.stored])
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    _require_counts(work, report, table, rejects.refused)
    _write(work, report, table, rejects)
    return report


_cache: dict[tuple[str, str], Any] = {}


def _machinery(recipe: Recipe, format_name: str) -> Any:
    """Door, stages and witness, once per process: they keep what they have compiled."""
    key = (recipe.part_fingerprint(format_name), format_name)
    if key not in _cache:
        _cache.clear()
        _cache[key] = (
            recipe.normalize(format_name),
            recipe.stages(format_name),
            recipe.witness(format_name),
        )
    return _cache[key]
