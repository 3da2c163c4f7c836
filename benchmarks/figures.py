"""Figures out of the files of results: medians, spreads, costs of a row, ratios."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Sequence
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

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        if len(self.values) == 1:
            return f"{low:.1f}"
        return f"{self.median:.1f} ({low:.1f} to {high:.1f})"


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
        runs = self.measured(f"compare-{task}-{text}-{count}").get(program, {}).get(state, [])
        return spread_of(runs, what)

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
    ) -> float | None:
        """How many times our processor time a program needs for the same rows, start included."""
        ours, theirs = (self.spread(p, task, text, count, what=what) for p in (OURS, program))
        return theirs.median / ours.median if ours and theirs else None

    def whole(self, program: str, count: int) -> float | None:
        """Processor seconds for so many rows of SFT, start included; beyond the largest size that
        was measured, with what one more row costs."""
        known = self.ran(program, "sft", "english")
        nearest = max((size for size in known if size <= count), default=None)
        if nearest is None:
            return None
        spread, each = self.spread(program, "sft", "english", nearest), self.each(program)
        assert spread is not None
        if nearest == count:
            return spread.median
        return None if each is None else spread.median + each * (count - nearest) / 1e6

    def start(self, name: str) -> float | None:
        """Processor time in seconds of a command that does not grow with the rows."""
        return median_of(self.measured("starts").get(name, []), "cpu")

    def encoders(self, text: str = "english", which: str = "fastokens") -> Spread | None:
        """Microseconds a row of an encoder alone on the rendered text, run by run."""
        return spread_of(self.measured(f"encoder-{text}").get("runs", []), which)

    def encoder(self, text: str = "english", which: str = "fastokens") -> float | None:
        """The median of ``encoders``."""
        found = self.encoders(text, which)
        return found.median if found else None

    def largest_common(self, program: str) -> int | None:
        """The largest number of rows that a program and ours were both measured with."""
        theirs = self.ran(program, "sft", "english")
        both = [count for count in theirs if self.spread(OURS, "sft", "english", count)]
        return max(both, default=None)


def shown(value: Any, form: str = ".1f", unit: str = "") -> str:
    """A figure, or that there is none."""
    return "not measured" if value is None else f"{value:{form}}{unit}"


def over(one: float | None, other: float | None) -> float | None:
    """A quotient, where both are known."""
    return one / other if one is not None and other else None


def spread_of(runs: Sequence[Content], what: str) -> Spread | None:
    """All runs of a list; None where there are none."""
    return Spread(tuple(run[what] for run in runs)) if runs else None


def median_of(runs: Sequence[Content], what: str) -> float | None:
    """The middle of a list of runs."""
    return statistics.median(run[what] for run in runs) if runs else None


def least_of(runs: Sequence[Content], what: str) -> float | None:
    """The least of a list of runs."""
    return min((run[what] for run in runs), default=None)
