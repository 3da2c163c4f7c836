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


def kill_the_copied(shared: str, item: int) -> int:
    """Ends, once, the process that workers are copies of."""
    mark = Path(shared) / "killed"
    if item == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getppid(), signal.SIGKILL)
    return item


LOADED: list[int] = []  # in the process that loaded something ahead, and in its copies


def ahead() -> None:
    """Loads something ahead, and fails."""
    LOADED.append(os.getpid())
    raise ValueError("whoever needs it will see")


def loaded(shared: None, item: int) -> tuple[int, list[int]]:
    """The process that this one is a copy of, and which one has loaded something ahead."""
    return os.getppid(), LOADED


def fail(shared: None, item: int) -> int:
    """An error of one item."""
    if item == 1:
        raise ValueError("not this one")
    return item
