"""What workers are given in tests: a result, and ways to die."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def square(shared: int, item: int) -> int:
    """A result."""
    return shared + item * item


def die_once(shared: str, item: int) -> int:
    """Each item kills the first worker that it is given to; ``shared`` is a folder for marks."""
    mark = Path(shared) / str(item)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def die(shared: None, item: int) -> int:
    """Item 2 kills every worker."""
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item
