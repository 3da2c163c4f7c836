"""A recipe's file as a table: its TOML, with ``--set``, the environment and paths put in."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import secrets
from pipeline.options import build_options, values
from stages.errors import UsageError
from stages.files import toml_file
from stages.files.toml_file import Place

_VARIABLE = re.compile(r"\$(?:(\$)|\{([^{}]*)\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TABLES = ("source", "build")  # arrays of tables, each with keys of options


def read(path: Path, changes: Sequence[str] = ()) -> tuple[dict[str, Any], Mistakes]:
    """A recipe's table, and what is wrong with it so far.

    Keys are spelled with ``-``, variables are replaced, and paths count from where the program
    runs. No value has been looked at otherwise.

    Args:
        changes: ``KEY=VALUE`` of ``--set``, keys with dots.

    Raises:
        UsageError: the file is not TOML.
    """
    try:
        text = toml_file.text_of(path)
        table = toml_file.parsed(text)
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Correct that line.") from error
    lines = {_dashed(place): line for place, line in toml_file.lines_of(text).items()}
    mistakes = Mistakes(str(path), lines)
    table = spelled(table, mistakes)
    for change in changes:
        _set(table, change, mistakes)
    table = _replaced(table, (), mistakes)
    folder = os.path.dirname(path)
    for place, inner in tables(table):
        _anchor(inner, place, folder=folder, mistakes=mistakes)
    return table, mistakes


def tables(table: Mapping[str, Any]) -> list[tuple[Place, dict[str, Any]]]:
    """The tables of a recipe that have options as keys, each with its place."""
    found: list[tuple[Place, Any]] = [((), table)]
    for name in _TABLES:
        inner = table.get(name)
        for number, one in enumerate(inner if isinstance(inner, list) else ()):
            found.append(((name, number), one))
    return [(place, one) for place, one in found if isinstance(one, dict)]


def spelled(table: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """A copy whose options are spelled with ``-``, in its inner tables too."""
    made = dict(table)
    for name in _TABLES:
        if isinstance(made.get(name), list):
            made[name] = [dict(one) if isinstance(one, dict) else one for one in made[name]]
    for place, one in tables(made):
        for key in [key for key in one if "_" in key]:
            right = key.replace("_", "-")
            if right in one:
                mistakes.add((*place, right), f"{right} is given twice", f"Leave {key} out.")
            elif right in build_options.BY_KEY:
                one[right] = one.pop(key)
    return made


def _set(table: dict[str, Any], given: str, mistakes: Mistakes) -> None:
    """Put the value of one ``--set`` into a recipe's table.

    Raises:
        UsageError: it is not KEY=VALUE, or names a table that is not there.
    """
    path, sign, text = given.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not sign or not all(keys):
        raise UsageError(f"--set {given!r} is not KEY=VALUE.", "For example --set max-length=2048.")
    place: Place = ()
    inner: Any = table
    if keys[0] in _TABLES:
        place = _place_of(table, keys, given)
        inner, keys = table[str(place[0])][place[1]], keys[2:]
    key = keys[0].replace("_", "-")
    place = (*place, key)
    if len(keys) > 1:  # an entry of a table; the rest of the name may have dots
        entries = inner.get(key)
        if entries is None:
            mistakes.said[place] = f"--set {given}"
        if isinstance(entries, values.Words) and key in build_options.BY_KEY:
            entries = build_options.BY_KEY[key].value.loosened(entries)
        inner[key] = dict(entries) if isinstance(entries, dict) else {}
        inner, key = inner[key], ".".join(keys[1:])
        place = (*place, key)
    mistakes.said[place] = f"--set {given}"
    inner[key] = values.Words(text)


def _place_of(table: Mapping[str, Any], keys: Sequence[str], change: str) -> tuple[str, int]:
    """The table that ``source.NAME.KEY`` or ``source.NUMBER.KEY`` means, numbers from 1."""
    found = table.get(keys[0])
    there = found if isinstance(found, list) else []
    names = [one.get("name") if isinstance(one, dict) else None for one in there]
    wanted = keys[1] if len(keys) > 2 else ""
    if wanted in names:
        return keys[0], names.index(wanted)
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= len(there):
        return keys[0], int(wanted) - 1
    known = [str(name or number) for number, name in enumerate(names, start=1)]
    raise UsageError(
        f"--set {change}: there is no [[{keys[0]}]] {wanted!r}.",
        f"Write {keys[0]}.NAME.KEY=VALUE; there are: {', '.join(known) or 'none'}.",
    )


def _replaced(value: Any, place: Place, mistakes: Mistakes) -> Any:
    """A value with the environment's variables in its texts."""
    if isinstance(value, dict):
        return {key: _replaced(one, (*place, key), mistakes) for key, one in value.items()}
    if isinstance(value, list):
        return [_replaced(one, (*place, at), mistakes) for at, one in enumerate(value)]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        name = match[2]
        if not _NAME.fullmatch(name):
            mistakes.add(
                place, f"${{{name}}} names no variable", "Write ${NAME}, or $$ for a dollar sign."
            )
        elif name not in os.environ:
            mistakes.add(
                place,
                f"{_dotted(place)} needs the environment variable {name}, which is not set",
                f"For example: export {name}=...",
            )
        found = os.environ.get(name, "")
        if "output" not in place:  # where a build is may be known
            secrets.note(found, match[0])
        return found

    made = _VARIABLE.sub(variable, value)
    secrets.note_address(made)
    typed = isinstance(value, values.Words) or _VARIABLE.fullmatch(value)
    return values.Words(made) if typed else made


