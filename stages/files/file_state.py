"""Whether a file is still the one that was read, without reading it again.

Every write, cut, rename or replacement of a file changes what the file system says of it: its
inode, its size or the time of its last change. That time comes from a clock that ticks, so two
changes within one tick have the same time: who has read a file within a tick of its last change
must read it again to be sure.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

_SECOND = 1_000_000_000
_TICK = _SECOND // 10  # longer than the ticks of the clock that kernels take such times from
COARSE = 2 * _SECOND  # some file systems keep whole seconds, or every other one


@dataclass(frozen=True, slots=True)
class FileState:
    """What the file system says of a file; times in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    def settled(self) -> bool:
        """Whether a change from now on gives the file another state."""
        return _past(self.changed)

    def dated(self) -> bool:
        """Whether a write from now on gives the file another time of modification."""
        return _past(self.modified)

    def written_as(self, other: FileState) -> bool:
        """Whether nothing was written between two states of one file. Another name for it, the
        removal of one, and a change of mode or owner leave this as it is."""
        return replace(self, changed=0) == replace(other, changed=0)


def _past(moment: int) -> bool:
    tick = _TICK if moment % _SECOND else COARSE
    return time.time_ns() - moment > tick


def of(path: str | Path | IO[bytes]) -> FileState:
    """The state of a file, or of one that is open, whatever its name names by now.

    Raises:
        OSError: there is none.
    """
    said = os.stat(path) if isinstance(path, str | Path) else os.fstat(path.fileno())
    return FileState(
        device=said.st_dev,
        inode=said.st_ino,
        size=said.st_size,
        modified=said.st_mtime_ns,
        changed=said.st_ctime_ns,
    )
