"""A measurement with a name: it is made whole, and made again only where something has changed."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import results
from benchmarks.results import Content
from benchmarks.workplace import Workplace


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement.

    Attributes:
        settings: what it depends on beside code and machine.
        make: measures; returns what the file holds.
    """

    name: str
    settings: Content
    make: Callable[[Workplace], Content]

    def measure(self, place: Workplace) -> None:
        """Measure, unless that has been done with this code and these settings."""
        content = results.current(self.name, self.settings)
        if not content["measured"]:
            content["measured"] = self.make(place)
            results.write(self.name, content)
