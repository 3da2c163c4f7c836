"""Builds and plans of sizes that are seldom: what grows with the rows, and what must not.

``large``: a build of 1 GB of rows.
``plan-growth``: the plan alone, of made-up examples in real files, at three sizes.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import process
from benchmarks.cell import Cell
from benchmarks.results import Content
from benchmarks.workplace import MODEL, ROOT, Workplace, build

PLANNED = (100_000, 1_000_000, 10_000_000)  # examples
_GROWTH = Path(__file__).with_name("plan_growth.py")
_REPEATED = 20_000  # rows of a text that are written again and again, each with a number


def _numbered(source: Path, target: Path, size: int) -> int:
    """Write rows of a file until the target has so many bytes; each has a question of its own."""
    rows = [json.loads(line) for line in source.read_bytes().splitlines()]
    written = count = 0
    with target.open("wb") as file:
        while written < size:
            row = json.loads(json.dumps(rows[count % len(rows)]))
            row["messages"][0]["content"] += f" ({count})"
            written += file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def large() -> Cell:
    """A build of 1 GB with two workers: seconds, and the most memory of a process."""

    def make(place: Workplace) -> Content:
        source = place.rows("english", "messages", _REPEATED)
        with place.scratch() as folder:
            data = folder / "rows.jsonl"
            rows = _numbered(source, data, 10**9)
            command = build("sft", data, folder / "out", place.cache(folder), "--workers", "2")
            return {"rows": rows, **asdict(process.run(command, folder, memory=True))}

    return Cell("large-1", {"gigabytes": 1}, make)


def plan_growth(sizes: tuple[int, ...]) -> Cell:
    """What planning takes, by examples: see ``plan_growth.py``."""

    def make(place: Workplace) -> Content:
        made = {}
        for examples in sizes:
            with place.scratch() as folder:
                out = folder / "made.json"
                cache = place.cache(folder)
                words = [_GROWTH, cache, folder, out, 2, examples, "test_size=0.01"]
                variables = {"PYTHONPATH": str(ROOT)}
                process.run([sys.executable, *map(str, words)], folder, environment=variables)
                made[str(examples)] = json.loads(out.read_text())
        return made

    return Cell("plan-growth", {"sizes": list(sizes), "model": MODEL}, make)
