"""The plan of builds of any size: what the process that plans, and its workers, hold and take.

    python benchmarks/plan_growth.py MODEL_CACHE FOLDER OUT.json WORKERS EXAMPLES OPTION...

Parts are made up: real files of the numbers that plans need, with the lengths of answers that a
model writes, one in a hundred equal to another, and no examples beside them. The plan is that of a
build: the same code, the same windows, buckets and workers. OPTION is a key of a recipe's plan with
a value, such as ``layout=packed`` and ``test_size=0.01``.
"""

import hashlib
import json
import resource
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.workplace import MODEL
from pipeline.builder import planning
from pipeline.builder.planning import Planned
from pipeline.builder.preparation import Prepared, prepare
from pipeline.options.config import Config
from pipeline.shards.chain import PARTIAL
from pipeline.shards.part import PartReport, Work
from stages.contract import Split

OF_PART = 30_000  # examples, about as many as 16 MiB of conversations have
_POOL = 100_000  # digests that are given again and again
_AGAIN = 0.01


def numbers(seed: int, examples: int) -> pa.Table:
    """What a plan is made from, of one part: one example a row, each in a group of its own."""
    draw = np.random.default_rng(seed)
    lengths = np.clip(draw.lognormal(5.3, 0.6, examples), 8, 4096).astype(np.int32)
    digests = draw.integers(0, 2**63, (examples, 2))
    again = np.flatnonzero(draw.random(examples) < _AGAIN)
    digests[again] = draw.integers(0, _POOL, len(again))[:, None] * 0x5851F42D4C957F2D
    content = pa.py_buffer(digests.astype("<i8").tobytes())
    kind = pa.binary(16)
    return pa.table(
        {
            "line": np.arange(examples),
            "length": lengths,
            "trained": lengths // 2,
            "digest": pa.Array.from_buffers(kind, examples, [None, content]),
            "group": digests[:, 0].astype(np.uint64),  # equal ones ask the same
            PARTIAL: np.zeros(examples, bool),
        }
    )


def parts(
    folder: Path, examples: int, of_part: int = OF_PART
) -> tuple[list[Work], list[PartReport]]:
    """Made-up parts of a build, of which only the numbers lie in the folder."""
    works, reports = [], []
    for number, first in enumerate(range(0, examples, of_part)):
        count = min(of_part, examples - first)
        key = hashlib.sha256(f"{number} {count}".encode()).hexdigest()
        split = Split("rows.jsonl", number << 24, (number + 1) << 24, key, "jsonl", piece=number)
        work = Work(replace(split, lines=count), "messages", str(folder), key)
        if not work.files.plan.exists():
            work.files.plan.parent.mkdir(parents=True, exist_ok=True)
            table = numbers(number, count)
            sink = pa.OSFile(str(work.files.plan), "wb")
            with sink, pa.ipc.new_file(sink, table.schema) as out:
                out.write_table(table)
        works.append(work)
        reports.append(PartReport(lines=count, rows=count, made=count, examples=count, sha256=key))
    return works, reports


def prepared(folder: Path, cache: Path, works: list[Work], options: Mapping[str, Any]) -> Prepared:
    """A build of one input with the splits of these parts, as far as a plan needs it."""
    rows = folder / "rows.jsonl"
    rows.write_text('{"question": "2 + 2?", "answer": "4"}\n')
    config = Config.of("sft", (str(rows),), MODEL, folder / "out", cache_dir=cache, **options)
    small = prepare(config)
    whole = replace(small.inputs[0], splits=tuple(work.split for work in works))
    run = replace(config.run, cache_dir=folder)
    recipe = replace(small.recipe, config=replace(small.recipe.config, run=run))
    return replace(small, recipe=recipe, inputs=(whole,))


def _peak(who: int) -> int:
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(build: Prepared, works: list[Work], reports: list[PartReport]) -> dict[str, Any]:
    """Plan, and say what it took."""
    before, started = _peak(resource.RUSAGE_SELF), time.perf_counter()
    made: Planned = planning.of_parts(build, works, reports)
    seconds = time.perf_counter() - started
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    folder = planning.workspace_of(build)
    counts = made.outline.counts
    return {
        "examples": sum(report.examples for report in reports),
        "parts": len(works),
        "windows": made.outline.windows,
        "shards": made.n_shards,
        "kept": counts.kept,
        "doubles": counts.found,
        "seconds": round(seconds, 2),
        "processor": round(sum(one.ru_utime + one.ru_stime for one in spent), 2),
        "before": before,
        "planner": _peak(resource.RUSAGE_SELF),
        "worker": _peak(resource.RUSAGE_CHILDREN),
        "disk": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    }


def main() -> None:
    """Make the parts that are missing, plan them, write the figures."""
    cache, folder, out = (Path(word) for word in sys.argv[1:4])
    workers, examples = map(int, sys.argv[4:6])
    given = dict(word.split("=", 1) for word in sys.argv[6:])
    options: dict[str, Any] = {name: _value(text) for name, text in given.items()}
    works, reports = parts(folder / "parts", examples)
    build = prepared(folder, cache, works, {**options, "workers": workers})
    shutil.rmtree(planning.workspace_of(build), ignore_errors=True)
    out.write_text(json.dumps(measured(build, works, reports)))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
