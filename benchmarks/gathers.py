"""The gather by the size of the build: examples a second, which should not fall."""

import json
import sys
from pathlib import Path

from benchmarks import process
from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.workplace import ROOT, Workplace

_GATHERING = Path(__file__).with_name("gathering.py")


def gathers(layout: str, count: int, sizes: tuple[int, ...], repeats: int) -> Cell:
    """Examples a second, by how the shard's examples lie and by how many the build has.

    Args:
        count: rows of the real build whose parts are repeated.
    """

    def make(place: Workplace) -> Content:
        source = place.rows("english", "messages", count)
        with place.scratch() as folder:
            out, cache = folder / "made.json", place.cache(folder)
            given = (_GATHERING, source, layout, cache, out, repeats, *sizes)
            words = [sys.executable, *map(str, given)]
            variables = {"PYTHONPATH": str(ROOT)}
            process.run(words, folder, environment=variables, core=place.core)
            made: Content = json.loads(out.read_text())
        return made

    settings = {"layout": layout, "rows": count, "sizes": list(sizes), "repeats": repeats}
    return Cell(f"gather-{layout}", settings, make)
