"""Where the time of a build goes, function by function and net by net, and what of it the driver
does alone.

Builds of two sizes are sampled (``sampled.py``); their difference is what a row costs.
"""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from benchmarks import process
from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.sampled import NETS
from benchmarks.workplace import Workplace, build

_SAMPLED = Path(__file__).with_name("sampled.py")
_SHAPES = {"sft": "messages", "rm": "pair", "prm": "steps"}
_REST = "(all others)"
_KEPT = 0.02  # microseconds a row of a function that has an entry in the file
_KEPT_FIRST = 0.002  # seconds, of a build
_LEAST = 0.05  # microseconds a row that a line of the table has


def _looked_at(place: Workplace, task: str, count: int, *more: str) -> Content:
    """One build as ``sampled.py`` has seen it."""
    source = place.rows("english", _SHAPES[task], count)
    with place.scratch() as folder:
        words = build(task, source, folder / "out", place.cache(folder), *more)[1:]
        out = folder / "spent.json"
        process.run([sys.executable, _SAMPLED, out, *words], folder)
        content: Content = json.loads(out.read_text())
    return content


def _sampled(place: Workplace, task: str, count: int, *more: str) -> Content:
    """Where the time of one build went: seconds by function, and other threads and processes."""
    content = _looked_at(place, task, count, *more)
    spent = content.pop("functions")
    others = {"(other threads)": content["other_threads"], "(other processes)": content["children"]}
    return {**spent, **others}


def _typical(runs: list[Content]) -> Content:
    """The median of several builds, function by function: starts differ from run to run."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: statistics.median(run.get(name, 0.0) for run in runs) for name in names}


def _difference(small: Content, large: Content, rows: int) -> dict[str, float]:
    """Microseconds a row by function, the most expensive first."""
    each = {
        name: (large.get(name, 0.0) - small.get(name, 0.0)) / rows * 1e6
        for name in small.keys() | large.keys()
    }
    ordered = sorted(each.items(), key=lambda item: -item[1])
    return {name: round(spent, 3) for name, spent in ordered}


def _shortened(spent: dict[str, float], least: float) -> dict[str, float]:
    """The same with one entry for all that are smaller than ``least``; the sum stays."""
    made = {name: value for name, value in spent.items() if abs(value) >= least}
    made[_REST] = round(sum(spent.values()) - sum(made.values()), 3)
    return made


def _made(small: list[Content], large: list[Content], sizes: tuple[int, int]) -> Content:
    """What a file holds: microseconds a row by function, seconds of the smaller build, and the
    seconds of each run of both."""
    first = _typical(small)
    each = _difference(first, _typical(large), sizes[1] - sizes[0])
    return {
        "functions": _shortened(each, _KEPT),
        "first": _shortened(first, _KEPT_FIRST),
        "small": [round(sum(run.values()), 3) for run in small],
        "large": [round(sum(run.values()), 3) for run in large],
    }


def room(function: str) -> str:
    """The folder of a function's file, or the file where it lies in a package itself."""
    path = function.partition(":")[0]
    parts = path.split("/")
    return "/".join(parts[:2]).removesuffix(".py") if len(parts) > 1 else path


def rooms(functions: dict[str, float]) -> dict[str, float]:
    """Microseconds a row by room, the most expensive first."""
    made: dict[str, float] = defaultdict(float)
    for name, spent in functions.items():
        made[room(name)] += spent
    ordered = sorted(made.items(), key=lambda item: -item[1])
    return {name: round(spent, 2) for name, spent in ordered if spent >= _LEAST}


def functions(task: str, sizes: tuple[int, int], repeats: int) -> Cell:
    """Microseconds a row by function, and what does not grow with the rows."""

    def make(place: Workplace) -> Content:
        small, large = ([_sampled(place, task, n) for _ in range(repeats)] for n in sizes)
        return _made(small, large, sizes)

    settings = {"task": task, "sizes": list(sizes), "repeats": repeats}
    return Cell(f"functions-{task}", settings, make)


BUILD = "the whole build"
_EXPORTED = ("--for", "llamafactory")  # whose rows are packs in columns of its own
_JUDGED = "invariants on the shards, judged by Great Expectations"  # in a process of its own


def nets(sizes: tuple[int, int], repeats: int) -> Cell:
    """Seconds of each net, and of the whole build with its export, in each run of two sizes."""

    def once(place: Workplace, count: int) -> Content:
        seen = _looked_at(place, "sft", count, *_EXPORTED)
        spent = dict.fromkeys(NETS, 0.0) | seen["nets"]
        spent[_JUDGED] += seen["children"]
        whole = seen["main_thread"] + seen["other_threads"] + seen["children"]
        return {name: round(seconds, 3) for name, seconds in (*spent.items(), (BUILD, whole))}

    def make(place: Workplace) -> Content:
        small, large = ([once(place, n) for _ in range(repeats)] for n in sizes)
        return {"small": small, "large": large}

    return Cell("nets", {"sizes": list(sizes), "repeats": repeats}, make)


def driver(sizes: tuple[int, int], repeats: int) -> Cell:
    """The same for the driver's own thread while two workers do what workers can do."""

    def once(place: Workplace, count: int) -> Content:
        spent = _sampled(place, "sft", count, "--workers", "2")
        del spent["(other processes)"]
        return spent

    def make(place: Workplace) -> Content:
        small, large = ([once(place, n) for _ in range(repeats)] for n in sizes)
        return _made(small, large, sizes)

    return Cell("driver", {"sizes": list(sizes), "repeats": repeats}, make)
