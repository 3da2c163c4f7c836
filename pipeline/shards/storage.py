"""Where a part lies: four files of one name, written whole or not at all, the report last.

    <folder>/<2 characters>/<key>.arrow            the examples
    <folder>/<2 characters>/<key>.plan             of each example the numbers that plans need
    <folder>/<2 characters>/<key>.rejects.jsonl    the refused rows
    <folder>/<2 characters>/<key>.json             the report, which has the hashes of the others

What a report says, and how a part is made, is the business of ``part``.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline import stores
from pipeline.manifest import dataset_files, json_records
from pipeline.stores import Store, open_store
from stages.columns import Ints, offsets_of
from stages.errors import DataError, PipelineError, SurroundingsError
from stages.files import file_hash
from stages.files.file_hash import replacing

_KEY, _REPORT, _MADE_WITH = "part", "report", "made_with"  # of the part's ``.json``


@dataclass(frozen=True, slots=True)
class PartFiles:
    """The files of one part.

    Attributes:
        made_with: what it depends on beside its split, in words; empty for who only reads files.
    """

    folder: str
    key: str
    made_with: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The examples."""
        return Path(self.folder) / self.key[:2] / f"{self.key}.arrow"

    @property
    def plan(self) -> Path:
        """Of each example the numbers that plans need: an Arrow file, in the order of the part."""
        return self.path.with_suffix(".plan")

    @property
    def rejects(self) -> Path:
        """The refused rows."""
        return self.path.with_suffix(".rejects.jsonl")

    @property
    def report(self) -> Path:
        """What was counted, and the hashes of the others."""
        return self.path.with_suffix(".json")

    @property
    def hashed(self) -> dict[str, Path]:
        """The files that the report has the hashes of, by what it calls these."""
        paths = (self.path, self.plan, self.rejects)
        return dict(zip(("sha256", "plan_sha256", "rejects_sha256"), paths, strict=True))

    @property
    def all(self) -> tuple[Path, ...]:
        """Every file; the report last, as they are written."""
        return *self.hashed.values(), self.report


def read(
    files: PartFiles, known: Callable[[Path], str | None] | None = None, examples: bool = True
) -> Mapping[str, Any] | None:
    """The report of a part that is there; None where any byte of the part is not as written.

    A part that another machine has put into a shared store is there by its report alone.

    Raises:
        PipelineError: it was made with other options than its name stands for.

    Args:
        known: gives the hash of a file, or None; by default every file is read, and a store asked.
        examples: read the examples, too; else whoever takes some compares them.
    """
    report = _read_here(files, known or file_hash.sha256, examples)
    return report if report is not None or known is not None else _read_shared(files)


def _said(files: PartFiles, data: bytes) -> Mapping[str, Any] | None:
    """The report in the bytes of its file; None where they are not what was written."""
    try:
        content = json_records.content_of(data)
    except ValueError:
        return None
    report: Mapping[str, Any] = content[_REPORT]
    if content[_KEY] != files.key:
        return None
    _require_made_with(files, content.get(_MADE_WITH, {}))
    return report


def _require_made_with(files: PartFiles, there: Mapping[str, str]) -> None:
    wanted = files.made_with
    other = [name for name in sorted({*there, *wanted}) if there.get(name) != wanted.get(name)]
    if other:
        told = ", ".join(f"{n} {there.get(n)} instead of {wanted.get(n)}" for n in other[:3])
        raise PipelineError(
            f"A part in the cache has the name of one that this build needs, and was made with "
            f"{told}.",
            f"Give another --cache-dir, and report it: the name of {files.path} is a bug.",
        )


def _read_shared(files: PartFiles) -> Mapping[str, Any] | None:
    data = report_of(files)
    report = None if data is None else _said(files, data)
    if data is None or report is None:
        return None
    for path in files.hashed.values():  # whatever is here of the part is not whole
        path.unlink(missing_ok=True)
    with replacing(files.report) as path:
        path.write_bytes(data)
    return report


