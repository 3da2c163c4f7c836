"""``pipeline completion``: the Tab key completes files, models, formats, trainers and builds."""

from pathlib import Path

import click

from pipeline.options import help_page, shells
from pipeline.options import help_page as under
from stages.errors import UsageError

_SHELL = help_page.argument(
    "shell",
    required=False,
    metavar="[SHELL]",
    type=click.Choice(sorted(shells.shells())),
    help="bash, fish or zsh [the one in $SHELL].",
    heading=under.RUN,
)


@click.group(
    name="completion",
    cls=help_page.Group,
    help="Have the Tab key complete files, models, formats, trainers and builds.",
    heading=under.FIRST,
    examples=(
        ("pipeline completion install bash", "In bash, from the next shell on"),
        ("pipeline completion show zsh", "The script alone, to put it elsewhere"),
        ("pipeline completion remove bash", "Undo it"),
    ),
)
def COMMAND() -> None:
    """For bash, zsh and fish."""


def _named(shell: str | None) -> shells.Shell:
    name = shell or shells.own()
    if not name:
        known = ", ".join(sorted(shells.shells()))
        raise UsageError("$SHELL names no shell that is known.", f"Give one of {known}.")
    return shells.shells()[name]


def _listed(paths: list[Path], words: str) -> None:
    for path in paths:
        click.echo(f"{words} {path}")


@COMMAND.command(
    help="Install it for a shell; says which files it wrote, and how to undo it.",
    examples=(
        ("pipeline completion install", "For the shell that you use"),
        ("pipeline completion install zsh", "For zsh"),
        ("pipeline completion install fish", "For fish"),
    ),
)
@_SHELL
def install(shell: str | None) -> None:
    """A second time it writes nothing."""
    named = _named(shell)
    changed = shells.install(named)
    _listed(changed, "wrote")
    said = "Open a new shell to use it." if changed else "It was installed already."
    click.echo(f"{said} To undo it: pipeline completion remove {named.name}")


@COMMAND.command(
    help="Undo the installation.",
    examples=(
        ("pipeline completion remove", "For the shell that you use"),
        ("pipeline completion remove zsh", "For zsh"),
        ("pipeline completion remove fish", "For fish"),
    ),
)
@_SHELL
def remove(shell: str | None) -> None:
    """What else is in the shell's files stays."""
    changed = shells.remove(_named(shell))
    _listed(changed, "changed")
    if not changed:
        click.echo("It was not installed.")


@COMMAND.command(
    help="Print the script that the shell reads.",
    examples=(
        ("pipeline completion show bash", "For bash"),
        ("pipeline completion show zsh > _pipeline.zsh", "Into a file"),
        ("pipeline completion show fish | head", "The begin of it"),
    ),
)
@_SHELL
def show(shell: str | None) -> None:
    """Nothing is installed."""
    click.echo(_named(shell).script, nl=False)
