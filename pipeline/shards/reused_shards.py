"""Shards of the build before that are what a new build would write: taken over, not made again.

A shard's bytes follow from a few things: what of the recipe rows depend on (code version included),
the parts that its examples come from, which of their rows it holds in what order, and what its
inputs are called. A hash of these is the shard's key. For every shard that is made, the cache
remembers its key, the recipe, and what was measured of it, under the hash of its bytes. A later
build of the same output finds the shards of the build that it replaces there; one with the right
key is linked into the new build. It is hashed again, unless its size and times say that nothing was
written to it since it was (``--verify`` hashes all). One that another recipe has measured, such as
one with other packs of the same stored examples, is read back and judged as if it had just been
written. Whatever is missing or not as it was written makes the shard a new one, as if there were no
build before.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.builds.build import Build
from pipeline.manifest import dataset_files, json_records
from pipeline.manifest.json_records import from_json, plain
from pipeline.shards import examples, gather
from pipeline.shards.gather import Gather, ShardReport, ShardWork
from pipeline.shards.measured import METRICS, file_of, files_of
from pipeline.shards.storage import here, writing
from stages.errors import PipelineError, SurroundingsError
from stages.files import file_hash
from stages.files.file_hash import FileState, KnownHashes, replacing

FOLDER = "shards"  # in the cache
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


class Previous(NamedTuple):
    """A shard that an earlier build wrote.

    Attributes:
        path: of its file; ``memory``: of what the cache remembers of it.
    """

    path: str
    memory: str


@dataclass(frozen=True, slots=True)
class Keeping:
    """All that the shards of a build have in common, and the shards that may be taken over.

    Attributes:
        recipe: all that what is measured follows from; ``rows``: what a stored row follows from.
        previous: by key.
        cache: the folder for what is remembered.
        hashes: of files that nobody has written to since.
        compared: the parts were compared with their hashes; else each is before it is read.
        parts: the sha256 of each file of ``gather.sources``.
    """

    gather: Gather
    recipe: str
    rows: str
    previous: Mapping[str, Previous]
    cache: str
    hashes: KnownHashes
    compared: bool = True
    parts: tuple[str, ...] = ()


def _source(keeping: Keeping, part: int) -> list[Any]:
    """What a shard takes from a part but its examples."""
    shared, source = keeping.gather, keeping.gather.sources[part]
    if source.batch >= 0:  # of examples that may be of any input
        inputs = shared.inputs
        return [keeping.parts[part], inputs.names, inputs.first_error, inputs.named]
    number = shared.inputs.names.index(source.name)  # metrics name inputs by their number
    first_error = shared.inputs.first_error[number]
    named = [source.name, source.first_line, source.source]
    return [keeping.parts[part], *named, number, first_error]


def key_of(keeping: Keeping, shard: ShardWork) -> str:
    """A hash of all that a shard's bytes follow from."""
    shared = keeping.gather
    parts = examples.part_of(shared.starts, shard.order)
    used = np.flatnonzero(np.bincount(parts))  # np.unique would hash every one of them
    sources = [_source(keeping, part) for part in used.tolist()]
    flags = [shard.split, shared.width, shared.with_margin, shared.with_weights]
    digest = hashlib.sha256(json.dumps([keeping.rows, *flags, sources]).encode())
    for numbers in (np.searchsorted(used, parts), shard.order - shared.starts[parts], shard.sizes):
        digest.update(numbers.astype("<i8").tobytes())
        digest.update(b"\0")
    return digest.hexdigest()


def previous(target: Path, cache: Path) -> dict[str, Previous]:
    """The shards of the build that is to be replaced, by their keys; none where there is none."""
    try:
        shards = [shard for split in Build.open(target).splits.values() for shard in split.shards]
    except (PipelineError, *_UNREADABLE):
        return {}
    found = {}
    for shard in shards:
        memory = memory_of(cache, shard.record.sha256)
        with suppress(*_UNREADABLE):
            key = json_records.content_of(memory.read_bytes())["key"]
            found[key] = Previous(str(shard.path), str(memory))
    return found


