"""Judges the shards of a build: joins what was measured of each, and runs the suites on it.

The gate runs on staged shards, before they are published; ``pipeline check`` runs it on those of a
finished build.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from expectations import gate, gx_runner, gx_suites, invariants, stored_rows, tallies, undo_layout
from expectations.contract import DATASET, EXAMPLE, ROW, SHARD, Context
from pipeline.builds import stored
from pipeline.manifest.dataset_files import listed_and_alike
from pipeline.messages.session import current
from pipeline.shards import measured, pack_index
from pipeline.shards.measured import OURS, Measured, metrics_file
from stages.errors import ExpectationError, OwnLawError, UsageError
from stages.files import file_hash
from stages.findings import NAMED, Finding, Validation
from stages.tokens import layouts

SHOWN = 3  # rows that an error names


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict is based on.

    Attributes:
        folder: of the build; ``metrics``: the folder with files of numbers of its shards.
        shards: as they were measured, in the order of the build.
        hashes: the sha256 that each shard must have, by path.
        declared: totals of the whole dataset, from the ledger and the plan or from the manifest.
        indexes: of the sides, where packs are an index; otherwise none.
        tables: the files include whole tables of metrics; else the rows that decide are judged.
    """

    folder: Path
    metrics: Path
    shards: Sequence[Measured]
    hashes: Mapping[str, str]
    declared: Mapping[str, int]
    tables: bool = False
    indexes: Sequence[pack_index.MeasuredIndex] = ()

    def found(self, table: str, side: str | None = None) -> list[tallies.Tally]:
        """What is kept of a table of rows, by shard or, where packs are an index, by that.

        Args:
            side: whose; None for both.
        """
        if table == ROW and self.indexes:
            return [one.tally for one in self.indexes if side in (None, one.split)]
        own = [one for one in self.shards if side in (None, one.split)]
        return [shard.tallies[table] for shard in own if table in shard.tallies]


def _same_file(folder: Path, shard: Measured) -> bool:
    """Whether a shard's file is still the one that was read and hashed."""
    path = folder / shard.path
    if shard.settled and file_hash.of(path) == shard.state:
        return True
    # A shard that was taken over has two names: a change of mode or the removal of the other one
    # gives it another state, but no other bytes.
    return file_hash.sha256(path) == shard.sha256


def _shard_table(evidence: Evidence) -> pa.Table:
    """One row per shard."""
    rows = []
    for shard in evidence.shards:
        opens = shard.counts["opens_pyarrow"] and listed_and_alike(evidence.folder, shard.path)
        # A shard that cannot be read has no such counts, and every column needs a value.
        row = {"n_examples": 0, "n_tokens": 0, "n_stored": 0, "n_trained": 0} | shard.counts
        row["n_rows_planned"] = shard.counts.get("n_rows_planned", shard.counts["n_rows"])
        known = shard.sha256 == evidence.hashes.get(shard.path)
        row["hash_differs"] = int(not known or not _same_file(evidence.folder, shard))
        row["opens_datasets"] = int(opens)
        rows.append(row)
    names = sorted(rows[0])
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.int64()) for name in names})


def _of_rows(evidence: Evidence, context: Context, name: str) -> gate.Table:
    """The table of examples or of training rows: all of it, or what is kept in its place."""
    found = evidence.found(name)
    if not found:
        return gate.Table(name, 0, lambda: iter(()))
    total = tallies.joined(found, tallies.checks_of(context, name))
    if evidence.tables and not (name == ROW and evidence.indexes):
        paths = [metrics_file(evidence.metrics, shard.path, name) for shard in evidence.shards]
        written = [path for path in paths if path.exists()]
        return gate.Table(name, total.rows, lambda: map(measured.read_metrics, written))
    shown = pa.table(dict(total.shown))
    return gate.Table(name, total.rows, lambda: iter([shown]), total.at)


def _tables(evidence: Evidence, context: Context) -> dict[str, gate.Table]:
    shards = _shard_table(evidence)
    facts: list[pa.Table] = []

    def dataset() -> Iterator[pa.Table]:
        # Only when this table's turn comes: by then the shards are known to be readable.
        if not facts:
            facts.append(tallies.dataset(_dataset(evidence, context)))
        yield facts[0]

    tables = {
        SHARD: gate.Table(SHARD, len(evidence.shards), lambda: iter([shards])),
        EXAMPLE: _of_rows(evidence, context, EXAMPLE),
        DATASET: gate.Table(DATASET, 1, dataset),
    }
    layout = layouts.load(context.layout)
    if layout.packs or layout.pads or layout.indexed:  # otherwise a training row is an example
        tables[ROW] = _of_rows(evidence, context, ROW)
    return tables


def _dataset(evidence: Evidence, context: Context) -> stored_rows.Dataset:
    sums = {}
    for side in stored_rows.SIDES:
        for table in (EXAMPLE, ROW):
            found = evidence.found(table, side)
            if found:
                sums[side, table] = tallies.joined(found, ())

    names, contents, asked = (
        partial(measured.pieces, evidence.metrics, evidence.shards, name)
        for name in ("names", "contents", "asked")
    )
    return stored_rows.Dataset(sums, names, contents, evidence.declared, context, asked)


