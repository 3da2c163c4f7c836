"""The invariants, and the first of their two runs: in stream, refusing a bad row by its law."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa

from expectations import invariants as package
from expectations import measure
from expectations.contract import EXAMPLE, Context, Invariant
from stages import catalog, columns, weights
from stages.contract import Batch

STREAM = "stream"


def invariants() -> list[Invariant]:
    """Every invariant, by name."""
    names = catalog.names(package.__name__)
    return [catalog.load(package.__name__, name, "INVARIANT") for name in names]


def applying(context: Context, level: str) -> list[Invariant]:
    """Those that say something about such metrics."""
    return [i for i in invariants() if i.applies(context, level)]


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
        table = weights.stored(pa.table(batch))
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
