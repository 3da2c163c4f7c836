"""Shells that can complete ``pipeline``, and where the script of each is put: ``completion.bash``
and so on, beside this file.

The script asks the program at each press of the key. A word that ends in ``/`` is a folder in
which one goes on, so no space is put after it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

NAME = "pipeline"
VARIABLE = "_PIPELINE_COMPLETE"  # of the environment: what the program is asked

_KINDS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


def _script(name: str) -> str:
    return Path(__file__).with_name(f"completion.{name}").read_text("utf-8")


def _word(_: Any, item: CompletionItem) -> str:
    return str(item.value)


def _any_version() -> None:
    """The script needs no more than bash 4, and asks no other process for it."""


def offered() -> None:
    """Have click use our scripts, which read one word a line; needed only where a shell asks."""
    for name, kind in _KINDS.items():
        own = {"source_template": _script(name), "format_completion": _word}
        own |= {"_check_version": staticmethod(_any_version)}
        made: Any = type(kind.__name__, (kind,), own)
        add_completion_class(made)


@dataclass(frozen=True)
class Shell:
    """A shell.

    Attributes:
        file: where the script that it reads is put.
        start: the file that the shell reads when it starts, which then reads ``file``; None where
            the shell finds ``file`` by itself.
    """

    name: str
    file: Path
    start: Path | None

    @property
    def script(self) -> str:
        """What it reads."""
        return _script(self.name)

    @property
    def line(self) -> str:
        """What is added to ``start``."""
        return f'[ -r "{self.file}" ] && . "{self.file}"  # completion of {NAME}'


def _home(variable: str, default: str) -> Path:
    said = os.environ.get(variable, "")
    return Path(said) if said else Path.home() / default


def shells() -> dict[str, Shell]:
    """Every shell that is known, by its name."""
    data = _home("XDG_DATA_HOME", ".local/share") / "posttrain-pipeline"
    fish = _home("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / f"{NAME}.fish"
    zsh = _home("ZDOTDIR", ".") / ".zshrc"
    return {
        "bash": Shell("bash", data / "completion.bash", Path.home() / ".bashrc"),
        "zsh": Shell("zsh", data / "completion.zsh", zsh),
        "fish": Shell("fish", fish, None),
    }


def own() -> str:
    """The name of the user's shell; empty where it is not known, or not one of these."""
    name = Path(os.environ.get("SHELL", "")).name
    return name if name in shells() else ""


def install(shell: Shell) -> list[Path]:
    """Write the script, and the line that has the shell read it; the second time nothing.

    Returns:
        The files that were changed.

    Raises:
        OSError: one cannot be written.
    """
    changed = []
    if not shell.file.is_file() or shell.file.read_text("utf-8") != shell.script:
        shell.file.parent.mkdir(parents=True, exist_ok=True)
        shell.file.write_text(shell.script, "utf-8")
        changed.append(shell.file)
    if shell.start is not None:
        text = shell.start.read_text("utf-8") if shell.start.is_file() else ""
        if shell.line not in text.splitlines():
            between = "\n" if text and not text.endswith("\n") else ""
            with shell.start.open("a", encoding="utf-8") as file:
                file.write(f"{between}{shell.line}\n")
            changed.append(shell.start)
    return changed


def remove(shell: Shell) -> list[Path]:
    """Undo ``install``; what else the files say stays.

    Returns:
        The files that were changed or removed.

    Raises:
        OSError: one cannot be written.
    """
    changed = []
    if shell.file.is_file():
        shell.file.unlink()
        changed.append(shell.file)
    if shell.start is not None and shell.start.is_file():
        lines = shell.start.read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.rstrip("\n") != shell.line]
        if kept != lines:
            shell.start.write_text("".join(kept), "utf-8")
            changed.append(shell.start)
    return changed
