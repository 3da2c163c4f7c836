"""Ray: plain tasks, on a cluster or on one that is started for the build.

A task gets its item and a reference to what all items share, which a worker fetches once
(``_ray_task``). A task whose worker is lost is submitted again here, not by Ray: so the loss can be
told, and an item that kills three workers named.
"""

import contextlib
import hashlib
import importlib
import os
import pickle
import signal
import socket
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pipeline.executors import SIGNALS, Job, Waiting, name_of
from pipeline.inputs import declared
from pipeline.ray_task import Order, attempt
from stages.errors import SurroundingsError, UsageError

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
    _listen()
    handlers = {kind: signal.getsignal(kind) for kind in SIGNALS}
    try:
        _require_listening(address)
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


def _require_listening(address: str) -> None:
    """Somebody listens there: Ray itself would try for minutes.

    Raises:
        OSError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


_tells: list[Callable[[str], None]] = []  # whom to tell what Ray reports, while this program works


def _listen() -> None:
    """Have what Ray reports told as warnings, in a sentence each.

    Ray prints it on stdout, with the logs of lost machines, and has no setting for that.
    """

    def tell(data: dict[str, Any], *_: Any, **__: Any) -> None:
        for lines in data.get("lines", ()):
            for one in _tells:
                one(f"Ray says: {_line(lines)}.")

    with suppress(AttributeError):  # in another version, which prints
        if ray._private.worker.print_to_stdstream:
            ray._private.worker.print_to_stdstream = tell


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


def _line(error: BaseException | str) -> str:
    """The first sentence of a message of Ray's, which may have fifty lines."""
    first = str(error).strip().partition("\n")[0].partition(". ")[0]
    return first.rstrip(". ") or type(error).__name__


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
    _tells[:] = [job.lost]
    connect(job.address, workers)
    content = pickle.dumps((function, shared))
    with _marked(job.folders) as marks, _refusing():
        order = Order(
            versions=dict(declared.versions()),
            folder=str(Path.cwd()),
            marks=marks,
            sha256=hashlib.sha256(content).hexdigest(),
            work=[ray.put(content)],
        )
        with contextlib.closing(_answers(order, items, job)) as answers:
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


def _room(job: Job) -> int:
    """How many tasks may be submitted: some more than run, or a cluster would never grow."""
    return job.at_once or 2 * int(ray.cluster_resources().get("CPU", 1)) + _AHEAD


def _answers(
    order: Order, items: Sequence[Any], job: Job
) -> Generator[tuple[int, Any], None, None]:
    """Results as they come; an item whose worker was lost is submitted again.

    Raises:
        SurroundingsError: an item has lost too many.
    """
    remote, ours, waiting = ray.remote(max_retries=0)(attempt), ray.put(order), Waiting(items, job)
    running: dict[Any, int] = {}  # the item of each task
    try:
        while waiting.numbers or running:
            while waiting.numbers and len(running) < _room(job):
                number = waiting.numbers.popleft()
                named = remote.options(name=f"{job.phase}: {name_of(items[number])}")
                running[named.remote(ours, pickle.dumps(items[number]))] = number
            for task in ray.wait(list(running))[0]:
                number = running.pop(task)
                try:
                    good, value = pickle.loads(ray.get(task))
                except _LOST as error:
                    waiting.again(number, _line(error))
                    continue
                if not good:
                    raise value
                yield number, value
    finally:
        for task in running:
            with suppress(Exception):  # the cluster may be gone
                ray.cancel(task)