def _places(evidence: Evidence, table: str, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Where rows of a table of metrics are stored: row id, shard, and index in the shard."""
    if table == DATASET:
        return []
    if table == SHARD:
        return [{"shard": evidence.shards[row].path} for row in rows]
    if table == ROW and evidence.indexes:
        return [_pack(evidence, row) for row in rows]
    # Where the rows of each shard begin in the joined table.
    starts = np.concatenate([[0], np.cumsum([s.rows.get(table, 0) for s in evidence.shards])])
    places = []
    for row in rows:
        index = int(np.searchsorted(starts, row, side="right")) - 1
        shard, at = evidence.shards[index], row - int(starts[index])
        offsets, names = undo_layout.names(stored.read_file(evidence.folder / shard.path))
        # A broken training row is named by its first example.
        first = at if table == EXAMPLE else int(offsets[at])
        name = names[first].as_py() if first < len(names) else None
        places.append({"row": name, "shard": shard.path, "at": at})
    return places


def _pack(evidence: Evidence, row: int) -> dict[str, Any]:
    """Where a pack is, by its number over all indexes."""
    for index in evidence.indexes:
        if row < index.tally.rows:
            break
        row -= index.tally.rows
    return {"row": f"pack {row}", "shard": index.path, "at": row}


def user_suites(files: Sequence[tuple[str, str]]) -> list[gx_suites.Suite]:
    """The suites of ``--expectations``: names and texts.

    Raises:
        GateError: one does not load, or two have one name.
    """
    return [suite for name, text in files for suite in gx_suites.load(name, text)]


def judge(
    evidence: Evidence,
    context: Context,
    users: Sequence[gx_suites.Suite] = (),
    pages: Path | None = None,
) -> Validation:
    """Run the shipped suites and those of the user.

    Args:
        pages: the folder for the pages of ``--data-docs``.

    Raises:
        GateError: an expectation could not be judged.
    """
    tables, runner = _tables(evidence, context), gx_runner.Runner()
    # Shards first: the other tables are computed from shards that open.
    shipped = sorted(gx_suites.shipped(context), key=lambda suite: suite.table != SHARD)
    suites, places = [*shipped, *users], partial(_places, evidence)
    verdict = gate.judge(tables, suites, context, places, runner)
    _offer(pages, runner, verdict.judged)
    return verdict


def line(finding: Finding) -> str:
    """One broken expectation in a line: how many rows break it, and the first of them."""
    where = [_named(place) for place in finding.rows[:SHOWN]]
    more = f" and {finding.broken - SHOWN} more" if finding.broken > SHOWN and where else ""
    numbers = "" if where else ", ".join(_values(finding))
    text = ", ".join(where) + more or numbers
    return f"  {finding.name}: {_broken(finding)} of {finding.checked} {finding.table} ({text})"


def _broken(finding: Finding) -> str:
    """How many rows break it; more than are named are not counted where only some are judged."""
    some = finding.suite == gx_suites.SHIPPED and finding.table in (EXAMPLE, ROW)
    more = " or more" if some and NAMED <= finding.broken < finding.checked else ""
    return f"{finding.broken}{more}"


def _named(place: Mapping[str, Any]) -> str:
    if "at" not in place:
        return str(place["shard"])
    return f"{place['row']} at {place['shard']}[{place['at']}]"


def _values(finding: Finding) -> list[str]:
    return [f"{key}={value}" for key, value in finding.seen.items()]


def require_passed(verdict: Validation) -> None:
    """Stop a build that breaks a critical expectation.

    Raises:
        ExpectationError: with every broken expectation and the first rows that break it;
            ``OwnLawError`` where one of them is of this program: whatever else is broken, it says
            that what was written is wrong.
    """
    broken = [finding for finding in verdict.expectations if finding.fatal]
    if not broken:
        return
    lines = "\n".join(line(finding) for finding in broken)
    shipped = [finding.name for finding in broken if finding.suite == gx_suites.SHIPPED]
    own = any(invariants.are_ours({name}) for name in shipped)
    raise (OwnLawError if own else ExpectationError)(
        f"The written shards break {', '.join(f.name for f in broken)}:\n{lines}",
        OURS if own else "Nothing was published; fix the data, or the suite.",
    )


# ``--data-docs``: the HTML pages of Great Expectations for a verdict, in a folder of their own.
#
# They contain the time of the run, so they cannot be part of a build. An error while writing them
# is only a warning.


def check(folder: Path | None) -> None:
    """Require that the folder is new, empty, or holds such pages and no other file.

    Raises:
        UsageError: it is a file, or other files are in it.
    """
    if folder is None or not folder.exists():
        return
    present = list(folder.iterdir()) if folder.is_dir() else [folder]
    if present and not gx_runner.is_own(folder):
        raise UsageError(f"{folder} has other files in it.", "Give another with --data-docs.")


def _offer(folder: Path | None, runner: gx_runner.Runner, judged: int) -> None:
    """Write the pages, if they were asked for."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        gx_runner.write(folder, runner.results, judged)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        current().warn(f"no Data Docs, {type(error).__name__}: {text}")
