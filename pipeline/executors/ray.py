"""Ray: plain tasks, on a cluster or on one that is started for the build.

A task gets its item and a reference to what all items share, which a worker fetches once. Before it
unpickles either, a worker compares its versions with the driver's, and looks for the driver's
folders. A task whose worker is lost is submitted again here, not by Ray: so the loss can be told,
and an item that kills three workers named.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pickle
import signal
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline import memory
from pipeline.executors._job import Job, name_of
from stages.errors import PipelineError, SurroundingsError, UsageError

ATTEMPTS = 3
_AHEAD = 16  # tasks that wait for a free worker, beside one for each
_LOCAL = "local"  # the address of a cluster of this machine, for this program

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


def _library() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"--engine ray needs the package ray: {error}.",
            "Install it: pip install 'posttrain-pipeline[ray]'.",
        ) from error


# When this file is imported: before any thread is, which may import what Ray imports, too.
ray: Any = _library()
_LOST = (
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.OutOfMemoryError,
    ray.exceptions.ObjectLostError,
)


def connect(address: str | None, processes: int) -> None:
    """Connect to the cluster, unless this program is connected to one.

    Args:
        address: None for that of ``RAY_ADDRESS``, and without it for a cluster of this machine.
        processes: how many items such a cluster makes at the same time.

    Raises:
        UsageError: the address is one that programs outside of the cluster use.
        SurroundingsError: the cluster is not there.
    """
    if ray.is_initialized():
        return
    address = address or os.environ.get("RAY_ADDRESS") or _LOCAL
    if address.startswith("ray://"):
        raise UsageError(
            f"A build cannot use Ray from outside of the cluster, as {address} does.",
            "Run the command on a machine of the cluster with --ray-address auto, or with "
            "ray job submit.",
        )
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == _LOCAL:
        settings |= {"num_cpus": processes, "include_dashboard": False}
    _shorten()
    handlers = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=address, **settings)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise SurroundingsError(
            f"There is no Ray cluster at {address}: {_line(error)}.",
            "Check it with ray status, or leave --ray-address out for a cluster of this machine.",
        ) from error
    finally:
        with suppress(ValueError):  # not the main thread: Ray has set none either
            for kind, handler in handlers.items():
                signal.signal(kind, handler)


def _shorten() -> None:
    """Let Ray print the first line of what it reports: it adds the logs of lost machines."""
    module = ray._private.worker
    print_all = getattr(module, "print_to_stdstream", None)
    if print_all is None or hasattr(print_all, "shortened"):
        return

    def print_first(data: dict[str, Any], *more: Any, **named: Any) -> None:
        lines = [line.partition(chr(10))[0] for line in data.get("lines", ())]
        print_all({**data, "lines": lines}, *more, **named)

    print_first.shortened = True  # type: ignore[attr-defined]
    module.print_to_stdstream = print_first


@contextmanager
def connected(address: str | None, processes: int) -> Iterator[None]:
    """A connection until the block ends, where this program has none of its own."""
    own = not ray.is_initialized()
    connect(address, processes)
    try:
        yield
    finally:
        if own:
            ray.shutdown()


def _line(error: BaseException) -> str:
    """The first sentence of a message of Ray's, which may have fifty lines."""
    first = str(error).strip().partition("\n")[0].partition(". ")[0]
    return first.rstrip(". ") or type(error).__name__


@dataclass(frozen=True, slots=True)
class _Order:
    """What a worker must know before it unpickles anything; of plain types.

    Attributes:
        alike: pickled: raises where this worker would make other bytes than the driver.
        folder: that the driver works in; ``marks``: files in folders that it shares with workers.
        sha256: of the bytes that ``work`` refers to, in a list, or Ray would fetch them each time.
    """

    alike: bytes
    folder: str
    marks: tuple[str, ...]
    sha256: str
    work: list[Any]


_held: list[tuple[str, Callable[[Any, Any], Any], Any]] = []  # of the phase that a worker works for


def _attempt(order: _Order, item: bytes) -> bytes:
    """What a task does.

    Returns:
        A pickled pair: whether it went well, and the result or the exception.
    """
    try:
        function, shared = _held_work(order)
        answer: tuple[bool, Any] = (True, function(shared, pickle.loads(item)))
    except Exception as error:  # carried to the driver, which raises it
        answer = (False, error)
    try:
        sent = pickle.dumps(answer)
        if not answer[0]:
            pickle.loads(sent)  # some exceptions are pickled and cannot be read again
    except Exception as error:
        sent = pickle.dumps((False, PipelineError(f"{type(answer[1]).__name__}: {error}")))
    return sent


def _held_work(order: _Order) -> tuple[Callable[[Any, Any], Any], Any]:
    """The function and what its calls share, fetched and unpickled once per worker and phase."""
    if not _held or _held[0][0] != order.sha256:
        _held.clear()
        _require_alike(order)
        content = ray.get(order.work[0])
        if hashlib.sha256(content).hexdigest() != order.sha256:
            raise SurroundingsError(
                f"{_node()} received other options, inputs or tokenizer than were sent.",
                "Run it again; if it happens again, please report it.",
            )
        _held.append((order.sha256, *pickle.loads(content)))
    return _held[0][1:]


