"""This version beside an earlier one, in turns: what became slower, and what faster.

``POSTTRAIN_EARLIER`` names a checkout of the earlier version that has an environment ``.venv``.
"""

import os
import subprocess
from dataclasses import asdict
from pathlib import Path

from benchmarks import process
from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.starts import FEW
from benchmarks.workplace import Workplace, build

CHECKOUT = os.environ.get("POSTTRAIN_EARLIER")
EARLIER, NOW = "earlier", "now"
_SHAPES = {"sft": "messages", "rm": "pair", "prm": "steps"}


def _once(place: Workplace, name: str, task: str, count: int, checkout: Path) -> process.Cost:
    """A build with an empty cache; few rows on all cores, as users run them."""
    with place.scratch() as folder:
        source = place.rows("english", _SHAPES[task], count)
        words = build(task, source, folder / "out", folder / "cache")
        if name == EARLIER:
            words[0] = str(checkout / ".venv" / "bin" / "pipeline")
        return process.run(words, folder, core=place.core if count > FEW else None)


def earlier(checkout: Path, sizes: tuple[int, ...], repeats: int) -> Cell:
    """Costs by task and rows, each version in turn; the largest size: SFT alone, once."""

    def make(place: Workplace) -> Content:
        made: Content = {}
        for count in (FEW, *sizes):
            largest = count == max(sizes)
            for task in ("sft",) if largest else _SHAPES:
                known = made[f"{task}, {count:,} rows"] = {EARLIER: [], NOW: []}
                for _ in range(1 if largest else repeats):
                    for name, runs in known.items():
                        runs.append(asdict(_once(place, name, task, count, checkout)))
        return made

    said = subprocess.run(
        ["git", "log", "-1", "--format=%h of %as"],
        cwd=checkout,
        check=True,
        capture_output=True,
        text=True,
    )
    settings = {"sizes": list(sizes), "repeats": repeats, "version": said.stdout.strip()}
    return Cell("earlier", settings, make)
