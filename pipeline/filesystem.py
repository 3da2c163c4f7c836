"""The one way to a file system of fsspec: what is missing is named, secrets are left out, and what
may pass is tried again."""

import errno
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pipeline.secrets import redacted
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


def with_patience(url: str, action: Callable[..., _T], *given: Any, written: bool = False) -> _T:
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
            return action(*given)
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
