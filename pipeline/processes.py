"""A supervised process pool: it knows which task killed which worker.

The pools of the standard library hang, or lose every task in flight, when the kernel kills a
worker. Here a dead worker is replaced and its task tried again; a task that kills three workers is
named. With one worker everything runs in this process.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from pipeline import executors, memory
from pipeline.executors import JOB, SIGNALS, Job, name_of
from stages.errors import PipelineError, SurroundingsError

ATTEMPTS = 3
_ALLOCATOR = "jemalloc_bg_thd"
_PR_SET_PDEATHSIG = 1  # Linux prctl(2): die with the parent

copied: Callable[..., Iterator[tuple[int, Any]]] | None = None  # set by ``_copies``

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


_Work = tuple[Callable[[Any, Any], Any], Any]  # a function, and what all its calls share


def _serve(pipe: Connection, work: _Work | None, pandas: bool) -> None:
    """What a process does.

    Args:
        work: None where it comes first through the pipe.
    """
    die_with_parent()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # parallelism comes from processes
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    memory.keep_freed()
    if not pandas:
        memory.without_pandas()
    try:
        function, shared = work or pipe.recv()
    except EOFError:
        return

    def compute(item: Any) -> Any:
        with executors.heard_by(partial(_told, pipe)):
            return function(shared, item)

    serve(pipe, compute)


def serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """Answer what comes through a pipe until its other end is closed: True with what ``work`` makes
    of it, or False with the exception that it raised."""
    while True:
        try:
            received = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, work(received))
        except Exception as error:  # carried to the process that asked, which raises it
            answer = (False, error)
        try:
            pipe.send(answer)
        except Exception as error:  # an exception that cannot be pickled
            pipe.send((False, PipelineError(f"{type(answer[1]).__name__}: {error}")))


def _told(pipe: Connection, amount: executors.Amount) -> None:
    """How much of an item is done; its answer comes later."""
    pipe.send((None, amount))


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
    """

    process: BaseProcess
    pipe: Connection
    task: int | None = None

    def wait(self) -> None:
        """Until it has sent an answer or has ended."""
        wait([self.pipe, self.process.sentinel])


class Pool:
    """Processes that compute ``function(shared, item)``; they are killed when it stops.

    Args:
        method: how they are started.
        pandas: they may need it.
    """

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        shared: Any,
        method: str = "spawn",
        pandas: bool = False,
    ) -> None:
        self._context: Any = multiprocessing.get_context(method)
        self._function = function
        self._shared = shared
        self._pandas = pandas
        self.workers: list[Worker] = []

    def start(self) -> None:
        """Start one more process."""
        mine, theirs = self._context.Pipe()
        work = (self._function, self._shared)
        copied = self._context.get_start_method() == "fork"
        arguments = (theirs, work if copied else None, self._pandas)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        # What ends the command reaches the whole process group. A worker inherits the blocked
        # signals, so only the parent handles them, and not while it sends a worker its arguments.
        if not copied:
            resource_tracker.ensure_running()  # or the first worker starts it, which ends the mask
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process.start()
            theirs.close()
            worker = Worker(process, mine)
            self.workers.append(worker)
            if not copied:
                # Not with the arguments: the process that writes those waits for ever for a reader
                # that has died. This pipe has no other end once that has.
                send(worker, work)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

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
    yield from (copied or pooled)(function, shared, items, workers, job=job)


def pooled(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    workers: int,
    method: str = "spawn",
    job: Job = JOB,
) -> Iterator[tuple[int, Result]]:
    """``pmap`` in processes that are started for it; see ``Pool`` for their method."""
    pool = Pool(function, shared, method)
    waiting = deque(range(len(items)))
    deaths = dict.fromkeys(range(len(items)), 0)
    done = 0
    try:
        for _ in range(min(workers, len(items))):
            pool.start()
        while done < len(items):
            for worker in pool.workers:
                if worker.task is None and waiting:
                    worker.task = waiting.popleft()
                    send(worker, items[worker.task])
            for worker in _ready(pool.workers):
                task = worker.task
                answer = receive(worker)
                if answer is None:  # ready without an answer: it died
                    code = pool.drop(worker)
                    if task is not None:
                        job.partly(task, executors.NOTHING)
                        deaths[task] += 1
                        if deaths[task] >= ATTEMPTS:
                            raise _poison(items[task], code)
                        job.lost(_lost(items[task], code))
                        waiting.appendleft(task)  # first in line: a bad task is named soon
                    pool.start()
                elif task is not None:
                    good, value = answer
                    if good is None:
                        job.partly(task, value)
                        continue
                    worker.task = None
                    if not good:
                        raise value
                    done += 1
                    yield task, value
    finally:
        pool.stop()


def _ready(workers: list[Worker]) -> list[Worker]:
    """The workers that have sent an answer or have ended; waits for at least one."""
    handles: list[Any] = [worker.pipe for worker in workers]
    handles += [worker.process.sentinel for worker in workers]
    ready = wait(handles)
    return [w for w in workers if w.pipe in ready or w.process.sentinel in ready]


def send(worker: Worker, item: Any) -> None:
    """Give a process an item; one that has died takes none, which ``receive`` says."""
    try:
        worker.pipe.send(item)
    except (BrokenPipeError, ConnectionResetError):
        return  # it died idle; its sentinel says so next


def receive(worker: Worker) -> tuple[bool | None, Any] | None:
    """What a ready process has sent: True with a result, False with an exception to raise, or None
    with how much of an item is done; None alone where it died."""
    try:
        return worker.pipe.recv() if worker.pipe.poll() else None
    except (EOFError, ConnectionResetError):
        return None


def _poison(item: Any, code: int) -> SurroundingsError:
    return SurroundingsError(
        f"{item} killed its worker {ATTEMPTS} times ({_cause(code)}).",
        "Give the machine more memory, or fewer --workers.",
    )


def _lost(item: Any, code: int) -> str:
    return f"The worker of {name_of(item)} was lost ({_cause(code)}); it is made again."


def _cause(code: int) -> str:
    return "usually the kernel, out of memory" if code == -signal.SIGKILL else f"exit {code}"
