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
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.recipe import Recipe
from stages import columns, readers
from stages.contract import Batch, Record, Split
from stages.fold import fold

PLAN_COLUMNS = ("line", "sequence", "length", "trained", "digest")


@dataclass(slots=True)
class PartReport:
    """What happened in a part; the part's ``.json``.

    Attributes:
        lines: lines of the split, blank ones included.
        rows: rows read.
        made: sequences that rows became, those refused beside others of their row included.
        counts: sums and tallies by name.
        damage: what ended the input too early, where only the rows before it were kept.
        sha256: of the part's Arrow file; ``rejects_sha256``: of its refused rows.
    """

    lines: int = 0
    rows: int = 0
    made: int = 0
    sampled: int = 0
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
    """The report of a part that is already there, bytes checked; None otherwise."""
    try:
        report = PartReport(**json.loads(work.report.read_bytes()))
        whole = _sha256(work.path) == report.sha256
        whole = whole and _sha256(work.rejects) == report.rejects_sha256
    except (OSError, ValueError, TypeError):
        return None
    if not whole:
        return None
    work.path.touch()  # a part in use is not pruned
    return report


class _Rejects:
    """The refused rows of a part, as lines of JSON, with their raw text."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

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


def split_off(batch: Batch) -> tuple[Batch, Batch | None]:
    """The rows that stay, and those whose reject columns are filled."""
    code = batch.column("reject_code")
    if code.null_count == batch.num_rows:
        return batch, None
    stays = code.is_null()
    gone = batch.filter(pa.compute.invert(stays))
    return batch.filter(stays), gone


def _made(normalized: Batch) -> int:
    """Sequences that rows became. A refused row that became one or none is no sequence."""
    lines = normalized.column("line").to_numpy()
    _, place, counts = np.unique(lines, return_inverse=True, return_counts=True)
    stays = normalized.column("reject_code").is_null().to_numpy(zero_copy_only=False)
    return int((stays | (counts[place] > 1)).sum())


def _stored(recipe: Recipe, batch: Batch) -> Batch:
    stored = recipe.task.stored
    return (fold(batch) if "folded" in stored else batch).select([*PLAN_COLUMNS, *stored])


def _count(report: PartReport, batch: Batch) -> None:
    for name in ("truncated", "merged_cuts"):
        total = pa.compute.sum(batch.column(name)).as_py() or 0
        report.tally("sums", {name: total})
    if "rendered" in batch.schema.names:
        pairs = batch.column("rendered").drop_null().value_counts().to_pylist()
        report.tally("rendered", {pair["values"]: pair["counts"] for pair in pairs})
    if "note" in batch.schema.names and batch.column("note").null_count < batch.num_rows:
        # once a row, however many sequences it became
        both = (batch.column(name).to_pylist() for name in ("line", "note"))
        noted = {(line, note) for line, note in zip(*both, strict=True) if note is not None}
        report.tally("note", Counter(note for _, note in noted))


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


def make(recipe: Recipe, work: Work) -> PartReport:
    """Make the part, unless it is there already.

    Raises:
        ContainerError, SurroundingsError: the input is damaged, or changed meanwhile.
        ParityError: a sampled row's ids are not the reference's.
    """
    done = finished(work)
    if done is not None:
        return done
    normalize, stages, witness = _machinery(recipe, work.format)
    witness.restart()
    report, rejects, batches = PartReport(), _Rejects(), []
    for lines in readers.load(work.split.reader).read(work.split):
        records = {record.line: record for record in lines.records}
        report.lines += lines.lines
        report.rows += len(records)
        report.damage = lines.damage or report.damage
        normalized = normalize(lines.records)
        batch, gone = split_off(normalized)
        report.made += _made(normalized)
        if gone is not None:
            rejects.take(gone, "normalize", records)
        for stage in stages:
            batch, gone = split_off(stage(batch))
            if gone is not None:
                rejects.take(gone, stage.name, records)
        if batch.num_rows:
            witness(batch)
            _count(report, batch)
            batches.append(_stored(recipe, batch))
    report.sampled = witness.sampled
    schema = columns.schema([*PLAN_COLUMNS, *recipe.task.stored])
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    work.path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(work.path) as path:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(table)
        report.sha256 = _sha256(path)
    with _replacing(work.rejects) as path:
        path.write_bytes(b"".join(line + b"\n" for line in rejects.lines))
        report.rejects_sha256 = _sha256(path)
    with _replacing(work.report) as path:  # last: it vouches for the others
        path.write_bytes(json.dumps(asdict(report)).encode())
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
