"""Once a build is published, nothing that goes wrong changes its status: it is a warning."""

import json
import os
import shutil
from pathlib import Path

import pytest
from preloaded import Server, outputs
from support import SAMPLES, WIDE, Ran, few, in_shell

DATA = str(SAMPLES / "sft" / "word_problems.jsonl")
SFT = ("run", "sft", DATA, "--model", "qwen2-1.5b", "-o", "out", "--workers", "1")
FULL = 'OSError(28, "No space left on device")'

# Raises at one call of the system behind the publication; all such calls are in the file "calls".
_FAILING = """
import os, sys, threading
from pipeline.builds import failed
inside, calls, fsync, process = [], [], os.fsync, os.getpid()
EVENTS = ("open", "os.", "shutil.", "fcntl.", "subprocess.", "tempfile.")
def hook(event, details):
    if inside or os.getpid() != process or not event.startswith(EVENTS):
        return
    if threading.current_thread() is not threading.main_thread():
        return
    inside.append(event)
    try:
        if failed.now() is not None:
            calls.append(event)
            with open("calls", "a") as told:
                told.write(event + chr(10))
            if len(calls) == {at}:
                raise {error}
    finally:
        inside.clear()
def synced(handle):
    hook("os.fsync", handle)
    fsync(handle)
os.fsync = synced
sys.addaudithook(hook)
"""


class Failing:
    """Commands of which one call of the system fails, after what they made was published."""

    def __init__(self, commands: Server, cache_home: Path, folder: Path) -> None:
        self._commands, self._folder = commands, folder
        self._variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}

    def run(self, folder: Path, *words: str, at: int = 0, error: str = FULL) -> Ran:
        """A command of which the ``at``-th such call fails."""
        before = _FAILING.format(at=at, error=error)
        status = self._commands([*words], folder, self._variables, before)
        out, err = (path.read_text("utf-8") for path in outputs(folder))
        return Ran(status, out, err)

    def copied(self, name: str) -> Path:
        """A copy of the folder in which one build was made before."""
        before = self._folder / "before"
        if not before.exists():
            before.mkdir()
            assert self.run(before, *SFT).status == 0
        folder = self._folder / name
        # Without the calls of that build: those of the copy are counted from the first.
        shutil.copytree(before, folder, symlinks=True, ignore=shutil.ignore_patterns("calls"))
        return folder

    def every(self, command: tuple[str, ...], out: str, only: int, error: str = FULL) -> None:
        """``only`` of the calls fail, each in a run of its own: the build stands, and is told."""
        first = self.copied("first")
        assert self.run(first, *command).status == 0
        calls = (first / "calls").read_text().splitlines()
        assert "os.fsync" in calls
        for at in range(1, len(calls) + 1, max(1, len(calls) // only)):
            folder = self.copied(f"at-{at}")
            ran = self.run(folder, *command, at=at, error=error)
            where = f"{at}, {calls[at - 1]}: {ran.err}"
            assert ran.status == 0, where
            found = json.loads(ran.out)
            assert (found["status"], found["code"]) == ("built", 0), where
            told = [note for note in found["figures"]["notes"] if "published all the same" in note]
            assert all(note in ran.err for note in told), where
            assert told or calls[at - 1] not in ("os.fsync", "shutil.rmtree"), where
            assert self.run(folder, "check", out).status == 0, where


@pytest.fixture
def failing(commands: Server, cache_home: Path, tmp_path: Path) -> Failing:
    """In a folder of the test."""
    return Failing(commands, cache_home, tmp_path)


ALL = 1000 if WIDE else 5
VERSION = (*SFT[:-3], "kept", "--keep", "1")


@pytest.mark.parametrize(
    ("command", "out", "only"),
    few(
        [
            ((*SFT, "--layout", "ragged"), "out", 1),
            ((*SFT, "--layout", "ragged"), "out", ALL),
            (VERSION, "kept/current", 1),
            (VERSION, "kept/current", ALL),
        ],
        2,
    ),
)
def test_a_build_stands_whatever_fails_behind_it(
    failing: Failing, command: tuple[str, ...], out: str, only: int
) -> None:
    """Flushes, removals, files of the cache, and behind a link the history and versions that go:
    one call of the system fails, each in its turn."""
    failing.every((*command, "--json", "--quiet"), out, only)


@pytest.mark.slow
def test_a_build_stands_whatever_is_interrupted_behind_it(failing: Failing) -> None:
    """Status 130 is for what was not published."""
    command = (*SFT, "--layout", "ragged", "--json", "--quiet")
    failing.every(command, "out", 12 if WIDE else 3, "KeyboardInterrupt")


def _started(folder: Path, cache_home: Path, line: str) -> Ran:
    """A line of a shell in which ``pipeline`` is the command."""
    return in_shell(line, folder, XDG_CACHE_HOME=str(cache_home), HF_HUB_OFFLINE="1")


RUN = " ".join(SFT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    few(
        [
            (f"{RUN} >/dev/full", "out is published all the same: The disk is full"),
            (f"{RUN} 2>/dev/full", ""),
            (f"{RUN} >&- 2>&-", ""),
            (f"{RUN} 2>&1 | true", ""),
            (f"{RUN} --json | true", ""),
        ],
        1,
    ),
)
def test_a_build_does_not_depend_on_its_reader(
    line: str, said: str, tmp_path: Path, cache_home: Path
) -> None:
    """What cannot be said is no reason to build nothing, nor to say that nothing was built."""
    done = _started(tmp_path, cache_home, f"pipeline {line}")
    assert done.status == 0, done.err
    assert said in done.err
    assert (tmp_path / "out" / "manifest.json").is_file()


@pytest.mark.slow
def test_a_command_that_nobody_reads_ends_as_if_somebody_did(
    tmp_path: Path, cache_home: Path
) -> None:
    """And where a file was to keep what it says, and is full, that is the disk's fault. A refusal
    is one: the status of a pipe's first command is what a script goes by."""
    done = _started(
        tmp_path, cache_home, "pipeline run sft --help | true; pipeline list models >&-"
    )
    assert (done.status, done.err) == (0, "")
    done = _started(tmp_path, cache_home, "pipeline explain >/dev/full").ended(5)
    assert done.err.startswith("Error: The disk is full")
    _started(tmp_path, cache_home, "pipeline check . --json | true").ended(3)
