"""A supervised process pool: it knows which task killed which worker.

The pools of the standard library hang, or lose every task in flight, when the kernel kills a
worker. Here a dead worker is replaced and its task tried again; a task that kills three workers is
named. With one worker everything runs in this process.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pipeline import executors
from pipeline.executors import JOB, SIGNALS, Item, Job, Result, Shared

_ALLOCATOR = "jemalloc_bg_thd"
_PR_SET_PDEATHSIG = 1  # Linux prctl(2): die with the parent


class Work(NamedTuple):
    """What is done with items: a function, and what all its calls share."""

    function: Callable[[Any, Any], Any]
    shared: Any


def _serve(pipe: Connection) -> None:
    """What a process does: the work that it was sent last, with each item that comes."""
    die_with_parent()
    gc.freeze()  # or collecting would copy the pages that a copy shares
    executors.begin_worker()
    work: Work | None = None
    with executors.heard_by(partial(_told, pipe)):
        while True:
            try:
                received = pipe.recv()
            except EOFError:
                return
            if isinstance(received, Work):
                work = received
            elif work is not None:
                pipe.send_bytes(executors.answered(*work, received))


def _told(pipe: Connection, amount: executors.Amount) -> None:
    """How much of an item is done; its answer comes later."""
    pipe.send_bytes(pickle.dumps((None, amount)))


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however that ends.

    The kernel says nothing of a parent that ended before it was asked: then this process ends here.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os._exit(1)  # a copy has its parent's pipes, and whoever reads those would wait for it


@dataclass(slots=True)
class Worker:
    """A process that computes items one by one.

    Attributes:
        task: the item that it was sent; None where it waits for one.
        work: that it does.
    """

    process: BaseProcess
    pipe: Connection
    task: int | None = None
    work: Work | None = None

    def give(self, work: Work, item: Any) -> None:
        """Send it an item; one that has died takes none, which ``receive`` says."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if self.work is not work:
                self.pipe.send(work)
                self.work = work
            self.pipe.send(item)

    def receive(self) -> tuple[bool | None, Any] | None:
        """What it has sent once it is ready: True with a result, False with an exception to raise,
        or None with how much of an item is done; None alone where it died."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            if self.pipe.poll():
                found: tuple[bool | None, Any] = pickle.loads(self.pipe.recv_bytes())
                return found
        return None

    def wait(self) -> None:
        """Until it has sent an answer or has ended."""
        wait([self.pipe, self.process.sentinel])


class Pool:
    """Processes that do work; they are killed when it stops.

    Each is a copy of this process, which has imported and loaded what it needs, where that can be
    copied; else one that starts anew.
    """

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def start(self, work: Work | None = None) -> Worker:
        """Start one more process.

        Args:
            work: that it is for: what that loads is loaded once, here, and the copies share it.
        """
        copied = forkable()
        if copied:
            getattr(work and work.shared, "load", _nothing)()
        context: Any = multiprocessing.get_context("fork" if copied else "spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        # What ends the command reaches the whole process group. A worker inherits the blocked
        # signals, so only the parent handles them.
        if not copied:
            resource_tracker.ensure_running()  # or the first worker starts it, which ends the mask
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            with _unnamed_main():
                process.start()
            theirs.close()
            self.workers.append(Worker(process, mine))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self.workers[-1]

    def drop(self, worker: Worker) -> int:
        """Forget a process that has ended; its exit status."""
        worker.process.join()
        worker.pipe.close()
        self.workers.remove(worker)
        return int(worker.process.exitcode or 0)

    def stop(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.process.kill()  # safe: a file gets its final name only once it is complete
        for worker in list(self.workers):
            self.drop(worker)


@contextlib.contextmanager
def _unnamed_main() -> Iterator[None]:
    """A process that starts anew meanwhile does not run the user's script a second time: it needs
    nothing of it, and the script may build without asking whether it is ``__main__``."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def forkable() -> bool:
    """Whether a copy of this process can go on: a thread that others wait for would be missing.

    The allocator of pyarrow and polars starts its thread again, if it has work for it.
    """
    tasks = Path("/proc/self/task")
    if sys.platform != "linux" or not tasks.is_dir():
        return False
    others = 0
    for task in tasks.iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            others += (task / "comm").read_text().strip() != _ALLOCATOR
    return others == 1


def pmap(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    workers: int,
    job: Job = JOB,
) -> Iterator[tuple[int, Result]]:
    """Yield (index, result) as results come.

    Raises:
        SurroundingsError: an item killed its worker three times.
        Exception: whatever the function raised first.
    """
    if workers <= 1 or len(items) <= 1:
        for index, item in enumerate(items):
            with executors.heard_by(partial(job.partly, index)):
                found = function(shared, item)
            yield index, found
        return
    yield from pooled(function, shared, items, workers, job)


_lasting: ContextVar[Pool | None] = ContextVar("lasting", default=None)


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Until the block ends, the processes of one phase work for the next, too."""
    pool = Pool()
    token = _lasting.set(pool)
    try:
        yield
    finally:
        _lasting.reset(token)
        pool.stop()


def pooled(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    workers: int,
    job: Job = JOB,
) -> Iterator[tuple[int, Result]]:
    """``pmap`` in other processes, also of one item."""
    work, waiting, pool = Work(function, shared), executors.Waiting(items, job), _lasting.get()
    lasts, pool = pool is not None, pool or Pool()
    left = len(items)
    try:
        while left:
            while waiting.numbers:
                free = next((one for one in pool.workers if one.task is None), None)
                if free is None and len(pool.workers) >= min(workers, left):
                    break
                free = free or pool.start(work)
                free.task = waiting.numbers.popleft()
                free.give(work, items[free.task])
            for number, answer in _heard(pool, waiting):
                if answer[0] is None:
                    job.partly(number, answer[1])
                    continue
                if not answer[0]:
                    raise answer[1]
                left -= 1
                yield number, answer[1]
    finally:
        if not lasts or any(one.task is not None for one in pool.workers):
            pool.stop()


def apart(function: Callable[[Shared, Item], Result], shared: Shared, item: Item) -> Result:
    """What a process of its own makes of one item."""
    token = _lasting.set(None)
    try:
        ((_, found),) = pooled(function, shared, [item], 1)
    finally:
        _lasting.reset(token)
    return found


def _heard(pool: Pool, waiting: executors.Waiting) -> Iterator[tuple[int, tuple[bool | None, Any]]]:
    """What workers have sent, each with its item; waits for at least one that has, or has died."""
    ready = wait([end for one in pool.workers for end in (one.pipe, one.process.sentinel)])
    for worker in [w for w in pool.workers if w.pipe in ready or w.process.sentinel in ready]:
        task, answer = worker.task, worker.receive()
        if answer is not None and task is not None:
            if answer[0] is not None:
                worker.task = None
            yield task, answer
        elif answer is None:  # ready without an answer: it died
            cause = _cause(pool.drop(worker))
            if task is not None:
                waiting.again(task, cause)


def _nothing() -> None:
    return


def _cause(code: int) -> str:
    return "usually the kernel, out of memory" if code == -signal.SIGKILL else f"exit {code}"
