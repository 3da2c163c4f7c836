"""Ray: plain tasks, on a cluster or on one that is started for the build.

A task gets its item and a reference to what all items share, which a worker fetches once
(``attempt``). A task whose worker is lost is submitted again here, not by Ray: so the loss can be
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
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import executors
from pipeline.executors import SIGNALS, Item, Job, Result, Shared, Waiting, name_of
from pipeline.inputs import declared
from stages.errors import SurroundingsError, UsageError

_AHEAD = 16  # tasks that wait for a free worker, beside one for each
_LOCAL = "local"  # the address of a cluster of this machine, for this program


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


# What a task does, in a worker: it compares the worker with the driver, and does the work. Nothing
# of the work is unpickled before: another version could not, or could into something else.


class Order(NamedTuple):
    """What a worker must know before it unpickles anything; of plain types.

    Attributes:
        versions: of all that bytes depend on, where the driver is.
        folder: that the driver works in; ``marks``: files in folders that it shares with workers.
        sha256: of the bytes that ``work`` refers to, in a list, or Ray would fetch them each time.
    """

    versions: Mapping[str, str]
    folder: str
    marks: tuple[str, ...]
    sha256: str
    work: list[Any]


_held: list[tuple[str, Callable[[Any, Any], Any], Any]] = []  # of the phase that a worker works for


def attempt(order: Order, item: bytes) -> bytes:
    """What a task does.

    Returns:
        A pickled pair: whether it went well, and the result or the exception.
    """
    return executors.answered(_work, order, item)


def _work(order: Order, item: bytes) -> Any:
    function, shared = _held_work(order)
    return function(shared, pickle.loads(item))


def _held_work(order: Order) -> tuple[Callable[[Any, Any], Any], Any]:
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


def _require_alike(order: Order) -> None:
    """This worker makes the bytes that the driver would make, and writes them where it reads.

    Raises:
        UsageError: another version is installed here, or a folder of the driver is not here.
    """
    declared.require_alike(order.versions, _node())
    executors.begin_worker()
    absent = [str(Path(mark).parent) for mark in order.marks if not Path(mark).is_file()]
    is_here = Path(order.folder).is_dir()
    if order.marks and not is_here:
        absent.append(order.folder)
    if absent:
        raise UsageError(
            f"{_node()} does not see {absent[0]} of the driver.",
            "All machines of the cluster must share the folder that the command runs in, the "
            "cache (--cache-dir), the inputs and the output (-o); or a cache in a store.",
        )
    if is_here:
        os.chdir(order.folder)  # paths of inputs may be relative to it


def _node() -> str:
    return f"The machine {ray.util.get_node_ip_address()}"


# The driver: it connects to the cluster, and gives it tasks.


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
