"""Fetches URLs through fsspec: ``s3://``, ``gs://``, ``hf://``, ``https://`` and all others that it
knows."""

from __future__ import annotations

import json
import os
import posixpath
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pipeline.sources import Located, local, spool
from pipeline.stores.filesystem import filesystem_of, redacted, with_patience
from stages import readers
from stages.errors import SurroundingsError, UsageError

# The keys under which stores give the version of an object. Its size alone is no version: other
# bytes can have the same size.
_VERSION = (
    "ETag etag e_tag VersionId version_id generation md5Hash Content-MD5 Digest Last-Modified "
    "LastModified last_modified mtime updated created blob_id xet_hash"
).split()


def _version(info: dict[str, Any]) -> str | None:
    known = {key: str(info[key]) for key in _VERSION if info.get(key) not in (None, "")}
    return json.dumps([known, info.get("size")], sort_keys=True) if known else None


def _shown(names: list[str]) -> list[str]:
    """Sorted, without hidden files and folders."""
    return sorted(n for n in names if not any(part.startswith(".") for part in n.split("/")))


def _paths(filesystem: Any, path: str, url: str) -> list[str]:
    """The data files of a path, sorted: itself, those in a folder, or those that a pattern fits."""
    if filesystem.protocol in (("http", "https"), "http", "https"):
        return [path]
    if any(char in path for char in "*?["):
        try:
            paths = _shown(filesystem.glob(path))
        except ValueError as error:
            raise UsageError(f"{redacted(url)}: {error}.", "Correct the pattern.") from error
        if not paths:
            raise UsageError(f"Nothing matches {redacted(url)}.", "Check the pattern.")
        return paths
    if not filesystem.isdir(path):
        return [path]
    names = [n for n in filesystem.find(path) if posixpath.basename(n) not in local.SIDECARS]
    paths = [name for name in _shown(names) if readers.of_path(name)]
    if not paths:
        raise UsageError(
            f"{redacted(url)} has no data files.",
            f"Known suffixes: {', '.join(sorted(readers.suffixes()))}.",
        )
    return paths


def _fetched(filesystem: Any, path: str, url: str, cache_dir: Path) -> Path:
    """The local copy of one object; fetched unless the cache has this version of it.

    Raises:
        SurroundingsError: the object changed while it was fetched.
        ConnectionError: fewer or more bytes arrived than the store says it has.
    """
    before = filesystem.info(path)
    version = _version(before)
    folder = cache_dir / spool.FOLDER / spool.key_of(str(filesystem.protocol), path, version or "")
    if version is not None and (copy := spool.intact_copy(folder)) is not None:
        return copy

    def fetch(target: Path) -> None:
        filesystem.get_file(path, str(target))
        filesystem.invalidate_cache()
        if _version(filesystem.info(path)) != version:
            raise SurroundingsError(
                f"{redacted(url)} changed while it was being fetched.",
                "Build again when no other process writes to it.",
            )
        size = before.get("size")
        if size is not None and target.stat().st_size != size:
            raise ConnectionError(f"{target.stat().st_size} bytes of {size} arrived")

    name = posixpath.basename(unquote(urlsplit(path).path if "://" in path else path))
    return spool.keep(folder, name or "data", fetch)


def fetch(url: str, cache_dir: Path) -> list[Located]:
    """The files of a URL, as local copies.

    Raises:
        UsageError, SurroundingsError: see ``sources.locate``.
    """
    filesystem, start = filesystem_of(url)
    located = []
    for path in with_patience(url, _paths, filesystem, start, url):
        copy = with_patience(url, _fetched, filesystem, path, url, cache_dir)
        origin = redacted(str(filesystem.unstrip_protocol(path)))
        full = f"{urlsplit(origin).netloc}{urlsplit(origin).path}" if "://" in path else path
        parts = tuple(part for part in full.split("/") if part)
        located.append(Located(str(copy), parts, origin))
    return located


def locate(argument: str, cache_dir: Path) -> list[Located]:
    """See ``sources.locate``."""
    if argument.startswith("file://"):
        return local.locate(os.path.abspath(unquote(urlsplit(argument).path)))
    return fetch(argument, cache_dir)
