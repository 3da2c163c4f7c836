"""The gate over a million rows of metrics, as after a build.

    python benchmarks/gate.py [--rows 1000000]

Metrics of SFT examples in packs, like those that a build leaves for the gate, are written to files;
then a process of its own finds the rows that decide, and Great Expectations judges these by every
shipped law of the four tables. Prints seconds and the peak of its memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from expectations import gate, gx_suites, tallies
from expectations.contract import DATASET, EXAMPLE, PLANNED, ROW, SHARD, Context
from expectations.gate import Table
from expectations.stored_rows import IDENTITY, Dataset
from pipeline.shards import measured
from pipeline.tasks import kind_of
from stages.profile import TargetModel
from stages.tokenizers.profiles import all_profiles

FILES = 20
PER_PACK = 34


def model() -> TargetModel:
    """A model of which only numbers are asked."""
    profile = all_profiles()["qwen2-1.5b"]
    return TargetModel(profile, b"", {}, 151645, 151645, 151643, -1, -1, -1, 151646, {})


CONTEXT = Context(kind_of("sft"), "packed", 4096, model(), PLANNED)


def names(table: str) -> list[str]:
    """Columns that the laws of a table ask for."""
    (wanted,) = [s for s in gx_suites.shipped(CONTEXT) if s.table == table]
    return gx_suites.columns_of(wanted.expectations)


def write(folder: Path, rows: int) -> None:
    """Metrics that break nothing."""
    draw = np.random.default_rng(0)
    each = rows // FILES
    for index in range(FILES):
        lengths = draw.integers(110, 121, each)
        known = {
            "n_tokens": lengths, "n_tokens_planned": lengths, "n_trained": lengths // 2,
            "max_id": np.full(each, 151645), "labels_fit": np.ones(each, np.int64),
            "weights_fit": np.ones(each, np.int64),
            "line": np.arange(each) + index * each + 1, "source": np.zeros(each, np.int64),
            "sequence": np.full(each, -1), "digest_a": draw.integers(0, 2**62, each),
            "digest_b": draw.integers(0, 2**62, each),
        }  # fmt: skip
        blank = dict.fromkeys(names(EXAMPLE), np.zeros(each, np.int64))
        frame = pl.DataFrame(blank | known).with_columns(pl.all().cast(pl.Int64))
        frame.write_ipc(folder / f"{index:02d}.{EXAMPLE}.arrow", compression="uncompressed")
        packs = lengths[: each // PER_PACK * PER_PACK].reshape(-1, PER_PACK).sum(axis=1)
        count = np.full(len(packs), PER_PACK)
        made = {"n_tokens": packs, "n_in_examples": packs}
        made |= dict.fromkeys(("n_examples", "n_names", "n_restarts"), count)
        made["half_empty"] = np.zeros(len(packs), np.int64)
        frame = pl.DataFrame(made).with_columns(pl.all().cast(pl.Int64))
        frame.write_ipc(folder / f"{index:02d}.{ROW}.arrow", compression="uncompressed")


def frames(folder: Path, table: str) -> Iterator[pa.Table]:
    """A table, file by file."""
    for path in sorted(folder.glob(f"*.{table}.arrow")):
        yield measured.read_metrics(path)


def kept(folder: Path, table: str) -> tallies.Tally:
    """What a build keeps of a table: sums, and the rows of each file that decide."""
    checks = tallies.checks_of(CONTEXT, table)
    found = [
        tallies.tally({name: frame[name].to_numpy() for name in frame.column_names}, checks)
        for frame in frames(folder, table)
    ]
    return tallies.joined(found, checks)


def identities(folder: Path) -> Iterator[Any]:
    """The examples as numbers, in one piece; all are on the train side."""
    found = [
        np.stack([frame[name].to_numpy() for name in IDENTITY]) for frame in frames(folder, EXAMPLE)
    ]
    every = dict(zip(IDENTITY, np.concatenate(found, axis=1), strict=True))
    yield {"train": every, "test": {name: values[:0] for name, values in every.items()}}


def judge(folder: Path, rows: int, out: Path | None) -> None:
    """What the timed process does; its figures go to ``out`` too, as JSON."""
    started = time.perf_counter()
    found = {table: kept(folder, table) for table in (EXAMPLE, ROW)}
    sums = {("train", table): one for table, one in found.items()}
    declared = dict.fromkeys(("rows_in", "rows_accounted", "examples_made"), rows)
    declared |= {"examples_accounted": rows, "examples_kept": rows, "duplicates_declared": 0}
    lengths = found[EXAMPLE].sums
    declared |= {"tokens_kept": lengths["n_tokens"], "trained_kept": lengths["n_trained"]}
    shards = pa.table(
        {n: pa.array([int(n.startswith("opens"))] * FILES, pa.int64()) for n in names(SHARD)}
    )
    read = partial(identities, folder)

    def dataset() -> Iterator[pa.Table]:
        yield tallies.dataset(Dataset(sums, read, read, declared, CONTEXT))

    def deciding(table: str) -> Table:
        shown = pa.table(dict(found[table].shown))
        return Table(table, found[table].rows, lambda: iter([shown]), found[table].at)

    tables = {
        SHARD: Table(SHARD, FILES, lambda: iter([shards])),
        EXAMPLE: deciding(EXAMPLE),
        ROW: deciding(ROW),
        DATASET: Table(DATASET, 1, dataset),
    }
    verdict = gate.judge(tables, gx_suites.shipped(CONTEXT), CONTEXT, lambda *_: [])
    assert verdict.passed, verdict.failed
    seconds = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    if out is not None:
        out.write_text(json.dumps({"wall": seconds, "cpu": cpu, "largest_process": peak}))
    print(f"rows      {rows}")
    print(f"judged    {seconds:.2f} s wall, {cpu:.2f} s CPU in all")
    print(f"memory    {peak / 2**30:.2f} GiB at most")


def main() -> None:
    """Write the metrics, then judge them in another process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="a file for the figures, as JSON")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        judge(options.judge, options.rows, options.out)
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), options.rows)
        command = [sys.executable, __file__, "--rows", str(options.rows), "--judge", name]
        command += ["--out", str(options.out)] if options.out else []
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