def _dotted(place: Place) -> str:
    """The key of a place, without the table and the items that a message names otherwise."""
    own = place[2:] if place[0] in _TABLES else place
    return ".".join(key for key in own if isinstance(key, str))


def _anchor(table: dict[str, Any], place: Place, *, folder: str, mistakes: Mistakes) -> None:
    """Make the paths of a table count from where the program runs."""
    for key, value in table.items():
        if key not in build_options.BY_KEY:
            continue
        kind = build_options.BY_KEY[key].value
        table[key] = kind.anchored(value, folder)
        if key == "data":
            written = kind.loosened(value)
            _require_found(written, table[key], (*place, key), folder=folder, mistakes=mistakes)


def _require_found(said: Any, here: Any, place: Place, *, folder: str, mistakes: Mistakes) -> None:
    """Say what to write where a path was meant to count from where the program runs."""
    for one, path in zip(said, here, strict=True) if isinstance(said, list) else ():
        if isinstance(one, str) and os.path.lexists(one) and not os.path.lexists(path):
            better = os.path.relpath(one, folder or ".")
            mistakes.add(
                place,
                f"there is no {path}: paths in a recipe count from the recipe's folder",
                f"Write {better!r} for {one!r}.",
            )


# All mistakes of a recipe at once, each with the line at which it stands.


@dataclass(slots=True)
class Mistakes:
    """What is wrong with a recipe.

    Attributes:
        where: what a message calls the recipe.
        lines: of its keys, spelled with ``-``, where it is a file.
        said: what stands elsewhere, and where: ``--set``.
        places: where mistakes are.
    """

    where: str
    lines: dict[Place, int] = field(default_factory=dict)
    said: dict[Place, str] = field(default_factory=dict)
    places: set[Place] = field(default_factory=set)
    _found: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, place: Place, what: str, remedy: str = "") -> None:
        """One mistake at a key; a sentence on what is wrong, and one on what to do."""
        self.places.add(place)
        around = [place[:length] for length in range(len(place), 0, -1)]
        line = next((self.lines[one] for one in map(_dashed, around) if one in self.lines), 0)
        at_line = f"{self.where}:{line}" if line else self.where
        there = next((self.said[one] for one in around if one in self.said), at_line)
        sentence = what if what.endswith((".", "?")) else f"{what}."
        where = "" if sentence.startswith(f"{there} ") else f"{there}: "
        entry = (line, f"{where}{_table(place)}{sentence}", remedy)
        if entry not in self._found:
            self._found.append(entry)

    def require_none(self) -> None:
        """Stop where there is a mistake.

        Raises:
            UsageError: there is one, or more; it names all of them.
        """
        if not self._found:
            return
        found = sorted(self._found, key=lambda one: one[0])
        if len(found) == 1:
            raise UsageError(found[0][1], found[0][2])
        lines = "\n".join(f"  {what} {remedy}".rstrip() for _, what, remedy in found)
        raise UsageError(
            f"{self.where} has {len(found)} mistakes:\n{lines}", "Correct them and run it again."
        )


def _dashed(place: Place) -> Place:
    """A place whose keys are spelled with ``-``."""
    return tuple(key.replace("_", "-") if isinstance(key, str) else key for key in place)


def _table(place: Sequence[str | int]) -> str:
    """Which of several tables a key is in."""
    if len(place) > 1 and place[0] in _TABLES and isinstance(place[1], int):
        return f"{place[0]} {place[1] + 1}: "
    return ""