def _require_alike(order: _Order) -> None:
    """This worker makes the bytes that the driver would make, and writes them where it reads.

    Raises:
        UsageError: another version is installed here, or a folder of the driver is not here.
    """
    pickle.loads(order.alike)(_node())
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # parallelism comes from tasks
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    memory.keep_freed()
    absent = [str(Path(mark).parent) for mark in order.marks if not Path(mark).is_file()]
    if not absent and not Path(order.folder).is_dir():
        absent = [order.folder]
    if absent:
        raise UsageError(
            f"{_node()} does not see {absent[0]} of the driver.",
            "All machines of the cluster must share the folder that the command runs in, the "
            "cache (--cache-dir), the inputs and the output (-o).",
        )
    os.chdir(order.folder)  # paths of inputs may be relative to it


def _node() -> str:
    return f"The machine {ray.util.get_node_ip_address()}"


@contextmanager
def _marked(folders: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """A file in each folder, by which workers know it."""
    name = f".seen-by-workers-{uuid.uuid4().hex}"
    marks = [Path(os.path.realpath(folder)) / name for folder in folders]
    try:
        for mark in marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        yield tuple(map(str, marks))
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)


def pmap(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    workers: int,
    job: Job,
) -> Iterator[tuple[int, Result]]:
    """Yield (index, result) as results come.

    Raises:
        UsageError: a worker differs from the driver, or does not share its folders.
        SurroundingsError: an item killed its worker three times, or the cluster is gone.
        Exception: whatever the function raised first.
    """
    connect(job.address, workers)
    content = pickle.dumps((function, shared))
    with _marked(job.folders) as marks, _refusing():
        order = _Order(
            alike=pickle.dumps(job.alike),
            folder=str(Path.cwd()),
            marks=marks,
            sha256=hashlib.sha256(content).hexdigest(),
            work=[ray.put(content)],
        )
        with contextlib.closing(_Tasks(order, items, job).answers()) as answers:
            yield from answers


@contextmanager
def _refusing() -> Iterator[None]:
    """Errors of Ray itself, in our words."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:  # it failed before our code ran
        raise UsageError(
            f"A worker cannot run this program: {_line(error.cause)}.",
            "Install the same version of it on every machine of the cluster.",
        ) from error
    except ray.exceptions.RayError as error:
        raise SurroundingsError(
            f"The Ray cluster cannot go on: {_line(error)}.",
            "Check it with ray status, and run again: what is made already is not made again.",
        ) from error


class _Tasks:
    """The tasks of one phase.

    Attributes:
        running: the item of each task; ``lost``: by item, how many workers it has lost.
    """

    def __init__(self, order: _Order, items: Sequence[Any], job: Job) -> None:
        self._task = ray.remote(max_retries=0)(_attempt)
        self._order = ray.put(order)
        self._items = items
        self._job = job
        self._waiting = deque(range(len(items)))
        self.running: dict[Any, int] = {}
        self.lost: dict[int, int] = {}

    def answers(self) -> Generator[tuple[int, Any], None, None]:
        """Results as they come."""
        try:
            while self._waiting or self.running:
                while self._waiting and len(self.running) < self._room():
                    self._submit(self._waiting.popleft())
                for task in ray.wait(list(self.running))[0]:
                    number = self.running.pop(task)
                    answer = self._answer(task, number)
                    if answer is not None:
                        good, value = pickle.loads(answer)
                        if not good:
                            raise value
                        yield number, value
        finally:
            for task in self.running:
                with suppress(Exception):  # the cluster may be gone
                    ray.cancel(task)

    def _room(self) -> int:
        """How many tasks may be submitted: some more than run, or a cluster would never grow."""
        if self._job.at_once:
            return self._job.at_once
        return 2 * int(ray.cluster_resources().get("CPU", 1)) + _AHEAD

    def _submit(self, number: int) -> None:
        item = self._items[number]
        name = f"{self._job.phase}: {name_of(item)}"
        task = self._task.options(name=name).remote(self._order, pickle.dumps(item))
        self.running[task] = number

    def _answer(self, task: Any, number: int) -> bytes | None:
        """What a task gave; None where its worker was lost, and it has to be submitted again.

        Raises:
            SurroundingsError: its item has lost too many.
        """
        try:
            content: bytes = ray.get(task)
        except _LOST as error:
            name, cause = name_of(self._items[number]), _line(error)
            self.lost[number] = self.lost.get(number, 0) + 1
            if self.lost[number] >= ATTEMPTS:
                raise SurroundingsError(
                    f"{name} killed its worker {ATTEMPTS} times ({cause}).",
                    "Give the machines more memory, or make fewer tasks at once with --workers.",
                ) from error
            self._job.lost(f"Ray lost the worker of {name} ({cause}); it is made again.")
            self._waiting.appendleft(number)  # first in line: a bad item is named soon
            return None
        return content
