"""Parts that machines share: they lie in a store, and the cache of a machine has copies of them.

A part is made on a machine, whole, and then put: one put for each file, the report last. So whoever
finds a report in the store finds the rest. Of a part that another machine has made, the report is
fetched first; each of its files is fetched when it is first read, and has the hash that the report
gives it. Which store that is, a note in the folder of parts says, so that any process finds it.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.stores import Store, open_store, transfer
from stages.errors import DataError, SurroundingsError
from stages.files import file_hash

if TYPE_CHECKING:
    from pipeline.shards.storage import PartFiles

_NOTE = "shared.json"
# Of a report: the hash of each other file, by the end of its name.
_HASHES = {".arrow": "sha256", ".plan": "plan_sha256", ".jsonl": "rejects_sha256"}


def share(folder: Path, address: str) -> None:
    """Say which store has the parts of a folder; nothing where they lie in this folder alone."""
    said = json.dumps({"address": address}).encode()
    note = folder / _NOTE
    if not address or (note.is_file() and note.read_bytes() == said):
        return
    folder.mkdir(parents=True, exist_ok=True)
    new = note.with_name(f"{_NOTE}.{uuid.uuid4().hex}.tmp")
    new.write_bytes(said)
    new.replace(note)


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
    report = path.with_name(f"{path.name.partition('.')[0]}.json")
    if not report.is_file():
        transfer.fetch(store, _name(report), report, None)
    hashes = json.loads(report.read_bytes())["report"]
    try:
        return transfer.fetch(store, _name(path), path, hashes[_HASHES[path.suffix]])
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
        transfer.send(store, _name(path), path, file_hash.sha256(path))