def make(keeping: Keeping, shard: ShardWork) -> ShardReport:
    """Take a shard over from the build before, or make it and remember it.

    Raises:
        SurroundingsError: see ``gather.make_shard`` and ``require_parts``.
    """
    key = key_of(keeping, shard)
    there = keeping.previous.get(key)
    if there is not None:
        with suppress(*_UNREADABLE):
            return _reused(keeping, shard, key, there)
        _unlink(keeping, shard)
    require_parts(keeping, shard)
    return _remembered(keeping, key, gather.make_shard(keeping.gather, shard))


def _remembered(keeping: Keeping, key: str, report: ShardReport) -> ShardReport:
    with suppress(OSError):  # a full cache disk fails no build
        remember(keeping, key, report)
    return report


def memory_of(cache: Path, sha256: str) -> Path:
    """Where the cache remembers what was measured of a shard."""
    return cache / sha256[:2] / f"{sha256}.json"


def _link(source: Path, target: Path, sha256: str | None = None) -> None:
    """The same file at another place, by a link or a copy.

    Args:
        sha256: that it must have.

    Raises:
        ValueError: its bytes are not those that were written, or are in another place.
        OSError: it cannot be read or written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if source.is_symlink():  # a link to it would leave the bytes where somebody else has them
        raise ValueError(source)
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(source, target)
    if sha256 is not None:
        _require(target, sha256)


def _require(path: Path, sha256: str) -> None:
    """Remove a file that does not have the hash that it must have.

    Raises:
        ValueError: it does not.
    """
    if file_hash.sha256(path) != sha256:
        path.unlink()
        raise ValueError(path)


def _reused(keeping: Keeping, shard: ShardWork, key: str, there: Previous) -> ShardReport:
    """Link a shard, and take over what was measured of it; where another recipe has measured it,
    it is read back and measured again.

    Raises:
        ValueError, OSError: it is not as it was written.
        GateError: the rows cannot be judged.
    """
    memory, folder = Path(there.memory), Path(keeping.gather.folder)
    content = json_records.content_of(memory.read_bytes())
    report = from_json(ShardReport, content["report"]).at(shard.path, shard.split)
    if content["recipe"] != keeping.recipe:
        require_parts(keeping, shard)
        _link(Path(there.path), folder / shard.path)
        again = gather.read_back(keeping.gather, shard, report.tokens, report.answers)
        if again.sha256 != report.sha256:
            raise ValueError(there.path)
        return _remembered(keeping, key, again)
    for name, sha256 in content["files"].items():
        _link(memory.with_suffix(f".{name}"), file_of(folder / METRICS, shard.path, name), sha256)
    state = _linked(keeping.hashes, Path(there.path), folder / shard.path, report.sha256)
    memory.touch()  # what is in use is not pruned
    # The link has just changed the file's state, and two changes within a tick look like one. A
    # write would show all the same: by the time of modification, which is older.
    return replace(report, measured=replace(report.measured, state=state, settled=state.dated()))


def _linked(hashes: KnownHashes, source: Path, target: Path, sha256: str) -> FileState:
    """Link a shard to its new place; its state there.

    Raises:
        ValueError, OSError: see ``_link``.
    """
    before = file_hash.of(source)
    known = hashes.of(source) == sha256
    _link(source, target)
    state = file_hash.of(target)  # before its bytes are looked at
    if not (known and state.written_as(before)):  # or it is a copy
        _require(target, sha256)
    return state


def _unlink(keeping: Keeping, shard: ShardWork) -> None:
    """Remove what was linked of a shard that is made after all: whoever writes to a linked file
    would write into the build that is still in place, or into the cache."""
    folder = Path(keeping.gather.folder)
    for path in (folder / shard.path, *files_of(folder / METRICS, shard.path).values()):
        path.unlink(missing_ok=True)


def remember(keeping: Keeping, key: str, report: ShardReport) -> None:
    """Keep what was measured of a shard, for a build that takes it over.

    Raises:
        OSError: the cache cannot be written to.
    """
    memory = memory_of(Path(keeping.cache), report.sha256)
    hashes = {}
    for name, path in files_of(Path(keeping.gather.folder) / METRICS, report.path).items():
        hashes[name] = file_hash.sha256(path)
        with replacing(memory.with_suffix(f".{name}")) as copy:
            _link(path, copy)
    content = {"key": key, "recipe": keeping.recipe, "files": hashes, "report": plain(report)}
    with replacing(memory) as path:  # last: it vouches for the others
        dataset_files.write_json(path, json_records.sealed_text(content))


# Parts that others made, compared with their hashes before a shard is made of them: to compare all
# of them first would have each of n ranks read what all have made.


_alike: set[str] = set()  # paths of the parts that this process has compared


def forget() -> None:
    """Let go of what this process knows of parts."""
    _alike.clear()


def require_parts(keeping: Keeping, shard: ShardWork) -> None:
    """The parts that a shard is made of are as they were written.

    Raises:
        SurroundingsError: one is not.
    """
    shared = keeping.gather
    used = () if keeping.compared else np.unique(examples.part_of(shared.starts, shard.order))
    for part in map(int, used):
        path, alike = shared.sources[part].path, False
        with suppress(OSError):
            alike = path in _alike or file_hash.sha256(here(Path(path))) == keeping.parts[part]
        if not alike:
            raise SurroundingsError(
                f"{path}, a part of {shared.sources[part].name}, is not as it was written.",
                "Remove it and run the same command again: it names the rank that has to make it.",
            )
        _alike.add(path)


# Shards that other processes have made for a build that is not assembled yet.
#
# They lie in a folder of the cache, each under its key and the hash of its bytes, a name that it
# gets when it is whole and remembered. So whatever has a name here can be taken over, and two
# processes that make one shard name it alike. The folder goes when the build is published.


WORKSPACE = "builds"  # in the cache


def folder_of(cache: Path, build_id: str) -> Path:
    """The workspace of a build."""
    return cache / WORKSPACE / build_id


def found(folder: Path, cache: Path) -> dict[str, Previous]:
    """The shards of a workspace, by their keys.

    Args:
        cache: the folder for what is remembered of shards.
    """
    shards = {}
    for path in sorted(folder.glob("*.arrow")):
        key, _, sha256 = path.stem.partition(".")
        shards[key] = Previous(str(path), str(memory_of(cache, sha256)))
    return shards


@contextmanager
def own(folder: Path) -> Iterator[Path]:
    """A folder in a workspace for the unfinished shards of one process and its workers."""
    mine = folder / f".{uuid.uuid4().hex}"
    try:
        (mine / METRICS).mkdir(parents=True)
        yield mine
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def make_ahead(keeping: Keeping, shard: ShardWork) -> bool:
    """Make one shard into the workspace that ``keeping.gather.folder`` lies in.

    Returns:
        Whether it was made: one that can be taken over is not.

    Raises:
        SurroundingsError: the disk is full.
    """
    key = key_of(keeping, shard)
    if key in keeping.previous:
        return False
    folder = Path(keeping.gather.folder)
    require_parts(keeping, shard)
    report = gather.make_shard(keeping.gather, shard)
    with writing(str(shard), f"kept in {folder.parent}"):
        remember(keeping, key, report)
        # Last: the name says that it is whole.
        (folder / shard.path).replace(folder.parent / f"{key}.{report.sha256}.arrow")
    return True


def remove(folder: Path) -> None:
    """Remove a workspace whose build is published."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # others are there
        folder.parent.rmdir()
