"""An error as people read it: what is wrong, what to do, and the commands to choose from."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline import lines

HELP = "Try:   "  # begins the remedy of an error in the arguments


def page(
    message: str,
    remedy: str = "",
    commands: Sequence[str] = (),
    where: str = "",
    piped: bool = False,
) -> list[str]:
    """The lines of an error.

    Args:
        commands: the user's own command, corrected; more than one where there is a choice.
        where: what the error is about, where there are several.
        piped: the commands read standard input.
    """
    columns = lines.width(sys.stderr)
    found = _lines(f"{where}: {message}" if where else message, "Error: ", columns)
    if remedy.startswith(HELP):
        found += lines.wrapped(remedy.removeprefix(HELP), columns, HELP)
    elif remedy:
        found += _lines(remedy, "Fix:   ", columns)
    for number, command in enumerate(commands):
        again = ", with the same rows piped in" if piped else ""
        found.append(f"{'Or' if number else 'Run'}{again}:")
        found += lines.command(lines.words(command), columns, "  ")
    return found


def _lines(text: str, start: str, columns: int) -> list[str]:
    """A sentence; where more follows, a list say, it stays as it is indented."""
    first, *more = text.split("\n")
    found = lines.wrapped(first, columns, start)
    for line in more:
        indent = line[: len(line) - len(line.lstrip())]
        found += lines.wrapped(line.lstrip(), columns, indent, f"{indent}  ")
    return found
