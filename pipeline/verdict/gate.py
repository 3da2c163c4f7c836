"""Judges the shards of a build: joins their metrics to tables and runs the suites on them.

The gate runs on staged shards, before they are published; ``pipeline check`` runs it on those of a
finished build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from expectations import gate, metric_tables
from expectations.contract import DATASET, EXAMPLE, ROW, SHARD, Context
from expectations.gate import Table
from expectations.gx import suites
from expectations.gx.suites import Suite
from expectations.readback import undo_layout
from expectations.readback.dataset import Dataset
from expectations.verdict import Finding, Verdict
from pipeline.manifest.dataset_files import listed_and_alike
from pipeline.shards import measured
from pipeline.shards.measured import Measured, metrics_file
from stages import layouts
from stages.errors import ExpectationError
from stages.files import file_hash

SHOWN = 3  # rows that an error names


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict is based on.

    Attributes:
        folder: of the build; ``metrics``: the folder with the metrics of its shards.
        shards: as they were measured, in the order of the build.
        hashes: the sha256 that each shard must have, by path.
        declared: totals of the whole dataset, from the ledger and the plan or from the manifest.
    """

    folder: Path
    metrics: Path
    shards: Sequence[Measured]
    hashes: Mapping[str, str]
    declared: Mapping[str, int]


def _frames(evidence: Evidence, table: str) -> Iterator[pl.DataFrame]:
    for shard in evidence.shards:
        if shard.rows.get(table):
            yield pl.read_ipc(metrics_file(evidence.metrics, shard.path, table))


def _shard_table(evidence: Evidence) -> pl.DataFrame:
    """One row per shard; every shard is hashed again."""
    with ThreadPoolExecutor(4) as pool:
        paths = [evidence.folder / shard.path for shard in evidence.shards]
        hashes = list(pool.map(file_hash.sha256, paths))
    rows = []
    for shard, sha256 in zip(evidence.shards, hashes, strict=True):
        opens = shard.counts["opens_pyarrow"] and listed_and_alike(evidence.folder, shard.path)
        # A shard that cannot be read has no such counts, and every column needs a value.
        row = {"n_examples": 0, "n_tokens": 0, "n_stored": 0, "n_trained": 0} | shard.counts
        row["n_rows_planned"] = shard.counts.get("n_rows_planned", shard.counts["n_rows"])
        row["hash_differs"] = int(sha256 != evidence.hashes.get(shard.path))
        row["opens_datasets"] = int(opens)
        rows.append(row)
    return pl.DataFrame(rows, schema=dict.fromkeys(sorted(rows[0]), pl.Int64))


def _tables(evidence: Evidence, context: Context) -> dict[str, Table]:
    shards = _shard_table(evidence)
    facts: list[pl.DataFrame] = []

    def dataset() -> Iterator[pl.DataFrame]:
        # Only when this table's turn comes: by then the shards are known to be readable.
        if not facts:
            by_side = [(s.split, s.path) for s in evidence.shards]
            read = partial(_of_side, evidence, by_side)
            facts.append(metric_tables.dataset(Dataset(read, evidence.declared, context)))
        yield facts[0]

    count = {name: sum(s.rows.get(name, 0) for s in evidence.shards) for name in (EXAMPLE, ROW)}
    tables = {
        SHARD: Table(SHARD, len(evidence.shards), lambda: iter([shards])),
        EXAMPLE: Table(EXAMPLE, count[EXAMPLE], lambda: _frames(evidence, EXAMPLE)),
        DATASET: Table(DATASET, 1, dataset),
    }
    layout = layouts.load(context.layout)
    if layout.packs or layout.pads:  # otherwise a training row is an example
        tables[ROW] = Table(ROW, count[ROW], lambda: _frames(evidence, ROW))
    return tables


def _of_side(
    evidence: Evidence, shards: Sequence[tuple[str, str]], side: str, table: str, names: list[str]
) -> pl.DataFrame:
    """Some columns of the metrics of one split; an empty table if it has none."""
    files = [
        pl.read_ipc(metrics_file(evidence.metrics, path, table), columns=names)
        for split, path in shards
        if split == side
    ]
    return pl.concat(files) if files else pl.DataFrame(schema=dict.fromkeys(names, pl.Int64))


def _places(evidence: Evidence, table: str, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Where rows of a table of metrics are stored: row id, shard, and index in the shard."""
    if table == DATASET:
        return []
    if table == SHARD:
        return [{"shard": evidence.shards[row].path} for row in rows]
    # Where the rows of each shard begin in the joined table.
    starts = np.concatenate([[0], np.cumsum([s.rows.get(table, 0) for s in evidence.shards])])
    places = []
    for row in rows:
        index = int(np.searchsorted(starts, row, side="right")) - 1
        shard, at = evidence.shards[index], row - int(starts[index])
        offsets, names = undo_layout.names(measured.read(evidence.folder / shard.path))
        # A broken training row is named by its first example.
        first = at if table == EXAMPLE else int(offsets[at])
        name = names[first].as_py() if first < len(names) else None
        places.append({"row": name, "shard": shard.path, "at": at})
    return places


def user_suites(files: Sequence[tuple[str, str]]) -> list[Suite]:
    """The suites of ``--expectations``: names and texts.

    Raises:
        GateError: one does not load, or two have one name.
    """
    return [suite for name, text in files for suite in suites.load(name, text)]


def judge(evidence: Evidence, context: Context, users: Sequence[Suite]) -> Verdict:
    """Run the shipped suites and those of the user.

    Raises:
        GateError: an expectation could not be judged.
    """
    tables = _tables(evidence, context)
    # Shards first: the other tables are computed from shards that open.
    shipped = sorted(suites.shipped(context), key=lambda suite: suite.table != SHARD)
    return gate.judge(tables, [*shipped, *users], context, partial(_places, evidence))


def line(finding: Finding) -> str:
    """One broken expectation in a line: how many rows break it, and the first of them."""
    where = [_named(place) for place in finding.places[:SHOWN]]
    more = f" and {finding.broken - SHOWN} more" if finding.broken > SHOWN and where else ""
    numbers = "" if where else ", ".join(_values(finding))
    text = ", ".join(where) + more or numbers
    return f"  {finding.name}: {finding.broken} of {finding.checked} {finding.table} ({text})"


def _named(place: Mapping[str, Any]) -> str:
    if "at" not in place:
        return str(place["shard"])
    return f"{place['row']} at {place['shard']}[{place['at']}]"


def _values(finding: Finding) -> list[str]:
    return [f"{key}={value}" for key, value in finding.seen.items()]


def require_passed(verdict: Verdict) -> None:
    """Stop a build that breaks a critical expectation.

    Raises:
        ExpectationError: with every broken expectation and the first rows that break it.
    """
    broken = [finding for finding in verdict.findings if finding.fatal]
    if not broken:
        return
    lines = "\n".join(line(finding) for finding in broken)
    ours = all(finding.suite == suites.SHIPPED for finding in broken)
    raise ExpectationError(
        f"The written shards break {', '.join(f.name for f in broken)}:\n{lines}",
        "Nothing was published; "
        + ("please report it with the recipe." if ours else "fix the data, or the suite."),
    )
