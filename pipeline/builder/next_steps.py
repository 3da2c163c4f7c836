"""The commands that go on from a build: load it, look at it, train on it; ready to be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path

from pipeline.builder import launch
from pipeline.builds import versions
from pipeline.lines import command
from pipeline.manifest.manifest import Manifest

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
        return [*found, ("train", launch.words(folder, manifest.for_))]
    trainer = _trainer(manifest)
    if trainer is None:
        return found
    other = _beside(folder, trainer)
    export = ["pipeline", "export", trainer, where, "-o", shlex.quote(str(other))]
    return [*found, ("train", export), ("", launch.words(other, trainer))]


def _beside(folder: Path, trainer: str) -> Path:
    """Where an export of a build may go: beside it, or beside the folder of its versions."""
    if versions.is_place(folder.resolve()):
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