def _read_here(
    files: PartFiles, sha256: Callable[[Path], str | None], examples: bool
) -> Mapping[str, Any] | None:
    try:
        report = _said(files, files.report.read_bytes())
        if report is None:
            return None
        whole = files.path.is_file() and all(
            sha256(path) == report[name]
            for name, path in files.hashed.items()
            if examples or path != files.path
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return report if whole else None


def write(
    files: PartFiles,
    table: pa.Table,
    planned: Sequence[str],
    rejects: Iterable[bytes],
    report: Mapping[str, Any],
) -> dict[str, Any]:
    """Write a part's files; the report last.

    Args:
        planned: the columns that plans need.
        rejects: lines, without their ends.

    Returns:
        The hashes of the other files, which the report is written with.
    """
    examples, plan = _written(files.path, table), _written(files.plan, table.select(list(planned)))
    with replacing(files.rejects) as path:
        path.write_bytes(b"".join(line + b"\n" for line in rejects))
        hashes = dict(zip(files.hashed, (examples, plan, file_hash.sha256(path)), strict=True))
    content: dict[str, Any] = {_KEY: files.key, _REPORT: {**report, **hashes}}
    content[_MADE_WITH] = dict(files.made_with)
    with replacing(files.report) as path:  # last: it vouches for the others
        dataset_files.write_json(path, json_records.sealed_text(content))
    send(files)
    return hashes


def _written(target: Path, table: pa.Table) -> str:
    """Write a table as an Arrow file; the hash of its bytes."""
    with replacing(target) as path:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return file_hash.sha256(path)


def use(files: PartFiles) -> None:
    """Note that a part is in use: what is in use is not pruned."""
    for path in filter(Path.is_file, files.all):  # of a shared part some are not here
        _use(path)


def _use(path: Path) -> None:
    """Set the time of a file's last use. Nothing was written to it, so the time of modification
    stays."""
    try:
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    except PermissionError:  # somebody else's file: they alone may set times of their choice
        path.touch()


@contextlib.contextmanager
def writing(what: str, where: str) -> Iterator[None]:
    """Says of a file that cannot be written in the block that the disk is full.

    Args:
        what: the file; ``where``: what cannot be done with it.

    Raises:
        SurroundingsError: it cannot.
    """
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise SurroundingsError(
            f"{what} cannot be {where}: {error}.", "Make room on the disk."
        ) from error


# Parts that machines share: they lie in a store, and the cache of a machine has copies of them.
#
# A part is made on a machine, whole, and then put: one put for each file, the report last. So
# whoever finds a report in the store finds the rest. Of a part that another machine has made, the
# report is fetched first; each of its files is fetched when it is first read, and has the hash that
# the report gives it. Which store that is, a note in the folder of parts says, so that any process
# finds it.


_NOTE = "shared.json"


def share(folder: Path, address: str) -> None:
    """Say which store has the parts of a folder; nothing where they lie in this folder alone."""
    said = json.dumps({"address": address}).encode()
    note = folder / _NOTE
    if not address or (note.is_file() and note.read_bytes() == said):
        return
    with replacing(note) as new:
        new.write_bytes(said)


def store_of(folder: Path) -> Store | None:
    """The store that shares the parts of a folder; None where nobody does."""
    try:
        return open_store(str(json.loads((folder / _NOTE).read_bytes())["address"]))
    except FileNotFoundError:
        return None


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def here(path: Path) -> Path:
    """A file of a part on this machine: fetched, where another machine has made the part.

    Raises:
        SurroundingsError: the store cannot be read, or the file is gone from it, or has other
            bytes; the part is made again then by the next build.
    """
    store = None if path.is_file() else store_of(path.parent.parent)
    if store is None:
        return path
    files = PartFiles(str(path.parent.parent), path.name.partition(".")[0])
    report = files.report
    if not report.is_file():
        stores.fetch(store, _name(report), report, None)
    said = json.loads(report.read_bytes())[_REPORT]
    (sha256,) = (said[name] for name, one in files.hashed.items() if one == path)
    try:
        return stores.fetch(store, _name(path), path, sha256)
    except DataError as error:
        store.delete(_name(report))
        report.unlink(missing_ok=True)
        raise SurroundingsError(error.what, "Run again: the part is made again.") from error


def report_of(files: PartFiles) -> bytes | None:
    """The report of a part that another machine has made; None where there is none."""
    store = store_of(Path(files.folder))
    return None if store is None else store.get(_name(files.report))


def send(files: PartFiles) -> None:
    """Put a part that was made here, where parts are shared; the report last."""
    store = store_of(Path(files.folder))
    if store is None:
        return
    for path in files.all:
        stores.send(store, _name(path), path, file_hash.sha256(path))


# Files of records grouped by bucket: who writes one reads nothing else, who wants one bucket reads
# that of every file.
#
#     257 offsets of 8 bytes, in records; then the records of bucket 0, of bucket 1, ...


BUCKETS = 256
_OFFSET = 8  # bytes
Records = npt.NDArray[Any]


def bucket_of(hashes: npt.NDArray[np.uint64], count: int = BUCKETS) -> Ints:
    """The bucket of each hash, of so many: they follow one another in the order of the hashes."""
    return ((hashes >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def write_grouped(
    path: Path, records: Records, buckets: npt.NDArray[np.integer[Any]], count: int
) -> None:
    """Write records; those of one bucket stay in their order.

    Args:
        buckets: of each record; ``count``: how many there are.
    """
    order = np.argsort(buckets, kind="stable")
    offsets = offsets_of(np.bincount(buckets, minlength=count))
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(offsets.astype("<i8").tobytes())
        file.write(np.ascontiguousarray(records[order]).tobytes())


def read_grouped(
    path: Path, first: int, kind: np.dtype[Any], count: int, last: int | None = None
) -> Records:
    """The records of one bucket of a file, or of those from ``first`` to before ``last``."""
    last = first + 1 if last is None else last
    with path.open("rb") as file:
        file.seek(_OFFSET * first)
        offsets = np.frombuffer(file.read(_OFFSET * (last - first + 1)), "<i8")
        start, stop = int(offsets[0]), int(offsets[-1])
        file.seek(_OFFSET * (count + 1) + start * kind.itemsize)
        return np.frombuffer(file.read((stop - start) * kind.itemsize), kind)
