"""``pipeline-openrlhf sft|rm|dpo|prm ...``: OpenRLHF's own training programs on our shards.

The programs import their dataset class from ``openrlhf.datasets``. We put ours in its place before
a program is imported; everything else, options included, is theirs.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from typing import Any, NoReturn

from stages.errors import PipelineError, UsageError

TASKS = {
    "sft": ("openrlhf.cli.train_sft", "SFTDataset", "ShardSFT"),
    "rm": ("openrlhf.cli.train_rm", "RewardDataset", "ShardRM"),
    "dpo": ("openrlhf.cli.train_dpo", "RewardDataset", "ShardRM"),
    "prm": ("openrlhf.cli.train_prm", "ProcessRewardDataset", "ShardPRM"),
}
# The first release whose trainers take the batches of our classes.
FIRST = {"sft": (0, 7, 1), "rm": (0, 7, 1), "dpo": (0, 7, 1), "prm": (0, 7, 4)}
LAST = {"prm": (0, 9, 5)}
_USAGE = f"usage: pipeline-openrlhf {'|'.join(TASKS)} [options of OpenRLHF's own program]"


def _version() -> tuple[int, ...]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        text = version("openrlhf")
    except PackageNotFoundError as error:
        raise UsageError(
            "OpenRLHF is not installed here.", "Install it: pip install openrlhf"
        ) from error
    numbers = []
    for piece in text.split(".")[:3]:
        if not piece.isdigit():
            break
        numbers.append(int(piece))
    return tuple(numbers)


def check_version(task: str, version: tuple[int, ...]) -> None:
    """Refuse versions whose trainers take other batches.

    Raises:
        UsageError: this version does not train such a task, or not from such batches.
    """
    shown = ".".join(map(str, version))
    if version < FIRST[task]:
        first = ".".join(map(str, FIRST[task]))
        raise UsageError(
            f"OpenRLHF {shown} batches {task} in a different form from {first} and newer.",
            f"Install openrlhf {first} or newer.",
        )
    last = LAST.get(task)
    if last is not None and version > last:
        raise UsageError(
            f"OpenRLHF {shown} has no trainer for {task}.",
            f"Install openrlhf {'.'.join(map(str, last))}.",
        )


def split_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """The task, and the arguments for OpenRLHF. Deepspeed puts options of its own in front.

    Raises:
        UsageError: no task is named.
    """
    for place, word in enumerate(arguments):
        if word in TASKS:
            return word, arguments[:place] + arguments[place + 1 :]
        if not word.startswith("-"):
            break
    raise UsageError("No task is named.", _USAGE)


def exchange(task: str) -> str:
    """Replace their dataset class with ours; returns the name of the module that trains.

    Raises:
        UsageError: this version of OpenRLHF has no such class.
    """
    module, theirs, ours = TASKS[task]
    datasets: Any = importlib.import_module("openrlhf.datasets")
    if not hasattr(datasets, theirs):
        raise UsageError(f"This OpenRLHF has no {theirs}.", "Install openrlhf 0.9.5.")
    from pipeline.torch_data import openrlhf as classes

    setattr(datasets, theirs, getattr(classes, ours))
    return module


def main() -> NoReturn:
    """The console script."""
    arguments = sys.argv[1:]
    if arguments in ([], ["-h"], ["--help"]):
        sys.stdout.write(_USAGE + "\n")
        sys.exit(0 if arguments else 2)
    try:
        task, rest = split_arguments(arguments)
        check_version(task, _version())
        module = exchange(task)
        sys.argv = [f"pipeline-openrlhf {task}", *rest]
        runpy.run_module(module, run_name="__main__")
    except PipelineError as error:
        sys.stderr.write(f"Error: {error.what}\nFix:   {error.remedy}\n")
        sys.exit(error.exit_code)
    sys.exit(0)
