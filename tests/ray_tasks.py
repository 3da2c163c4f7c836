"""What ``test_clusters.py`` runs with the Python that has Ray; it gives one object."""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from worker_tasks import die, square

from pipeline import ray as engine
from pipeline.executors import SIGNALS, Job
from pipeline.inputs import declared
from stages.errors import DataError, ParityError


class OnlyHereError(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(one)  # so that it cannot be unpickled


def _refuse(shared: Any, item: int) -> int:
    raise DataError("row 7 is bad.", "Correct it.", {"row": 7})


def _differ(shared: Any, item: int) -> int:
    raise ParityError("a.jsonl:1: input_ids")


def _fail_oddly(shared: Any, item: int) -> int:
    raise OnlyHereError("this", "that")


def _where(shared: Any, item: int) -> list[Any]:
    return [str(Path.cwd()), os.environ["TOKENIZERS_PARALLELISM"]]


def _error(function: Callable[[Any, Any], Any], items: Any, job: Job) -> list[Any]:
    try:
        dict(engine.pmap(function, None, items, 2, job))
    except Exception as error:
        return [type(error).__name__, getattr(error, "exit_code", None), str(error)]
    return []


def main(address: str, folder: Path) -> None:
    """All cases, one after the other, in one connection."""
    handlers = [signal.getsignal(kind) for kind in SIGNALS]
    lost: list[str] = []
    job = Job("encode", folders=(folder,), address=address, lost=lost.append)
    found: dict[str, Any] = {"squares": dict(engine.pmap(square, 1, range(20), 1, job))}
    found["where"] = dict(engine.pmap(_where, None, [0], 1, job))[0]
    found["bounded"] = dict(engine.pmap(square, 2, range(5), 1, Job("write", at_once=1)))
    for name, function in (("own", _refuse), ("parity", _differ), ("odd", _fail_oddly)):
        found[name] = _error(function, range(3), job)
    found["poison"] = _error(die, range(4), job)
    found["lost"] = lost
    others = {**declared.versions(), "pyarrow": "1.2.3"}
    here, declared.versions = declared.versions, lambda: others
    found["versions"] = _error(square, range(3), Job("encode"))
    declared.versions = here
    engine._marked = lambda folders: nullcontext(("/absent/seen",))
    found["folders"] = _error(square, range(3), job)
    found["left"] = [path.name for path in folder.iterdir()]
    found["handlers"] = handlers == [signal.getsignal(kind) for kind in SIGNALS]
    sys.stdout.write(json.dumps(found))
