"""What is opened by a name that others chose is a regular file. A pipe waits for ever for somebody
who writes, a device may never end, and neither can be read a second time."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TypeVar

from stages.errors import IrregularError

P = TypeVar("P", str, Path)


def required(path: P) -> P:
    """The same path, to be opened now. Where nothing is there, who opens it says so.

    Raises:
        IrregularError: something else than a file is there.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return path
    if not stat.S_ISREG(mode):
        raise IrregularError(
            f"{path} is not a regular file.",
            "Give a file: a pipe, a socket, a device or a folder cannot be read as one.",
        )
    return path


def require_all(folder: Path) -> None:
    """The same of all that lies in a folder, but for other folders; raises as ``required``."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            required(path)
