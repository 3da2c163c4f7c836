"""The gather over builds of any size: one shard, made out of up to millions of examples.

    python benchmarks/gathering.py ROWS.jsonl LAYOUT CACHE OUT.json REPEATS SIZE...

One real build hands over what its gather was given. Its parts are then repeated until they hold as
many examples as are asked for, and the gather makes one shard of it: of examples that lie side by
side, and of examples drawn from everywhere. The shard is as large each time, so a cost that grows
with the size of the build is a fault.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workplace import MAX_LENGTH, MODEL
from pipeline.options.config import Config
from pipeline.run_build import build
from pipeline.shards import gather
from pipeline.shards.gather import Gather, ShardReport, ShardWork
from pipeline.shards.measured import METRICS

_FUNCTION = "make_shard"  # what a build calls for each shard


def captured(source: Path, layout: str, cache: Path, folder: Path) -> tuple[Gather, ShardWork]:
    """What the gather of a real build was given, of its first shard."""
    seen: list[tuple[Gather, ShardWork]] = []
    make: Callable[[Gather, ShardWork], ShardReport] = gather.make_shard

    def watched(shared: Gather, shard: ShardWork) -> ShardReport:
        seen.append((shared, shard))
        return make(shared, shard)

    options: dict[str, Any] = {"layout": layout, "workers": 1, "max_length": int(MAX_LENGTH)}
    config = Config.of("sft", (str(source),), MODEL, folder / "out", cache_dir=cache, **options)
    setattr(gather, _FUNCTION, watched)
    try:
        build(config, lambda what, done, total: None)
    finally:
        setattr(gather, _FUNCTION, make)
    return seen[0]


def _repeated(shared: Gather, size: int, folder: Path) -> Gather:
    """The same parts again and again, until they hold so many examples."""
    counts = np.diff(shared.starts)
    times = -(-size // int(counts.sum()))
    starts = np.concatenate([[0], np.cumsum(np.tile(counts, times))])
    return replace(shared, sources=shared.sources * times, starts=starts, folder=str(folder))


def _orders(first: ShardWork, counted: int, size: int) -> dict[str, Any]:
    """Which examples the shard takes, by how they lie: as many as the real one has.

    An example of a repeated part is as long as the one that it repeats, so the plan's lengths,
    digests and packs stay true.

    Args:
        counted: examples of the real build.
    """
    repetition = np.random.default_rng(0).integers(0, -(-size // counted), len(first.order))
    return {"in order": first.order, "shuffled": first.order + repetition * counted}


def _rate(shared: Gather, shard: ShardWork) -> float:
    """Examples a second of processor time, of one shard that is made."""
    folder = Path(shared.folder)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / METRICS).mkdir(parents=True)
    started = time.process_time()
    gather.make_shard(shared, shard)
    return len(shard.order) / (time.process_time() - started)


def main() -> None:
    """Capture, repeat, time."""
    source, cache, out = Path(sys.argv[1]), Path(sys.argv[3]), Path(sys.argv[4])
    repeats, sizes = int(sys.argv[5]), [int(size) for size in sys.argv[6:]]
    made: dict[str, dict[str, list[int]]] = {}
    with tempfile.TemporaryDirectory(dir=cache.parent) as name:
        shared, first = captured(source, sys.argv[2], cache, Path(name))
        for size in sizes:
            large = _repeated(shared, size, Path(name) / "shard")
            for how, order in _orders(first, int(shared.starts[-1]), size).items():
                shard = replace(first, order=order)
                rates = [round(_rate(large, shard)) for _ in range(repeats)]
                made.setdefault(how, {})[str(size)] = rates
    out.write_text(json.dumps(made))


if __name__ == "__main__":
    main()
