"""Records which releases of trainers the tests ran, for docs/compatibility.md.

A test that takes a release from its folder is a test of that release. With ``PARITY_RECORD`` set,
outcomes are merged into ``ran.json``, so that tests may be run file by file.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RAN = HERE / "ran.json"


@dataclass
class Record:
    """What one test has used so far."""

    test: str = ""
    peers: set[str] = field(default_factory=set)
    tasks: set[str] = field(default_factory=set)


now = Record()


def requirements(peer: str) -> str:
    """The sha256 of the file that pins a release and what it needs."""
    return hashlib.sha256((HERE / "peers" / f"{peer}.txt").read_bytes()).hexdigest()


def begin(test: str) -> None:
    """A test starts."""
    now.test, now.peers, now.tasks = test, set(), set()


def end(outcome: str) -> None:
    """It is over; its outcome is merged into the file."""
    if not os.environ.get("PARITY_RECORD"):
        return
    with alone():
        found: dict[str, Any] = json.loads(RAN.read_text("utf-8")) if RAN.exists() else {}
        for peer in now.peers:
            said = found.get(peer, {})
            if said.get("requirements") != requirements(peer):
                said = {"requirements": requirements(peer), "tasks": [], "tests": {}}
            said["tests"] = dict(sorted({**said["tests"], now.test: outcome}.items()))
            said["tasks"] = sorted({*said["tasks"], *now.tasks})
            found[peer] = said
        RAN.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", "utf-8")


@contextmanager
def alone() -> Iterator[None]:
    """Tests run in several processes, which write one file."""
    folder = os.open(HERE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
