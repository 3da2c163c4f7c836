"""Figures out of the files of results: medians, spreads, costs of a row, ratios."""

import itertools
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.programs import OURS
from benchmarks.results import Content

_COMPARE = re.compile(r"compare-(\w+)-(\w+)-(\d+)\.json")


@dataclass(frozen=True, slots=True)
class Spread:
    """Several runs of one thing, in seconds or microseconds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    def __format__(self, form: str) -> str:
        """The median in a form such as ``.2f``, with the least and the most in brackets."""
        form = form or ".1f"
        if len(self.values) == 1:
            return format(self.median, form)
        least, most = min(self.values), max(self.values)
        return f"{self.median:{form}} ({least:{form}} to {most:{form}})"

    def __str__(self) -> str:
        return format(self)

    def __truediv__(self, other: "Spread | float") -> "Spread":
        """Each run divided by a number, or by each run of another thing."""
        divisors = other.values if isinstance(other, Spread) else (other,)
        return Spread(tuple(one / by for one, by in itertools.product(self.values, divisors)))


class Figures:
    """Everything that was measured, as the page asks for it."""

    def __init__(self, folder: Path = results.FOLDER) -> None:
        self._folder = folder

    def measured(self, name: str) -> Content:
        """A cell's figures; empty where it was not measured."""
        found = results.read(name, self._folder)
        made: Content = found["measured"] if found else {}
        return made

    def settings(self, name: str) -> Content:
        """A cell's settings; empty where it was not measured."""
        found = results.read(name, self._folder)
        made: Content = found["settings"] if found else {}
        return made

    def surroundings(self) -> list[Content]:
        """The different machines and versions among all cells, the most frequent first."""
        found: list[Content] = []
        for path in sorted(self._folder.glob("*.json")):
            cell = results.read(path.stem, self._folder) or {}
            found.append({**cell["surroundings"], "day": cell["day"]})
        kinds = {str({**one, "day": ""}): one for one in found}
        return list(kinds.values())

    def runs(self, cell: str, *keys: str, what: str, unit: float = 1.0) -> Spread | None:
        """What a list of runs in a cell says of one thing; None where it was not measured.

        Args:
            keys: from the cell to the list; ``what``: of each run; ``unit``: what it is divided by.
        """
        found: Any = self.measured(cell)
        for key in keys:
            found = found.get(key, {})
        return Spread(tuple(run[what] / unit for run in found)) if found else None

    def sizes(self, task: str, text: str) -> list[int]:
        """Numbers of rows for which programs were compared, from small to large."""
        names = (_COMPARE.fullmatch(path.name) for path in self._folder.glob("compare-*.json"))
        return sorted(int(m[3]) for m in names if m and m[1] == task and m[2] == text)

    def spread(
        self,
        program: str,
        task: str,
        text: str,
        count: int,
        *,
        what: str = "cpu",
        state: str = "cold",
    ) -> Spread | None:
        """The runs of one program; None where there are none."""
        return self.runs(f"compare-{task}-{text}-{count}", program, state, what=what)

    def ran(self, program: str, task: str, text: str) -> list[int]:
        """Numbers of rows that a program was measured with."""
        counts = self.sizes(task, text)
        return [count for count in counts if self.spread(program, task, text, count)]

    def costs(self, program: str, task: str = "sft", text: str = "english") -> Spread | None:
        """Microseconds of processor time that one more row costs, between the two largest sizes:
        a figure for each run of the one with each run of the other."""
        counts = self.ran(program, task, text)[-2:]
        if len(counts) < 2:
            return None
        small, large = (self.spread(program, task, text, count) for count in counts)
        assert small is not None
        assert large is not None
        rows = counts[1] - counts[0]
        pairs = itertools.product(small.values, large.values)
        return Spread(tuple((after - before) / rows * 1e6 for before, after in pairs))

    def each(self, program: str, task: str = "sft", text: str = "english") -> float | None:
        """The median of ``costs``."""
        found = self.costs(program, task, text)
        return found.median if found else None

    def between(self, program: str, task: str = "sft", text: str = "english") -> tuple[int, int]:
        """The two sizes that ``each`` compares."""
        small, large = self.ran(program, task, text)[-2:]
        return small, large

    def ratio(
        self, program: str, task: str, text: str, count: int, what: str = "cpu"
    ) -> Spread | None:
        """How many times our processor time a program needs for the same rows, start included."""
        ours, theirs = (self.spread(p, task, text, count, what=what) for p in (OURS, program))
        return over(theirs, ours)

    def encoders(self, text: str = "english", which: str = "fastokens") -> Spread | None:
        """Microseconds a row of an encoder alone on the rendered text, run by run."""
        return self.runs(f"encoder-{text}", "runs", what=which)

    def largest_common(self, program: str) -> int | None:
        """The largest number of rows that a program and ours were both measured with."""
        theirs = self.ran(program, "sft", "english")
        both = [count for count in theirs if self.spread(OURS, "sft", "english", count)]
        return max(both, default=None)


def shown(value: Any, form: str = ".1f", unit: str = "") -> str:
    """A figure, or that there is none."""
    return "not measured" if value is None else f"{value:{form}}{unit}"


def over(one: Spread | None, other: Spread | None) -> Spread | None:
    """Quotients of their runs, where both were measured."""
    return one / other if one and other else None
