"""What a task of Ray does, in a worker: it compares the worker with the driver, and does the work.

Nothing of the work is unpickled before: another version could not, or could into something else.
"""

import hashlib
import importlib
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import executors
from pipeline.inputs import declared
from stages.errors import SurroundingsError, UsageError


def _ray() -> Any:
    return importlib.import_module("ray")


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
        content = _ray().get(order.work[0])
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
    return f"The machine {_ray().util.get_node_ip_address()}"
