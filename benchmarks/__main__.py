"""Measures builds beside other programs, and writes docs/performance.md from what was measured.

    python -m benchmarks [measure] [--only compare-sft*] [--sizes 20000,100000,1000000]
    python -m benchmarks page

Each measurement is a file in benchmarks/results, which is kept as long as code, machine and
settings are the same; so what was interrupted goes on where it stopped.
"""

import argparse
import fnmatch
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import page
from benchmarks.selection import Measurement, Sizes, everything
from benchmarks.workplace import Workplace


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(part.replace("_", "")) for part in text.split(",")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n", 1)[0]
    )
    usual = Sizes()
    parser.add_argument("what", nargs="?", choices=("measure", "page", "list"), default="measure")
    parser.add_argument("--only", default="*", help="names of measurements, such as 'compare-rm*'")
    parser.add_argument(
        "--sizes",
        type=_numbers,
        default=usual.ours,
        help="rows of our builds, such as 20000,1000000",
    )
    parser.add_argument(
        "--peer-sizes", type=_numbers, default=usual.peers, help="of these, rows of other programs"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=usual.repeats,
        help="runs of what is short; what is long runs once less",
    )
    parser.add_argument(
        "--memory-sizes", type=_numbers, default=usual.memory, help="rows where memory is watched"
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured")
    parser.add_argument(
        "--all-cores", action="store_true", help="pin no compared program to one core"
    )
    parser.add_argument("--scratch", type=Path, help="a folder on a disk with room [temporary]")
    return parser


def _measure(measurements: list[Measurement], place: Workplace) -> None:
    started = time.monotonic()
    for number, one in enumerate(measurements, start=1):
        passed = (time.monotonic() - started) / 60
        print(f"[{number}/{len(measurements)}, {passed:.1f} min] {one.name}", flush=True)
        one.measure(place)
    print(f"measured in {(time.monotonic() - started) / 60:.1f} min")


def main() -> None:
    """Measure and write the page; or only one of these."""
    given = _parser().parse_args()
    sizes = Sizes(given.sizes, given.peer_sizes, given.repeats, given.memory_sizes)
    chosen = [one for one in everything(sizes) if fnmatch.fnmatch(one.name, given.only)]
    if given.what == "list":
        print("\n".join(one.name for one in chosen))
        return
    if given.what == "measure":
        if not chosen:
            sys.exit(f"No measurement is called {given.only}; see: python -m benchmarks list")
        if given.fresh:
            page.forget([one.name for one in chosen])
        core = None if given.all_cores else max(os.sched_getaffinity(0))
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
            _measure(chosen, Workplace(given.scratch or Path(folder), core))
    page.PAGE.write_text(page.text(), "utf-8")
    print(f"written: {page.PAGE}")


if __name__ == "__main__":
    main()
