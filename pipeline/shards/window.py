"""A window: some consecutive parts of a build, and their examples as far as a plan sees them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

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

    @classmethod
    def read(cls, content: dict[str, Any]) -> Window:
        """The window that was written as JSON."""
        members = tuple(
            Member(Numbers(**one["numbers"]), PartSource(**one["source"]), one["sha256"])
            for one in content.pop("members")
        )
        return cls(**content, members=members)


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


class Windows(Sequence[Window]):
    """The windows of a build, each put together when its turn comes."""

    def __init__(
        self, works: Sequence[Work], reports: Sequence[PartReport], sources: Sequence[PartSource]
    ) -> None:
        self._parts = (works, reports, sources)
        self._bounds = _bounds([one.examples for one in reports])
        examples = offsets_of(np.array([one.examples for one in reports], np.int64))
        lines = offsets_of(np.array([one.lines for one in reports], np.int64))
        self._first = examples[self._bounds].tolist()
        self._line = lines[self._bounds].tolist()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, index: int) -> Window: ...

    @overload
    def __getitem__(self, index: slice) -> list[Window]: ...

    def __getitem__(self, index: int | slice) -> Window | list[Window]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        first, last = self._bounds[index : index + 2]
        mine = (each[first:last] for each in self._parts)
        members = tuple(
            Member(
                Numbers(str(work.files.plan), report.lines, report.examples, work.source),
                source,
                report.sha256,
            )
            for work, report, source in zip(*mine, strict=True)
        )
        return Window(index, first=self._first[index], line=self._line[index], members=members)

    @property
    def examples(self) -> int:
        """How many examples there are in all."""
        return int(self._first[-1])

    @property
    def digest(self) -> str:
        """A hash of all parts, and of how they are cut into windows."""
        every = [str(self._bounds), *(report.sha256 for report in self._parts[1])]
        return hashlib.sha256("\0".join(every).encode()).hexdigest()
