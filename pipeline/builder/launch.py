"""``launch/``: how to start a trainer on a build."""

import importlib
import itertools
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

from pipeline import exports
from pipeline.builds.publish import is_place
from pipeline.exports._script import render
from pipeline.lines import command
from pipeline.manifest.manifest import Manifest
from stages.errors import PipelineError, UsageError


def write(folder: Path, export: exports.Export, manifest: Manifest) -> None:
    """The trainer's scripts.

    Raises:
        UsageError: it cannot train from this build.
    """
    facts = exports.facts_of(manifest)
    export.require(facts)
    target = folder / "launch"
    target.mkdir(exist_ok=True)
    files = {f"{export.name}.sh": export.launch(facts), **export.files(facts)}
    for name, text in files.items():
        path = target / name
        path.write_text(text, "utf-8")
        if name.endswith(".sh"):
            path.chmod(0o755)


def forward(folder: Path, name: str) -> None:
    """Write a script that starts the launch script of the export in the build's folder ``name``."""
    (folder / "launch").mkdir(exist_ok=True)
    path = folder / "launch" / f"{name}.sh"
    path.write_text(render("forward.sh", name=name), "utf-8")
    path.chmod(0o755)


def words(folder: Path, trainer: str) -> list[str]:
    """The words of the shell command that starts the trainer."""
    return ["sh", shlex.quote(str(folder / "launch" / f"{trainer}.sh")), "MODEL_DIR"]


# ``pipeline-openrlhf sft|rm|dpo|prm ...``: OpenRLHF's own training programs on our shards.
#
# The programs import their dataset class from ``openrlhf.datasets``. We put ours in its place
# before a program is imported; everything else, options included, is theirs.


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
    return tuple(map(int, itertools.takewhile(str.isdigit, text.split(".")[:3])))


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


# The commands that go on from a build: load it, look at it, train on it; ready to be pasted.


# Who is named where several could train from a build; the others come in their own order.
_FIRST = ("trl", "openrlhf", "axolotl", "llamafactory")
_INDENT = 10  # behind a label


def lines(folder: Path, manifest: Manifest, columns: int) -> list[str]:
    """The commands with their labels, broken where a shell lets them be."""
    found = []
    for label, words in _commands(folder, manifest):
        first, *more = command(words, columns, " " * _INDENT)
        found += [f"{label:<{_INDENT}}{first[_INDENT:]}", *more]
    return found


def _commands(folder: Path, manifest: Manifest) -> list[tuple[str, list[str]]]:
    """What each is for, and its words, between which it may be broken."""
    where = shlex.quote(str(folder))
    found = [("load", _load(folder)), ("look", ["pipeline", "show", where])]
    if manifest.for_:
        return [*found, ("train", words(folder, manifest.for_))]
    trainer = _trainer(manifest)
    if trainer is None:
        return found
    other = _beside(folder, trainer)
    export = ["pipeline", "export", trainer, where, "-o", shlex.quote(str(other))]
    return [*found, ("train", export), ("", words(other, trainer))]


def _beside(folder: Path, trainer: str) -> Path:
    """Where an export of a build may go: beside it, or beside the folder of its versions."""
    if is_place(folder.resolve()):
        folder = folder.parent
    if folder.name in ("", ".."):
        folder = folder.resolve()
    return folder.with_name(f"{folder.name}-{trainer}")


def _load(folder: Path) -> list[str]:
    code = ["import datasets;", f"print(datasets.load_from_disk({str(folder)!r}))"]
    if set(str(folder)) & set("'\"$`\\!"):
        return ["python", "-c", shlex.quote(" ".join(code))]
    # In double quotes a shell joins lines that end in a backslash.
    return ["python", "-c", f'"{code[0]}', f'{code[1]}"']


def _trainer(manifest: Manifest) -> str | None:
    """One that trains from this build as it is."""
    able = [name for name, record in manifest.trainers.items() if record.supported]
    return next((name for name in (*_FIRST, *able) if name in able), None)
