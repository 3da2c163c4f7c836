"""Runs one command and says what it cost, with everything that it started.

    python benchmarks/timed.py [--core 0] [--memory] OUT.json -- COMMAND...

Standard library alone, in a process of its own, so that nothing else is counted. Processes that
the command leaves behind become children of this one (Linux: PR_SET_CHILD_SUBREAPER) and are
waited for, so their time counts as well.
"""

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_PATIENCE = 20.0  # seconds for processes that outlive the command
_EVERY = 0.05  # seconds between two looks at the memory


def _children(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                listed = Path(f"/proc/{one}/task/{task}/children").read_text()
                waiting += map(int, listed.split())
        except OSError:
            continue  # it has ended
        if one != pid:
            found.append(one)
    return found


def _proportional(pid: int) -> tuple[int, int]:
    """Bytes of a process in memory, and those of them that are no pages of files.

    A page that n processes share counts as 1 / n of a page.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
    return sizes.get("Pss:", 0), sizes.get("Pss_Anon:", 0)


class _Memory(threading.Thread):
    """The most memory that all descendants together have had."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = self.own = 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(_EVERY):
            sizes = [*map(_proportional, _children(os.getpid()))]
            self.peak = max(self.peak, sum(size for size, _ in sizes))
            self.own = max(self.own, sum(own for _, own in sizes))


def _wait_for_the_rest() -> int:
    """Reap what the command has left behind; returns how many processes had to be killed."""
    until, killed = time.monotonic() + _PATIENCE, 0
    while True:
        try:
            reaped, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if reaped:
            continue
        if time.monotonic() > until:
            for pid in _children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
                killed += 1
            until += _PATIENCE
        time.sleep(0.01)


def main() -> None:
    """Run the command and write what it cost."""
    parser = argparse.ArgumentParser(description="Run a command and say what it cost.")
    parser.add_argument("--core", type=int, help="the only core that it may use")
    parser.add_argument("--memory", action="store_true", help="watch its memory as well")
    parser.add_argument("out", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    command = given.command[given.command[:1] == ["--"] :]
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    memory = _Memory()
    if given.memory:
        memory.start()
    started = time.perf_counter()
    status = subprocess.run(command, check=False).returncode
    wall = time.perf_counter() - started
    killed = _wait_for_the_rest()
    memory.stop.set()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    content = {
        "status": status,
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "largest_process": used.ru_maxrss * 1024,
        "tree": memory.peak,
        "own": memory.own,
        "left_behind": killed,
    }
    given.out.write_text(json.dumps(content))


if __name__ == "__main__":
    main()
