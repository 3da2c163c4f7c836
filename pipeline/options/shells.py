"""Shells that can complete ``pipeline``: the script of each, and where it is put.

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
    ZshComplete,
    add_completion_class,
)

NAME = "pipeline"
VARIABLE = "_PIPELINE_COMPLETE"  # of the environment: what the program is asked

_BASH = """\
_pipeline_completion() {
    local IFS=$'\\n' word
    COMPREPLY=()
    while read -r word; do
        COMPREPLY+=("$word")
        [[ $word == */ ]] && compopt -o nospace 2>/dev/null
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
        _PIPELINE_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -F _pipeline_completion pipeline posttrain-pipeline
"""
_ZSH = """\
_pipeline_completion() {
    local -a found folders
    local word
    for word in "${(@f)$(COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \\
        _PIPELINE_COMPLETE=zsh_complete ${words[1]} 2>/dev/null)}"; do
        case $word in
            "") ;;
            */) folders+=("$word") ;;
            *) found+=("$word") ;;
        esac
    done
    (( $#found )) && compadd -U -Q -- $found
    (( $#folders )) && compadd -U -Q -S '' -- $folders
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
compdef _pipeline_completion pipeline posttrain-pipeline
"""
_FISH = """\
function _pipeline_completion
    set -lx _PIPELINE_COMPLETE fish_complete
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -t)
    set -l words (commandline -opc)
    command $words[1] 2>/dev/null
end
complete --no-files --command pipeline --arguments "(_pipeline_completion)"
complete --no-files --command posttrain-pipeline --arguments "(_pipeline_completion)"
"""


def _word(_: Any, item: CompletionItem) -> str:
    return str(item.value)


class _Bash(BashComplete):
    """One word a line."""

    source_template = _BASH
    format_completion = _word

    @staticmethod
    def _check_version() -> None:
        """The script needs no more than bash 4, and asks no other process for it."""


class _Zsh(ZshComplete):
    """One word a line."""

    source_template = _ZSH
    format_completion = _word


class _Fish(FishComplete):
    """One word a line."""

    source_template = _FISH
    format_completion = _word


def offered() -> None:
    """Have click use these scripts; needed only where a shell asks."""
    for kind in (_Bash, _Zsh, _Fish):
        add_completion_class(kind)


@dataclass(frozen=True)
class Shell:
    """A shell.

    Attributes:
        script: what it reads; ``file``: where that is put.
        start: the file that the shell reads when it starts, which then reads ``file``; None where
            the shell finds ``file`` by itself.
    """

    name: str
    script: str
    file: Path
    start: Path | None

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
        "bash": Shell("bash", _BASH, data / "completion.bash", Path.home() / ".bashrc"),
        "zsh": Shell("zsh", _ZSH, data / "completion.zsh", zsh),
        "fish": Shell("fish", _FISH, fish, None),
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
