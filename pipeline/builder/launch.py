"""``launch/``: how to start a trainer on a build."""

from __future__ import annotations

import shlex
from pathlib import Path

from pipeline import exports
from pipeline.exports import Export
from pipeline.exports._script import render
from pipeline.manifest.manifest import Manifest


def write(folder: Path, export: Export | None, manifest: Manifest) -> None:
    """The trainer's scripts; nothing without a trainer.

    Raises:
        UsageError: it cannot train from this build.
    """
    if export is None:
        return
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


def start_command(folder: Path, trainer: str) -> str:
    """The shell command that starts the trainer."""
    return " ".join(words(folder, trainer))
