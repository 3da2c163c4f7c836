"""What ``make bench`` measures, in order: the whole list and how long each part is."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks import compared, encoders, large, nets, starts
from benchmarks.compare import Comparison
from benchmarks.earlier import CHECKOUT, earlier
from benchmarks.programs import OURS, PROGRAMS
from benchmarks.workplace import Workplace

TEXTS = ("english", "chinese", "code")
OTHER = (("sft", "chinese"), ("sft", "code"), ("rm", "english"), ("prm", "english"))
_COUNTED = 2_000  # rows of which tokens are counted
_COMPARED = 10_000  # rows, for each vocabulary
_HEAVY = ("trl-completion", "axolotl", "llamafactory")  # at the smallest size alone


class Measurement(Protocol):
    """Something that ``make bench`` measures and keeps in a file of its own."""

    @property
    def name(self) -> str:
        """The file's name."""
        ...

    def measure(self, place: Workplace) -> None:
        """Measure what is missing."""
        ...


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        ours: rows of our builds, from small to large; ``peers``: of the other programs.
        repeats: of what is short; what takes minutes runs once less, and other programs once with
            the largest size, which takes them a quarter of an hour.
        memory: rows of the builds whose memory is watched.
    """

    ours: tuple[int, ...] = (20_000, 100_000, 1_000_000)
    peers: tuple[int, ...] = (20_000, 100_000)
    repeats: int = 3
    memory: tuple[int, ...] = (200_000, 1_000_000, 4_000_000)


def _repeats(sizes: Sizes, count: int) -> dict[str, int]:
    """How often each program runs on so many rows of SFT."""
    smallest, largest = count == sizes.ours[0], count == max(sizes.ours)
    fewer = max(1, sizes.repeats - 1)
    made = {OURS: sizes.repeats}
    if count not in sizes.peers:
        return made
    for name in PROGRAMS:
        if name in _HEAVY and smallest:
            made[name] = fewer
        elif name not in _HEAVY:
            made.setdefault(name, sizes.repeats if smallest else 1 if largest else fewer)
    return made


def comparisons(sizes: Sizes) -> Iterator[Comparison]:
    """Programs side by side."""
    smallest = sizes.ours[0]
    for count in sizes.ours:
        warm = int(count == smallest)
        yield Comparison("sft", "english", count, _repeats(sizes, count), warm)
    fewer = max(1, sizes.repeats - 1)
    for task, text in OTHER:
        also = ("datasets", "trl") if task == "sft" else ("datasets", "trl", "llamafactory")
        names = [OURS, *(name for name in also if task in PROGRAMS[name].shapes)]
        yield Comparison(task, text, smallest, dict.fromkeys(names, fewer))
        for count in sizes.ours[1:2]:  # what a row costs is small beside what starts cost
            yield Comparison(task, text, count, {OURS: fewer})


def everything(sizes: Sizes) -> list[Measurement]:
    """All measurements, the quick ones first."""
    smallest, second = sizes.ours[0], sizes.ours[min(1, len(sizes.ours) - 1)]
    made: list[Measurement] = [encoders.about(text, smallest) for text in TEXTS]
    made += [encoders.tokens(_COUNTED)]
    made += [encoders.alone(text, smallest, sizes.repeats) for text in TEXTS]
    made += [starts.starts(max(2, sizes.repeats), smallest)]
    made += [nets.nets((starts.FEW, second), sizes.repeats)]
    made += [nets.witness({starts.FEW: 2 * sizes.repeats, sizes.ours[-1]: 1})]
    made += [starts.memory(sizes.memory), starts.workers(sizes.ours[-1], sizes.repeats - 1)]
    made += [starts.appended(sizes.ours[-1]), large.plan_growth(large.PLANNED), large.large()]
    if CHECKOUT:
        made += [earlier(Path(CHECKOUT), sizes.ours, sizes.repeats - 1)]
    made += [compared.compared(_COMPARED), *comparisons(sizes)]
    return made
