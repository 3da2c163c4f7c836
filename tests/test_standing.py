"""Once a build is published, nothing that goes wrong changes its status: it is a warning."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from preloaded import Server, outputs
from support import SAMPLES, Ran

DATA = str(SAMPLES / "sft" / "word_problems.jsonl")
SFT = ("run", "sft", DATA, "--model", "qwen2-1.5b", "-o", "out", "--workers", "1")
FULL = 'OSError(28, "No space left on device")'
STEPS = 24  # calls that fail in the quick tests, spread over all

# Raises at one call of the system behind the publication; all such calls are in the file "calls".
_FAILING = """
import os, sys, threading
from pipeline.publish import standing
inside, calls, fsync, process = [], [], os.fsync, os.getpid()
EVENTS = ("open", "os.", "shutil.", "fcntl.", "subprocess.", "tempfile.")
def hook(event, details):
    if inside or os.getpid() != process or not event.startswith(EVENTS):
        return
    if threading.current_thread() is not threading.main_thread():
        return
    inside.append(event)
    try:
        if standing.now() is not None:
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
        self._variables = {
            **os.environ,
            "XDG_CACHE_HOME": str(cache_home),
            "HF_HUB_OFFLINE": "1",
        }

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
