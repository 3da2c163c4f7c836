"""The one way to a file system of fsspec: what is missing is named, secrets are left out, and what
may pass is tried again."""

import errno
import fcntl
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.secrets import redacted
from pipeline.stores import Stat
from stages.errors import PipelineError, SurroundingsError, UsageError

ATTEMPTS = 3
PAUSE = 0.5  # seconds before the second attempt, doubled for each further one
_OUR_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "az": "azure"}
_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_T = TypeVar("_T")


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
    return UsageError(f"No package for {scheme}:// is installed.", remedy)


def is_refused(error: BaseException) -> bool:
    """Whether S3 refused a request because its condition does not hold; s3fs translates what it
    knows of errors."""
    cause: BaseException | None = error
    while cause is not None:
        said = getattr(cause, "response", None) or {}
        if said.get("Error", {}).get("Code") in _REFUSED:
            return True
        cause = cause.__cause__
    return False


def _plain(error: Exception) -> Exception:
    """The real error: over HTTP fsspec raises FileNotFoundError for any failed request."""
    cause = error.__cause__
    if isinstance(getattr(cause, "response", None), dict):  # S3's, which says so itself
        return error
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        missing = isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) in (404, 410)
        return error if missing else cause
    return error


def _trouble(url: str, error: Exception, written: bool) -> PipelineError:
    shown = redacted(url)
    missing = isinstance(error, FileNotFoundError)
    if missing and not written:
        return UsageError(f"There is nothing at {shown}.", "Check the address.")
    if missing:
        return UsageError(
            f"{shown} cannot be written: there is no such bucket or folder.", "Check the address."
        )
    reason = redacted(" ".join(str(error).split()))[:200]
    kept = "what has arrived is not sent again" if written else "what was fetched is kept"
    return SurroundingsError(
        f"{shown} cannot be {'written' if written else 'read'}: {type(error).__name__}: {reason}.",
        f"Check the connection and your credentials, then run again; {kept}.",
    )


def with_patience(
    url: str, action: Callable[..., _T], *arguments: Any, written: bool = False
) -> _T:
    """Try a few times. Errors that a second attempt cannot change are raised at once: a missing
    file, missing rights, a full disk.

    Args:
        url: what the message names; ``written``: it is written to, not read.

    Raises:
        UsageError: there is nothing, or no such bucket.
        SurroundingsError: the store failed, or refused.
    """
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
                raise _trouble(url, error, written) from error
            time.sleep(PAUSE * 2 ** (attempt - 1))
    raise AssertionError("unreachable")


# The port to a folder of this machine, or of one that all machines mount.


_GUARD = ".guard"  # who exchanges an object holds its lock
_PUT = ".put-"


@dataclass
class FolderStore:
    """A folder; see ``stores.Store``. An object appears by a rename, so it is never half there."""

    folder: Path
    conditions: bool = True

    @property
    def shown(self) -> str:
        return str(self.folder)

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(start or 0)
                return file.read(-1 if end is None else end - (start or 0))
        except (FileNotFoundError, IsADirectoryError):
            return None

    def fetch(self, name: str, target: Path) -> bool:
        try:
            shutil.copyfile(self.folder / name, target)
        except (FileNotFoundError, IsADirectoryError):
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with self._made(name) as new:
            new.write_bytes(content)
            new.replace(self.folder / name)

    def put_file(self, name: str, source: Path) -> None:
        with self._made(name) as new:
            shutil.copyfile(source, new)
            new.replace(self.folder / name)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        with self._made(name) as new:
            new.write_bytes(content)
            try:
                (self.folder / name).hardlink_to(new)
            except FileExistsError:
                return False
            return True

    def put_if_match(self, name: str, content: bytes, tag: str) -> bool:
        with self._made(name) as new, (self.folder / _GUARD).open("ab") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            there = self.stat(name)
            if there is None or there.tag != tag:
                return False
            new.write_bytes(content)
            new.replace(self.folder / name)
            return True

    @contextmanager
    def _made(self, name: str) -> Iterator[Path]:
        """A file beside the object, for its new bytes."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{_PUT}{uuid.uuid4().hex}")
        try:
            yield new
        finally:
            new.unlink(missing_ok=True)

    def stat(self, name: str) -> Stat | None:
        path = self.folder / name
        return self._said(path) if path.is_file() else None

    def _said(self, path: Path) -> Stat:
        one = path.stat()
        tag = f"{one.st_ino}-{one.st_mtime_ns}-{one.st_size}"
        return Stat(one.st_size, tag, one.st_mtime)

    def list(self, under: str = "") -> Mapping[str, Stat]:
        found = {}
        for path in (self.folder / under).rglob("*"):
            with suppress(FileNotFoundError):  # removed meanwhile
                if path.is_file() and not self._hidden(path.name):
                    found[path.relative_to(self.folder).as_posix()] = self._said(path)
        return dict(sorted(found.items()))

    def names(self) -> tuple[str, ...]:
        with suppress(FileNotFoundError):
            found = (path.name for path in self.folder.iterdir())
            return tuple(sorted(name for name in found if not self._hidden(name)))
        return ()

    def _hidden(self, name: str) -> bool:
        return name == _GUARD or name.startswith(_PUT)

    def delete(self, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.unlink(missing_ok=True)
            with suppress(OSError):  # others lie there
                for folder in path.relative_to(self.folder).parents[:-1]:
                    (self.folder / folder).rmdir()
