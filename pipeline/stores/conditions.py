"""Puts that a store itself decides: of two at once, it lets one through.

S3 has them as headers of a put (``If-None-Match``, ``If-Match``). The store in memory is one
process, where a lock does the same. GCS and Azure have them too, but their packages for fsspec
give no way to both, so builds there need ``--single-writer``.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Protocol

_REFUSED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}


class Conditions(Protocol):
    """How one kind of store is asked."""

    def create(self, filesystem: Any, path: str, content: bytes) -> bool:
        """Put an object that is not there; False where it is."""

    def replace(self, filesystem: Any, path: str, content: bytes, tag: str) -> bool:
        """Put an object in place of the one with this tag; False where that is another one."""


def _refused(error: OSError) -> bool:
    """Whether a store refused a put because the condition does not hold."""
    said = getattr(error.__cause__, "response", None) or {}
    return said.get("Error", {}).get("Code") in _REFUSED


class _S3:
    def create(self, filesystem: Any, path: str, content: bytes) -> bool:
        return self._put(filesystem, path, content, IfNoneMatch="*")

    def replace(self, filesystem: Any, path: str, content: bytes, tag: str) -> bool:
        return self._put(filesystem, path, content, IfMatch=tag)

    def _put(self, filesystem: Any, path: str, content: bytes, **condition: str) -> bool:
        try:
            filesystem.pipe_file(path, content, **condition)
        except FileNotFoundError:
            if "IfMatch" in condition:  # it was removed meanwhile, or there is no bucket
                return False
            raise
        except FileExistsError:
            return False
        except OSError as error:
            if not _refused(error):
                raise
            return False
        return True


class _Memory:
    _lock = threading.Lock()

    def create(self, filesystem: Any, path: str, content: bytes) -> bool:
        with self._lock:
            if filesystem.isfile(path):
                return False
            filesystem.pipe_file(path, content)
            return True

    def replace(self, filesystem: Any, path: str, content: bytes, tag: str) -> bool:
        with self._lock:
            if not filesystem.isfile(path) or content_tag(filesystem.cat_file(path)) != tag:
                return False
            filesystem.pipe_file(path, content)
            return True


def content_tag(content: bytes) -> str:
    """The tag that S3 gives an object of one put; in memory we give the same."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


_KINDS: dict[str, Conditions] = {"s3": _S3(), "s3a": _S3(), "memory": _Memory()}


def deciding(filesystem: Any) -> Conditions | None:
    """How a file system is asked; None where it cannot be."""
    return next((_KINDS[name] for name in protocols(filesystem) if name in _KINDS), None)


def protocols(filesystem: Any) -> tuple[str, ...]:
    """The names by which fsspec knows a file system."""
    names = filesystem.protocol
    return (names,) if isinstance(names, str) else tuple(names)
