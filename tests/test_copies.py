"""Workers that are copies of a process: they do what workers do that start from nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

_PROGRAM = """
import multiprocessing, os, signal, time
import test_copies as here
from pipeline import processes as local
from pipeline.copies import copies
from stages.errors import SurroundingsError
from worker_tasks import die, die_once, square

def pmap(function, shared, items, workers=2):
    return dict(local.pmap(function, shared, items, workers))

with copies(["pipeline.memory"], here._ahead):
    assert local.copied is not None
    assert len(multiprocessing.active_children()) == 1
    BODY
assert local.copied is None
assert multiprocessing.active_children() == []
print("done")
"""


def _parent(shared: None, item: int) -> tuple[int, int, bool]:
    blocked = {signal.SIGINT, signal.SIGTERM} <= signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return os.getppid(), os.getpid(), blocked


def _kill_the_copied(shared: str, item: int) -> int:
    mark = Path(shared) / "killed"
    if item == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getppid(), signal.SIGKILL)
    return item


LOADED: list[int] = []  # in the process that loaded something ahead, and in its copies


def _ahead() -> None:
    LOADED.append(os.getpid())
    raise ValueError("whoever needs it will see")


def _loaded(shared: None, item: int) -> tuple[int, list[int]]:
    return os.getppid(), LOADED


def _fail(shared: None, item: int) -> int:
    if item == 1:
        raise ValueError("not this one")
    return item


def _ran(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.replace("    BODY", indented)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "FOLDER": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


_LAWS = {
    "what is loaded ahead is there in all copies, and an error of it is nobody's": """
        for parent, loaded in pmap(here._loaded, None, range(4)).values():
            assert loaded == [parent] != [os.getpid()]
    """,
    "every item is done once, in the pools of every phase": """
        for n in (1, 2):
            assert pmap(square, n, range(7)) == {i: n + i * i for i in range(7)}
    """,
    "all are children of one process, and leave interruptions to this one": """
        seen = pmap(here._parent, None, range(8)).values()
        assert len({parent for parent, _, _ in seen} | {os.getpid()}) == 2
        assert all(blocked for _, _, blocked in seen)
    """,
    "a dead worker is replaced": """
        assert pmap(die_once, os.environ["FOLDER"], range(3)) == {0: 0, 1: 1, 2: 2}
    """,
    "an exception arrives, and the next phase has workers again": """
        try:
            pmap(here._fail, None, range(4))
        except ValueError as error:
            assert str(error) == "not this one"
        else:
            raise AssertionError
        assert pmap(square, 0, range(3)) == {0: 0, 1: 1, 2: 4}
    """,
    "an item that kills three workers is named": """
        try:
            pmap(die, None, range(4))
        except SurroundingsError as error:
            assert "2 killed its worker 3 times" in str(error)
        else:
            raise AssertionError
    """,
    "without the process that is copied, others do the rest": """
        done = pmap(here._kill_the_copied, os.environ["FOLDER"], range(5))
        assert done == {i: i for i in range(5)}
        assert local.copied is None
    """,
    "a phase that is left early leaves nothing behind": """
        for _ in local.pmap(square, 0, range(9), 2):
            break
        time.sleep(0)
    """,
}


@pytest.mark.parametrize("law", _LAWS)
def test_copies_are_workers(law: str, tmp_path: Path) -> None:
    """Retries, names of items that kill, exceptions and signals are those of any pool."""
    ran = _ran(_LAWS[law], tmp_path)
    assert ran.stdout == "done\n", ran.stderr


def test_all_end_with_the_process_that_asked(tmp_path: Path) -> None:
    """Also when it is killed: nobody is left to write into its folder."""
    body = """
        parents = {parent for parent, _, _ in pmap(here._parent, None, range(4)).values()}
        print(*parents, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ran = _ran(body, tmp_path)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    (copied,) = map(int, ran.stdout.split())
    deadline = time.monotonic() + 30
    while _runs(copied) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(copied)


def test_a_process_ends_whose_parent_ended_before_it_asked_to_end_with_it(tmp_path: Path) -> None:
    """A copy that lives on has the pipes of its parent, and whoever reads them waits for it."""
    program = f"""
        import multiprocessing, os, time
        from pathlib import Path
        from pipeline import processes as local

        def child(first):
            while os.getppid() == first:
                time.sleep(0.01)
            local.die_with_parent()
            Path({str(tmp_path / "lives")!r}).touch()

        multiprocessing.get_context("fork").Process(target=child, args=(os.getpid(),)).start()
        os._exit(0)
    """
    # The child holds this pipe as long as it lives.
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, check=True
    )
    assert not (tmp_path / "lives").exists()


def _runs(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
