"""What workers are given in tests: a result, and ways to die."""

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


def parent(shared: None, item: int) -> tuple[int, int, bool]:
    """The process that this one is a copy of, this one, and whether it leaves signals to that."""
    blocked = {signal.SIGINT, signal.SIGTERM} <= signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return os.getppid(), os.getpid(), blocked


LOADED: list[int] = []  # in the process that loaded something, and in its copies


class Loading:
    """Something to share that loads what its users need."""

    def load(self) -> None:
        """Load it, if this process has not."""
        if not LOADED:
            LOADED.append(os.getpid())


def loaded(shared: Loading, item: int) -> tuple[int, list[int]]:
    """The process that this one is a copy of, and which one has loaded."""
    return os.getppid(), LOADED


def fail(shared: None, item: int) -> int:
    """An error of one item."""
    if item == 1:
        raise ValueError("not this one")
    return item
