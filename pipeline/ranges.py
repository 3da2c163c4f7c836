"""One range of an object by one request, and whether it is of the version that was asked for.

S3 is asked for the version itself (``If-Match``). An answer over HTTP says which version it is of.
Of other stores the version is asked for once more after the range has come.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import astuple, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.filesystem import filesystem_of, is_refused
from pipeline.secrets import redacted
from stages.contract import Split
from stages.errors import SurroundingsError
from stages.files import file_hash, file_version

# The keys under which stores give the version of an object, best first: a listing may give fewer
# than a request for the object alone. The size is no version: other bytes can have the same size.
_KEYS = (
    "ETag etag e_tag generation md5Hash Content-MD5 xet_hash blob_id VersionId version_id Digest "
    "Last-Modified LastModified last_modified mtime updated created"
).split()
_CHANGED = (412, 404)  # HTTP: the condition does not hold; it is gone
_PART = 206
_CONDITION = ("PreconditionFailed", "pre-conditions")  # in the words of an error of S3


class NoRangesError(SurroundingsError):
    """The server answers with the whole object."""


def version_of(info: dict[str, Any]) -> str | None:
    """The version of an object, as its store names it; None where it names none."""
    return next((f"{key} {_text(info[key])}" for key in _KEYS if info.get(key)), None)


def _text(value: Any) -> str:
    """A moment is a number of seconds in some listings, and not in others."""
    return str(value.timestamp()) if isinstance(value, datetime) else str(value)


def fetch(url: str, path: str, *, start: int, stop: int, version: str) -> bytes | None:
    """The bytes from ``start`` up to ``stop``; None where the object has another version by now.

    Raises:
        NoRangesError: the server gives none.
        Exception: what the library of the store raises.
    """
    filesystem, _ = filesystem_of(url)
    name = filesystem.protocol if isinstance(filesystem.protocol, str) else filesystem.protocol[0]
    if name in ("http", "https"):
        return _by_http(filesystem, path, start, stop, version)
    if name in ("s3", "s3a") and version.startswith("ETag "):
        return _by_s3(filesystem, path, start, stop, version.removeprefix("ETag "))
    content: bytes = filesystem.cat_file(path, start=start, end=stop)
    filesystem.invalidate_cache()
    return content if version_of(filesystem.info(path)) == version else None


def _by_http(filesystem: Any, path: str, start: int, stop: int, version: str) -> bytes | None:
    from fsspec.asyn import sync

    key, _, value = version.partition(" ")

    async def asked() -> bytes | None:
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        session = await filesystem.set_session()
        async with session.get(filesystem.encode_url(path), headers=headers) as answer:
            if answer.status in _CHANGED:
                return None
            answer.raise_for_status()
            if answer.headers.get(key) != value:
                return None
            if answer.status != _PART:
                raise NoRangesError(f"{redacted(path)} does not support range requests.")
            content: bytes = await answer.read()
            return content

    found: bytes | None = sync(filesystem.loop, asked)
    return found


def _by_s3(filesystem: Any, path: str, start: int, stop: int, tag: str) -> bytes | None:
    from fsspec.asyn import sync

    bucket, key, version_id = filesystem.split_path(path)
    named = {"VersionId": version_id} if version_id else {}

    async def asked() -> bytes:
        answer = await filesystem._call_s3(  # its public calls know no conditions
            "get_object",
            Bucket=bucket,
            Key=key,
            Range=f"bytes={start}-{stop - 1}",
            IfMatch=tag,
            **named,
        )
        async with answer["Body"] as body:
            content: bytes = await body.read()
        return content

    try:
        found: bytes = sync(filesystem.loop, asked)
    except FileNotFoundError:
        return None
    except Exception as error:
        if is_refused(error) or any(word in str(error) for word in _CONDITION):
            return None
        raise
    return found


# Hashes of pieces of inputs that were read before, by the version and the range.
#
# Who has read a piece notes its hash in the cache. While the file's version is the same, its part
# is found by that, and nobody reads the piece again to learn its name.


FOLDER = "scans"
_HASH = 32


def keep(cache_dir: Path, split: Split, found: Split) -> None:
    """Note the hash of a split.

    Args:
        found: the same after it was read.
    """
    path = _path(cache_dir, split)
    if path is not None and not split.sha256 and found.sha256:
        write(path, json.dumps([found.sha256, found.lines]).encode())


def known(cache_dir: Path, split: Split) -> Split:
    """The split with its hash, where that was noted."""
    path = _path(cache_dir, split)
    content = None if path is None or split.sha256 else read(path)
    if content is None:
        return split
    sha256, lines = json.loads(content)
    return replace(split, sha256=sha256, lines=lines)


def _path(cache_dir: Path, split: Split) -> Path | None:
    version = split.version
    if version is None or not version.is_fixed:
        return None
    ranges = [(piece.start, piece.stop) for piece in version.pieces]
    key = hashlib.sha256(repr((split.reader, _identity(version), ranges)).encode()).hexdigest()
    return cache_dir / FOLDER / key[:2] / f"{key}.hash"


def _identity(version: file_version.FileVersion) -> object:
    if version.stored is not None:
        return version.stored.key
    return os.path.realpath(version.path), version.state and astuple(version.state)


def read(path: Path) -> bytes | None:
    """A file of the cache without the hash before its content; None where it is not whole, or was
    written under another name."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content[_HASH:] if _hash(path, content[_HASH:]) == content[:_HASH] else None


def _hash(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def noted(path: Path, find: Callable[[], Any]) -> Any:
    """What JSON can hold, from a file of the cache or found now."""
    known = read(path)
    if known is None:
        known = json.dumps(find()).encode()
        write(path, known)
    return json.loads(known)


def write(path: Path, content: bytes) -> None:
    """Keep a file, whole or not at all; without a writable cache it is found out again."""
    file_hash.keep(path, _hash(path, content) + content)
