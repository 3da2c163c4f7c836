"""stdout and stderr of a command: that nobody reads them, or that they are full, stops no work.

What cannot be written is dropped from there on, so a command ends as if all had been read. Only a
stdout that is full, on a disk say, is an error, when the command has ended (``require_written``).
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any


class _Stream(io.FileIO):
    """Writes to a descriptor, and raises nothing.

    Attributes:
        error: what the system said first; nothing is written after it.
    """

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            while self.error is None:
                written: int | None = super().write(data)
                if written is not None:
                    return written
                select.select((), (self,), ())  # its reader is slow, and it does not wait by itself
        except OSError as error:
            self.error = error
        return memoryview(data).nbytes


_opened: dict[str, _Stream] = {}


def guard() -> None:
    """Let both streams be written to like that; where one is closed, nobody reads it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # or a file that is opened later would get its number, and what is printed
            os.open(os.devnull, os.O_RDWR)
    for number, name in ((1, "stdout"), (2, "stderr")):
        old, raw = getattr(sys, name), _Stream(number, "w", closefd=False)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=getattr(old, "encoding", None),
            errors=getattr(old, "errors", "replace"),
            line_buffering=number == 2 or raw.isatty(),
        )
        setattr(sys, name, stream)
        _opened[name] = raw


def require_written() -> None:
    """Raises OSError where stdout was to be read, and could not be written."""
    sys.stdout.flush()
    error = _opened["stdout"].error
    if error is not None and error.errno != errno.EPIPE:
        raise error
