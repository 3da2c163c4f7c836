"""What a command costs: processor time with all that it started, wall time, memory."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TIMED = Path(__file__).with_name("timed.py")
# One thread each, nothing is asked of any network, and modules are compiled once, as in a shell.
QUIET = {
    "PYTHONDONTWRITEBYTECODE": "",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


class CommandError(Exception):
    """A measured command failed; the message is the end of what it said."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a command cost.

    Attributes:
        cpu: seconds of processor time, user and system, of the command and all its descendants.
        wall: seconds from its start to its end.
        largest_process: the most bytes that any one of its processes had in memory.
        tree: the most bytes that all of them had together, where memory was watched; else 0.
        own: the most of these that were no pages of files.
    """

    cpu: float
    wall: float
    largest_process: int
    tree: int
    own: int


def run(
    command: Sequence[str | Path],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    core: int | None = None,
    memory: bool = False,
) -> Cost:
    """Run a command in a folder and measure it.

    Args:
        environment: variables beside those of this process and ``QUIET``.
        core: the only core that it may use; None for all.

    Raises:
        CommandError: it failed, or left processes running.
    """
    with tempfile.TemporaryDirectory() as name:
        out, said = Path(name) / "cost.json", Path(name) / "said.txt"
        words = [sys.executable, str(_TIMED), *(["--memory"] if memory else [])]
        words += [] if core is None else ["--core", str(core)]
        variables = {**os.environ, **QUIET, **(environment or {})}
        with said.open("wb") as file:
            subprocess.run(
                [*words, str(out), "--", *map(str, command)],
                cwd=folder,
                env=variables,
                stdout=file,
                stderr=file,
                check=True,
            )
        cost = json.loads(out.read_text())
        if cost["status"] or cost["left_behind"]:
            what = f"exit {cost['status']}, {cost['left_behind']} processes left running"
            shown = " ".join(map(str, command))[:300]
            raise CommandError(f"{shown}\n{what}\n{said.read_text(errors='replace')[-3000:]}")
    names = ("cpu", "wall", "largest_process", "tree", "own")
    return Cost(**{name: cost[name] for name in names})
