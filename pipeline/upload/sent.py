"""What came of a publication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Report = Callable[[str, int, int], None]  # what is done, how many of it, of how many


@dataclass(frozen=True, slots=True)
class Sent:
    """What was done at a place.

    Attributes:
        names: files that were sent now; empty where all were there already.
        bytes: of these.
        removed: files of the build that was there before.
        revision: the hub's commit; empty elsewhere.
    """

    names: tuple[str, ...]
    bytes: int
    removed: tuple[str, ...]
    revision: str = ""
