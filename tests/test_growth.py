"""What must not grow by the rows of a build: calls, bytes that are hashed, encoded, read, written
and allocated, files and memory.

Counts, unlike times, are the same on every machine. A build of four times the rows may do
four times the work, and per row no more than ``CEILINGS`` says.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, started, sweep, table

from benchmarks import rows

CEILINGS: dict[str, dict[str, float]] = table("growth.toml")
SEVERAL_BATCHES = {"allocations": 0.14, "allocated": 11_000}  # each has some of its own
SAMPLED = {"encoder calls": 8}  # for a row that is read twice; one more may be in a larger build
# The same, and the tokenizer, which inputs from 1 MiB on have read again for the fast encoder.
ONCE = {**SAMPLED, "hashed": 7_100_000, "read": 7_100_000}
# Bytes of Python and numpy, of each row of a part; examples that are picked are read, not mapped.
PEAK = 7_600
SHAPES = {"sft": "messages", "rm": "pair", "prm": "steps"}
SIZES = (250, 1_000, 4_000)
WIDE = (2_000, 8_000, 32_000)
ONE_BATCH = (1_000, 2_000, 4_000)  # more than a start takes, and no more than a batch has
GROWTH = 1.15  # what a row may cost in the larger build, in what it costs in the smaller one
Counts = list[dict[str, Any]]


def _counts(what: str, task: str, sizes: tuple[int, ...], cache: Path, folder: Path) -> Counts:
    """What builds of so many rows count, each in turn; none of it is nothing."""
    files = [rows.write(folder / f"{n}.jsonl", "english", SHAPES[task], n) for n in sizes]
    words = (sys.executable, ROOT / "tests" / "counted.py", what, cache, task, *files)
    told = started(*words, folder=ROOT).ended().out.splitlines()
    counts: Counts = [json.loads(line) for line in told]
    assert all(count[name] > 0 for count in counts for name in _ceilings(counts))
    return counts


def _each(counts: Counts, sizes: tuple[int, ...], name: str) -> list[float]:
    """What one more row costs, from each size to the next."""
    values = [count.get(name, 0) for count in counts]
    return [(values[i] - values[i - 1]) / (sizes[i] - sizes[i - 1]) for i in range(1, len(sizes))]


def grown(
    counts: Counts, sizes: tuple[int, ...], least: float, extra: Mapping[str, int] = SAMPLED
) -> list[str]:
    """The counts of which one more row costs more in a larger build.

    Args:
        least: of what a ceiling allows, growth that is no growth.
        extra: what the largest build may have once more.
    """
    made = []
    for name, ceiling in _ceilings(counts).items():
        small, large = _each(counts, sizes, name)
        once = extra.get(name, 0) / (sizes[-1] - sizes[-2])
        if large > max(small, 0.0) * GROWTH + least * ceiling + once:
            made.append(f"{name}: {small:.2f} a row, then {large:.2f}")
    return made


def above(
    counts: Counts,
    sizes: tuple[int, ...],
    ceilings: dict[str, float],
    extra: Mapping[str, int] | None = None,
) -> list[str]:
    """The counts of which a row costs more than is allowed, with the functions called most.

    It is a row of the largest build: smaller ones read a larger share of their rows twice.
    """
    made = []
    for name, ceiling in ceilings.items():
        most = _each(counts, sizes, name)[-1]
        most -= (extra or {}).get(name, 0) / (sizes[-1] - sizes[-2])
        if most > ceiling:
            made.append(f"{name}: {most:.2f} a row, and {ceiling} are allowed")
    if any(line.startswith("calls") for line in made):
        called = list(counts[-1]["functions"].items())[:15]
        made += [f"  {name}: {times / sizes[-1]:.2f} a row" for name, times in called]
    return made


def _ceilings(counts: Counts) -> dict[str, float]:
    return {"peak": PEAK} if "peak" in counts[0] else CEILINGS["sft"]


def _require(task: str, counts: Counts, sizes: tuple[int, ...]) -> None:
    assert all(count["calls"] > size for count, size in zip(counts, sizes, strict=True))
    assert all(count["encoded"] > 100 * size for count, size in zip(counts, sizes, strict=True))
    assert all(count["hashed"] > 100 * size for count, size in zip(counts, sizes, strict=True))
    assert not grown(counts, sizes, 0.1, ONCE)
    several = SEVERAL_BATCHES if sizes == WIDE else {}
    assert not above(counts, sizes, CEILINGS[task] | several, ONCE)


@sweep(2)
@pytest.mark.parametrize(
    ("task", "sizes"), [("sft", SIZES), ("rm", SIZES), ("prm", SIZES), ("sft", WIDE)]
)
def test_a_row_costs_the_same_however_many_there_are(
    task, sizes, cache_dir, tmp_path, tokenizer_json
):
    """Calls, hashes, encoder and files; wide builds are of several batches and several parts."""
    _require(task, _counts("calls", task, sizes, cache_dir, tmp_path), sizes)


@pytest.mark.slow
def test_memory_grows_no_faster_than_rows(cache_dir, tmp_path, tokenizer_json):
    """The most that Python and numpy hold at a time."""
    counts = _counts("memory", "sft", ONE_BATCH, cache_dir, tmp_path)
    assert not grown(counts, ONE_BATCH, 0.5)
    assert not above(counts, ONE_BATCH, {"peak": PEAK})
