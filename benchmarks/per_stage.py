"""Time per row of every stage of an SFT build, in one process on one core.

    python benchmarks/per_stage.py [--rows 50000] [--data train.jsonl]

The rows are those of ``sft_rows.py``. Prints microseconds and rows per second of each stage, and of
reading, which is JSON and the strict checks together.
"""

from __future__ import annotations

import argparse
import os
import runpy
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from pipeline import memory


def main() -> None:
    """Grow the rows, run every stage over them, print."""
    memory.keep_freed()  # before pyarrow is imported
    from pipeline.config import Config, default_cache
    from pipeline.inputs import scan
    from pipeline.part import split_off
    from pipeline.recipe import resolve_recipe
    from stages import readers

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    grown = runpy.run_path(str(Path(__file__).parent / "sft_rows.py"))
    spent: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        grown["grow"](grown["seed_rows"](options.data), options.rows, source)
        data = (str(source),)
        config = Config("sft", data, "qwen2-1.5b", Path(folder) / "out", cache_dir=default_cache())
        inputs = scan(config)
        started = time.perf_counter()
        recipe = resolve_recipe(config, inputs)
        print(f"model, tokenizers and format: {time.perf_counter() - started:.2f} s")
        normalize = recipe.normalize(recipe.formats[0])
        stages = [(stage.name, stage) for stage in recipe.stages(recipe.formats[0])]
        for split in inputs[0].splits:
            reading = iter(readers.load(split.reader).read(split))
            while True:
                at = time.perf_counter()
                lines = next(reading, None)
                spent["read"] += time.perf_counter() - at
                if lines is None:
                    break
                batch = lines.records
                for name, stage in [("normalize", normalize), *stages]:
                    at = time.perf_counter()
                    batch = split_off(stage(batch))[0]
                    spent[name] += time.perf_counter() - at
    for name, seconds in spent.items():
        each = seconds / options.rows
        print(f"{name:<10} {each * 1e6:7.1f} us a row {1 / each:12.0f} rows/s")


if __name__ == "__main__":
    main()
