"""Time per row of every stage of an SFT build, in one process on one core.

    python benchmarks/per_stage.py [--rows 50000] [--data train.jsonl]

The rows are those of ``sft_rows.py``. Prints microseconds of processor time and rows per second of
each stage; of reading, which is JSON and the strict checks together, for every container; and
whether reading and normalizing keep ahead of the encoder.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import runpy
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import zstandard

from pipeline import memory


def main() -> None:
    """Grow the rows, run every stage over them, print."""
    memory.keep_freed()  # before pyarrow is imported
    from pipeline.inputs.scan import scan
    from pipeline.options.config import Config, default_cache
    from pipeline.parts.chain import split_off
    from pipeline.recipe.recipe import resolve_recipe
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
        config = Config.of(
            "sft", data, "qwen2-1.5b", Path(folder) / "out", cache_dir=default_cache()
        )
        inputs = scan(config)
        started = time.process_time()
        recipe = resolve_recipe(config, inputs)
        print(f"model, tokenizers and format: {time.process_time() - started:.2f} s")
        normalize = recipe.normalize(recipe.formats[0])
        stages = [(stage.name, stage) for stage in recipe.stages(recipe.formats[0])]
        for split in inputs[0].splits:
            reading = iter(readers.load(split.reader).read(split))
            while True:
                at = time.process_time()
                lines = next(reading, None)
                spent["read"] += time.process_time() - at
                if lines is None:
                    break
                batch = lines.records
                for name, stage in [("normalize", normalize), *stages]:
                    at = time.process_time()
                    batch = split_off(stage(batch))[0]
                    spent[name] += time.process_time() - at
        for name, path in _packed(source).items():
            spent[f"read {name}"] = _reading(path)
    for name, seconds in spent.items():
        each = seconds / options.rows
        print(f"{name:<14} {each * 1e6:7.1f} us a row {1 / each:12.0f} rows/s")
    slowest = max(seconds for name, seconds in spent.items() if name.startswith("read"))
    ratio = spent["encode"] / (slowest + spent["normalize"])
    print(f"the slowest reading and normalizing together: {ratio:.2f} times the encoder's rate")


def _packed(source: Path) -> dict[str, Path]:
    """The same rows in every container."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = source.read_bytes()
    rows = [json.loads(line) for line in content.splitlines()]
    made = {name: source.with_name(f"rows.{name}") for name in ("jsonl.gz", "jsonl.zst", "json")}
    made["jsonl.gz"].write_bytes(gzip.compress(content))
    made["jsonl.zst"].write_bytes(zstandard.compress(content))
    made["json"].write_text(json.dumps(rows, ensure_ascii=False), "utf-8")
    made["parquet"] = source.with_name("rows.parquet")
    pq.write_table(pa.Table.from_pylist(rows), made["parquet"], row_group_size=20_000)
    return made


def _reading(path: Path) -> float:
    """Seconds of processor time that reading a file's records takes."""
    from stages import readers

    reader = readers.load(readers.of_path(path.name) or "")
    splits = reader.splits(str(path))
    started = time.process_time()
    for split in splits:
        for _ in readers.load(split.reader).read(split):
            pass
    return time.process_time() - started


if __name__ == "__main__":
    main()
