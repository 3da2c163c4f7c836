"""The worker pool: a dead worker costs a retry, a task that kills three is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_tasks import die, die_once, square

from pipeline import processes
from pipeline.processes import pmap
from pipeline.shards.gather import ShardWork
from pipeline.shards.part import Work
from stages.contract import Split
from stages.errors import DataError, SurroundingsError


def _refuse(shared: None, item: int) -> int:
    if item == 1:
        raise DataError("row 7 is bad.", "Correct it.")
    return item


def _leaves_it_to_the_parent(shared: None, item: int) -> bool:
    return {signal.SIGINT, signal.SIGTERM} <= signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_every_worker_leaves_interruptions_to_its_parent() -> None:
    """Also the first one of a process, with which multiprocessing starts a helper of its own."""
    code = "from pipeline.processes import pmap; import test_executors as here; "
    code += "print(*dict(pmap(here._leaves_it_to_the_parent, None, range(4), 2)).values())"
    tests = Path(__file__).parent
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tests, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["True"] * 4


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_item_is_done_once(workers: int) -> None:
    """Results come with their index, whatever the number of workers."""
    assert dict(pmap(square, 1, range(7), workers)) == {i: 1 + i * i for i in range(7)}


def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    """Each task whose worker was killed is tried again."""
    assert dict(pmap(die_once, str(tmp_path), range(3), 2)) == {0: 0, 1: 1, 2: 2}


def test_a_task_that_kills_its_workers_is_named() -> None:
    """Three deaths, then an error that says which item, and no hang."""
    with pytest.raises(SurroundingsError, match="2 killed its worker 3 times"):
        dict(pmap(die, None, range(4), 2))


def _die_at_once(shared: None, item: object) -> object:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


@pytest.mark.slow
def test_a_killed_part_or_shard_is_named_in_words() -> None:
    """The message names file and lines, or the shard; never the arrays that it would hold."""
    split = Split("in/data.jsonl", 0, 10, "0" * 64, "jsonl", lines=4)
    works = [Work(split, "openai", "parts", "ab"), Work(split, "openai", "parts", "cd", 4)]
    assert works[1].place(0) == "data.jsonl:5"
    with pytest.raises(SurroundingsError, match=r"data.jsonl, lines (1 to 4|5 to 8), killed its"):
        dict(pmap(_die_at_once, None, works, 2))
    ids = np.arange(1000)
    shard = ShardWork("train/data-00000-of-00001.arrow", "train", ids, ids)
    with pytest.raises(SurroundingsError, match=r"^Shard train/data-00000-of-00001.arrow killed"):
        dict(pmap(_die_at_once, None, [shard, shard], 2))


def test_an_exception_arrives_as_it_was_raised() -> None:
    """Our errors keep their text and remedy on the way out of a worker."""
    with pytest.raises(DataError) as caught:
        dict(pmap(_refuse, None, range(3), 2))
    assert (caught.value.what, caught.value.remedy) == ("row 7 is bad.", "Correct it.")


class _Fatal:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (7,)


def test_a_worker_that_dies_at_its_start_is_no_riddle() -> None:
    """Whoever starts it does not wait for a reader that is gone, however much there is to read."""
    shared = (b"x" * (1 << 22), _Fatal(), b"y" * (1 << 22))
    with pytest.raises(SurroundingsError, match="killed its worker 3 times"):
        dict(processes.pooled(_first, shared, range(4), 2))


def _first(shared: Any, item: int) -> int:
    return item
