"""Runs the invariants: on a batch in stream, where a bad row is refused by name, and on tables as
they were written, where a bad row fails the build."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa

from expectations import invariants as package
from expectations import measure
from expectations.contract import EXAMPLE, ROW, Context, Invariant
from stages import catalog, columns
from stages.contract import Batch
from stages.errors import GateError

STREAM = "stream"
_UNJUDGED = (ArithmeticError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError)
NAMED = 10  # rows that a finding names


def invariants() -> list[Invariant]:
    """Every invariant, by name."""
    names = catalog.names(package.__name__)
    return [catalog.load(package.__name__, name, "INVARIANT") for name in names]


def applying(context: Context, level: str) -> list[Invariant]:
    """Those that say something about such metrics."""
    return [i for i in invariants() if i.applies(context, level)]


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant over one table: how many rows broke it, and the first of them."""

    name: str
    level: str
    severity: str
    checked: int
    broken: int
    rows: tuple[int, ...]

    def after(self, earlier: Finding | None) -> Finding:
        """Together with what was found in the rows before."""
        if earlier is None:
            return replace(self, rows=self.rows[:NAMED])
        return replace(
            self,
            checked=earlier.checked + self.checked,
            broken=earlier.broken + self.broken,
            rows=(earlier.rows + self.rows)[:NAMED],
        )


@dataclass
class Validate:
    """The in-stream gate: refuses every row that breaks an invariant, by the first it breaks."""

    context: Context
    name: str = "validate"
    writes: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        rm = self.context.task == "rm"
        return ("chosen_ids", "rejected_ids") if rm else ("input_ids", "labels")

    def __call__(self, batch: Batch) -> Batch:
        context = replace(self.context, layout="ragged")
        table = pa.table(batch)
        metrics = measure.examples(table, context)
        if context.task == "rm":
            both = pl.col("chosen_n_controls") + pl.col("rejected_n_controls")
            metrics = metrics.with_columns(both.alias("n_controls"))
        printed = pl.Series("n_controls_printed", batch.column("controls").to_numpy())
        metrics = metrics.with_columns(printed.cast(pl.Int64))
        laws = applying(context, EXAMPLE) + applying(replace(context, layout=STREAM), EXAMPLE)
        laws = list({law.name: law for law in laws}.values())
        if not laws or not batch.num_rows:
            return batch
        verdicts = metrics.select(law.bad(context).alias(law.name) for law in laws)
        for law in laws:
            bad = verdicts[law.name].fill_null(True).to_numpy()
            if bad.any():
                details = [law.why] * int(bad.sum())
                batch = columns.refuse(batch, np.asarray(bad, bool), law.name, details)
        return batch


def judge(table: pa.Table, context: Context) -> list[Finding]:
    """Every invariant that applies, on a table as it was written, one record batch at a time.

    Raises:
        GateError: a metric cannot be computed, so nothing can be said about the rows.
    """
    try:
        return _judged(table, context)
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        pl.exceptions.PolarsError,
    ) as error:
        raise GateError(
            f"What was written cannot be judged: {type(error).__name__}: {error}.",
            "Nothing was published; please report it with the recipe.",
        ) from error


def _judged(table: pa.Table, context: Context) -> list[Finding]:
    broken: dict[str, Finding] = {}
    seen = dict.fromkeys((EXAMPLE, ROW), 0)
    for batch in table.to_batches():
        part = pa.Table.from_batches([batch])
        levels = [(EXAMPLE, measure.examples(part, context))]
        if context.layout in ("packed", "padded"):
            levels.append((ROW, measure.rows(part, context)))
        for level, metrics in levels:
            for law in applying(context, level):
                bad = metrics.select(law.bad(context).fill_null(True).alias("bad"))["bad"]
                rows = np.flatnonzero(bad.to_numpy()) + seen[level]
                named = tuple(rows.tolist())
                found = Finding(law.name, level, law.severity, len(bad), len(rows), named)
                broken[law.name] = found.after(broken.get(law.name))
            seen[level] += len(metrics)
    return list(broken.values())
