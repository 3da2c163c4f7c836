"""All mistakes of a recipe at once, each with the line at which it stands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stages.errors import UsageError
from stages.files.toml_file import Place


@dataclass(slots=True)
class Mistakes:
    """What is wrong with a recipe.

    Attributes:
        where: what a message calls the recipe.
        lines: of its keys, where it is a file.
        said: what stands elsewhere, and where: ``--set``.
        places: where mistakes are.
    """

    where: str
    lines: dict[Place, int] = field(default_factory=dict)
    said: dict[Place, str] = field(default_factory=dict)
    places: set[Place] = field(default_factory=set)
    _found: list[tuple[int, str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, what: str, remedy: str = "") -> None:
        """One mistake at a key; a sentence on what is wrong, and one on what to do."""
        self.places.add(place)
        line = self._line(place)
        there = self._elsewhere(place) or (f"{self.where}:{line}" if line else self.where)
        sentence = what if what.endswith((".", "?")) else f"{what}."
        where = "" if sentence.startswith(f"{there} ") else f"{there}: "
        entry = (line, f"{where}{_table(place)}{sentence}", remedy)
        if entry not in self._found:
            self._found.append(entry)

    def rename(self, old: Place, new: Place) -> None:
        """What stands at one place is called another from here on."""
        found = [(place, line) for place, line in self.lines.items() if place[: len(old)] == old]
        self.lines.update({(*new, *place[len(old) :]): line for place, line in found})

    def _line(self, place: Place) -> int:
        """The line of a key, or of the nearest table around it; 0 where that is the file."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 0)

    def _elsewhere(self, place: Place) -> str:
        around = (place[:length] for length in range(len(place), 0, -1))
        return next((self.said[one] for one in around if one in self.said), "")

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


def _table(place: Sequence[str | int]) -> str:
    """Which of several tables a key is in."""
    if len(place) > 1 and place[0] in ("source", "build") and isinstance(place[1], int):
        return f"{place[0]} {place[1] + 1}: "
    return ""


def nearest(name: str, known: Iterable[str]) -> str:
    """A question after the nearest name, where one is near."""
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"Did you mean {near[0]}?" if near else ""
