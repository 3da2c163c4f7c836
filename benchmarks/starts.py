"""What does not grow with the rows, what hardly should, and memory.

``starts``: commands on 100 rows, on all cores as users run them. ``appended``: a build again after
one per cent of rows was added. ``memory``: the most that a build takes, by size.
"""

import functools
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks import process
from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.workplace import MODEL, Workplace, build, program

FEW = 100
APPENDED = 0.01
LAYOUTS = ("packed", "packed --pack-within part")  # with their options


def _times(run: Callable[[], process.Cost], repeats: int) -> list[Content]:
    return [asdict(run()) for _ in range(repeats)]


def _first_build(place: Workplace, source: Path) -> process.Cost:
    with place.scratch() as folder:
        return process.run(build("sft", source, folder / "out", folder / "empty"), folder)


def _small_build(place: Workplace, source: Path) -> process.Cost:
    with place.scratch() as folder:
        return process.run(build("sft", source, folder / "out", place.cache(folder)), folder)


def starts(repeats: int, unchanged: int) -> Cell:
    """Costs of commands, by what they do; ``unchanged``: rows of the larger no-change rebuild."""

    def make(place: Workplace) -> Content:
        few = place.rows("english", "messages", FEW)
        place.tokenizer()

        def words(*arguments: str | Path) -> Callable[[], process.Cost]:
            return lambda: process.run([program(), *arguments], place.folder)

        cache = place.folder / "prepared"
        plan = ("plan", few, "--model", MODEL, "--cache-dir", cache)
        made = {
            "pipeline --help": _times(words("--help"), repeats),
            f"plan, {FEW} rows": _times(words(*plan), repeats),
            f"first build with an empty cache, {FEW} rows": _times(
                lambda: _first_build(place, few), repeats
            ),
            f"build, {FEW} rows": _times(lambda: _small_build(place, few), repeats),
        }
        for count in (FEW, unchanged):
            with place.scratch() as folder:
                source = place.rows("english", "messages", count)
                command = build("sft", source, folder / "out", place.cache(folder))
                process.run(command, folder)
                again = _times(functools.partial(process.run, command, folder), repeats)
                made[f"build again, nothing changed, {count:,} rows"] = again
        return made

    return Cell("starts", {"repeats": repeats, "unchanged": unchanged}, make)


def _appended(place: Workplace, count: int, layout: str) -> dict[str, process.Cost]:
    whole = place.rows("english", "messages", round(count * (1 + APPENDED)))
    with place.scratch() as folder:
        source, cache = folder / "rows.jsonl", place.cache(folder)
        shutil.copy(place.rows("english", "messages", count), source)
        command = build("sft", source, folder / "out", cache, "--layout", *layout.split())
        full = process.run(command, folder, core=place.core)
        shutil.copy(whole, source)
        again = process.run(command, folder, core=place.core)
    return {"full": full, "again": again}


def appended(count: int) -> Cell:
    """By layout, a build of all rows, and again after more were added at the end of the file."""

    def make(place: Workplace) -> Content:
        made: Content = {layout: {"full": [], "again": []} for layout in LAYOUTS}
        for layout, runs in made.items():
            for name, cost in _appended(place, count, layout).items():
                runs[name].append(asdict(cost))
        return made

    return Cell("appended", {"rows": count, "share": APPENDED}, make)


def memory(sizes: tuple[int, ...]) -> Cell:
    """The most memory of a build with one worker, by rows."""

    def once(place: Workplace, source: Path) -> process.Cost:
        with place.scratch() as folder:
            command = build("sft", source, folder / "out", place.cache(folder))
            return process.run(command, folder, memory=True)

    def make(place: Workplace) -> Content:
        made = {}
        for count in sizes:
            source = place.rows("english", "messages", count)
            made[str(count)] = [asdict(once(place, source))]
        return made

    return Cell("memory", {"sizes": list(sizes)}, make)


def workers(count: int, repeats: int) -> Cell:
    """A build with one worker and with two, in turns."""

    def make(place: Workplace) -> Content:
        source = place.rows("english", "messages", count)
        made: dict[str, list[Content]] = {"1": [], "2": []}
        for _ in range(repeats):
            for number, known in made.items():
                with place.scratch() as folder:
                    cache = place.cache(folder)
                    command = build("sft", source, folder / "out", cache, "--workers", number)
                    known.append(asdict(process.run(command, folder)))
        return made

    return Cell("workers", {"rows": count, "repeats": repeats}, make)
