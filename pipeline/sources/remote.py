"""Fetches URLs through fsspec: ``s3://``, ``gs://``, ``hf://``, ``https://`` and all others that it
knows."""

from __future__ import annotations

import errno
import json
import os
import posixpath
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pipeline.sources import Located, local, spool
from stages import readers
from stages.errors import PipelineError, SurroundingsError, UsageError

ATTEMPTS = 3
_OUR_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
PAUSE = 0.5  # seconds before the second attempt, doubled for each further one
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "az": "azure"}
# The keys under which stores give the version of an object. Its size alone is no version: other
# bytes can have the same size.
_VERSION = (
    "ETag etag e_tag VersionId version_id generation md5Hash Content-MD5 Digest Last-Modified "
    "LastModified last_modified mtime updated created blob_id xet_hash"
).split()


def redacted(text: str) -> str:
    """A URL, or a text with URLs, without passwords and query strings (signatures, keys)."""
    text = re.sub(r"(?<=://)[^/@\s]*@", "", text)
    return re.sub(r"(\w://[^\s?'\")]+)\?[^\s'\")]*", r"\1", text)


def filesystem_of(url: str) -> tuple[Any, str]:
    """The file system of a URL, as fsspec has it, and the path in it.

    Raises:
        UsageError: fsspec knows none, or its package is not installed.
    """
    import fsspec

    scheme = url.partition("://")[0].lower()
    options: dict[str, Any] = {}
    if scheme in ("http", "https"):
        try:
            import aiohttp
        except ImportError as error:
            raise _missing(scheme, "http") from error
        # The library's own limit would cut any download off after five minutes.
        limit = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
        options["client_kwargs"] = {"timeout": limit}
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise _missing(scheme, _EXTRAS.get(scheme, "")) from error
    except ValueError as error:
        raise UsageError(
            f"{redacted(url)}: {redacted(str(error))}.", "Check the part before ://."
        ) from error
    return filesystem, path


def _missing(scheme: str, extra: str) -> UsageError:
    remedy = "Install the fsspec package for it."
    if extra:
        remedy = f"Install it with: pip install 'posttrain-pipeline[{extra}]'"
    return UsageError(f"What reads {scheme}:// is not installed.", remedy)


def _plain(error: Exception) -> Exception:
    """The real error: over HTTP fsspec raises FileNotFoundError for any failed request."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        missing = isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) in (404, 410)
        return error if missing else cause
    return error


def _trouble(url: str, error: Exception) -> PipelineError:
    shown = redacted(url)
    if isinstance(error, FileNotFoundError):
        return UsageError(f"There is nothing at {shown}.", "Check the address.")
    reason = redacted(" ".join(str(error).split()))[:200]
    return SurroundingsError(
        f"{shown} cannot be read: {type(error).__name__}: {reason}.",
        "Check the connection and your credentials, then run again; what was fetched is kept.",
    )


def _with_patience(url: str, action: Any, *arguments: Any) -> Any:
    """Try a few times. Errors that a second attempt cannot change are raised at once: a missing
    file, missing rights, a full disk."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action(*arguments)
        except PipelineError:
            raise
        except (TypeError, AttributeError, AssertionError):
            raise  # a bug of a program, not a failure of the store
        except Exception as raised:
            error = _plain(raised)
            if isinstance(error, OSError) and error.errno in _OUR_DISK:
                raise
            final = isinstance(error, (FileNotFoundError, PermissionError, NotImplementedError))
            if final or attempt == ATTEMPTS:
                raise _trouble(url, error) from error
            time.sleep(PAUSE * 2 ** (attempt - 1))
    raise AssertionError("unreachable")


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
    for path in _with_patience(url, _paths, filesystem, start, url):
        copy = _with_patience(url, _fetched, filesystem, path, url, cache_dir)
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
