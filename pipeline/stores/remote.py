"""Fetches URLs through fsspec: ``s3://``, ``gs://``, ``hf://``, ``https://`` and all others that it
knows."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from pipeline.secrets import named, redacted
from pipeline.stores import local, pieces, ranges, spool, stored
from pipeline.stores.filesystem import filesystem_of, with_patience
from pipeline.stores.sources import Located
from stages import readers
from stages.errors import SurroundingsError, UsageError
from stages.files.file_version import FilePiece, FileVersion

Info: TypeAlias = dict[str, Any]
_AT_ONCE = 16


def _shown(names: list[str]) -> list[str]:
    """Sorted, without hidden files and folders."""
    return sorted(n for n in names if not any(part.startswith(".") for part in n.split("/")))


def _paths(filesystem: Any, path: str, url: str) -> dict[str, Info | None]:
    """The data files of a path, sorted: itself, those in a folder, or those that a pattern fits;
    with what a listing says of them."""
    if filesystem.protocol in (("http", "https"), "http", "https"):
        return {path: None}
    if any(char in path for char in "*?["):
        try:
            found = filesystem.glob(path, detail=True)
        except ValueError as error:
            raise UsageError(f"{redacted(url)}: {error}.", "Correct the pattern.") from error
        paths = [name for name in _shown(list(found)) if found[name]["type"] == "file"]
        if not paths:
            raise UsageError(f"Nothing matches {redacted(url)}.", "Check the pattern.")
        return {name: found[name] for name in paths}
    if not filesystem.isdir(path):
        return {path: None}
    found = filesystem.find(path, detail=True)
    names = [name for name in found if posixpath.basename(name) not in local.SIDECARS]
    paths = [name for name in _shown(names) if readers.of_path(name)]
    if not paths:
        raise UsageError(
            f"{redacted(url)} has no data files.",
            f"Known suffixes: {', '.join(sorted(readers.suffixes()))}.",
        )
    return {name: found[name] for name in paths}


def _folder(filesystem: Any, path: str, cache_dir: Path, version: str | None) -> Path:
    key = spool.key_of(str(filesystem.protocol), path, version or "")
    return cache_dir / spool.FOLDER / key


def _address(filesystem: Any, path: str) -> str:
    return redacted(str(filesystem.unstrip_protocol(path)))


def _fetched(filesystem: Any, path: str, url: str, cache_dir: Path) -> Path:
    """The local copy of one object; fetched unless the cache has this version of it.

    Raises:
        SurroundingsError: the object changed while it was fetched.
        ConnectionError: fewer or more bytes arrived than the store says it has.
    """
    before = filesystem.info(path)
    version = ranges.version_of(before)
    folder = _folder(filesystem, path, cache_dir, version)
    if version is not None and (copy := spool.intact_copy(folder)) is not None:
        return copy

    def fetch(target: Path) -> None:
        filesystem.get_file(path, str(target))
        filesystem.invalidate_cache()
        if ranges.version_of(filesystem.info(path)) != version:
            raise SurroundingsError(
                f"{redacted(url)} changed while it was being fetched.",
                "Build again when no other process writes to it.",
            )
        size = before.get("size")
        if size is not None and target.stat().st_size != size:
            raise ConnectionError(f"{target.stat().st_size} bytes of {size} arrived")

    name = _address(filesystem, path)
    name = posixpath.basename(unquote(urlsplit(name).path if "://" in path else name))
    return spool.keep(folder, name or "data", fetch)


def _located(filesystem: Any, path: str, url: str, cache_dir: Path, info: Info | None) -> Located:
    """One object: what is needed to read ranges of it, or a copy of it, where its store gives no
    ranges or no version."""
    info = filesystem.info(path) if info is None else info
    address = _address(filesystem, path)
    folder, _, last = address.partition("://")[2].rpartition("/")
    origin = named(address)
    parts = tuple(part for part in (*named(folder).split("/"), last) if part)
    version, size = ranges.version_of(info), info.get("size")
    name = readers.of_path(address)
    ours = name is None or hasattr(readers.load(name), "cut")  # others read files of this machine
    copied = _folder(filesystem, path, cache_dir, version).exists()  # it gave no ranges then
    if version and size and ours and not copied and info.get("partial", True):
        folder = str(cache_dir / pieces.FOLDER)
        there = stored.StoredObject(url, path, origin, version=version, size=size, folder=folder)
        with suppress(ranges.NoRangesError):
            head = there.look(0, min(stored.BLOCK, size))
            suffix = spool.suffix_of(head)
            reader = None if name else readers.of_path(f"data{suffix}")
            whole = (FilePiece(0, size),)
            seen = FileVersion(address, size, head=head[:8], pieces=whole, stored=there)
            return Located(address, parts, origin, reader=reader, version=seen)
    return Located(str(_fetched(filesystem, path, url, cache_dir)), parts, origin)


def find(url: str, cache_dir: Path) -> list[Located]:
    """The files of a URL.

    Raises:
        UsageError, SurroundingsError: see ``sources.locate``.
    """
    filesystem, start = filesystem_of(url)
    filesystem.invalidate_cache()  # of listings that this process has made before
    found = with_patience(url, _paths, filesystem, start, url)

    def located(path: str) -> Located:
        return with_patience(url, _located, filesystem, path, url, cache_dir, found[path])

    if len(found) == 1:
        return [located(path) for path in found]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each waits for a request
        return list(pool.map(located, found))


def locate(argument: str, cache_dir: Path) -> list[Located]:
    """See ``sources.locate``."""
    if argument.startswith("file://"):
        return local.locate(os.path.abspath(unquote(urlsplit(argument).path)))
    return find(argument, cache_dir)
