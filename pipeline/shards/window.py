"""A window: some consecutive parts of a build, and their examples as far as a plan sees them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from pipeline.options.config import Config
from pipeline.shards.collect import PartSource
from pipeline.shards.examples import Numbers, PlannedExamples, read_numbers
from pipeline.shards.part import PartReport, Work
from stages.columns import Ints, offsets_of

# Constants, since shards are bytes we promise. A window ends before the part with which it would
# exceed one of them; of short rows, whose parts have many, it has fewer parts.
WINDOW_PARTS = 64
WINDOW_EXAMPLES = 1 << 19


@dataclass(frozen=True, slots=True)
class Member:
    """A part of a window.

    Attributes:
        numbers: those that plans need.
        source: where its examples are.
        sha256: of these.
    """

    numbers: Numbers
    source: PartSource
    sha256: str


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive parts. It can be pickled, and written as JSON.

    Attributes:
        first: number of its first example in the build; ``line``: of its first line, over all.
    """

    number: int
    first: int
    line: int
    members: tuple[Member, ...]

    @property
    def starts(self) -> Ints:
        """Where each part's examples begin in the window, and how many it has."""
        return offsets_of(np.array([one.numbers.examples for one in self.members], np.int64))

    @property
    def end(self) -> int:
        """Number of the example after its last."""
        return int(self.first + self.starts[-1])

    @property
    def sources(self) -> list[PartSource]:
        """Where its examples are."""
        return [one.source for one in self.members]

    @property
    def plans(self) -> list[Path]:
        """The files of numbers of its parts."""
        return [Path(one.numbers.path) for one in self.members]

    def examples(self, config: Config) -> PlannedExamples:
        """Its examples, in input order; rows count over the whole build."""
        return read_numbers([one.numbers for one in self.members], config, self.line)


def _bounds(examples: Sequence[int]) -> list[int]:
    """The part at which each window begins, and how many parts there are.

    Args:
        examples: of each part.
    """
    bounds: list[int] = []
    parts = held = 0
    for part, count in enumerate(examples):
        if not bounds or parts == WINDOW_PARTS or held + count > WINDOW_EXAMPLES:
            bounds.append(part)
            parts = held = 0
        parts, held = parts + 1, held + count
    return [*bounds, len(examples)]


def windows_of(
    works: Sequence[Work], reports: Sequence[PartReport], sources: Sequence[PartSource]
) -> list[Window]:
    """The windows of a build, from all its parts."""
    members = [
        Member(
            Numbers(str(work.files.plan), report.lines, report.examples, work.source),
            source,
            report.sha256,
        )
        for work, report, source in zip(works, reports, sources, strict=True)
    ]
    bounds = _bounds([one.examples for one in reports])
    examples = offsets_of(np.array([one.examples for one in reports], np.int64))[bounds].tolist()
    lines = offsets_of(np.array([one.lines for one in reports], np.int64))[bounds].tolist()
    return [
        Window(number, examples[number], lines[number], tuple(members[first:last]))
        for number, (first, last) in enumerate(pairwise(bounds))
    ]


def digest_of(windows: Sequence[Window]) -> str:
    """A hash of all parts, and of how they are cut into windows."""
    every = [f"{window.number} {member.sha256}" for window in windows for member in window.members]
    return hashlib.sha256("\0".join(every).encode()).hexdigest()
