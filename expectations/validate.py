"""The stage that checks the invariants on every row while a part is made; see also ``gate``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from expectations import metric_tables
from expectations.checks import Check
from expectations.contract import EXAMPLE, STREAM, Context, Invariant, parameters
from expectations.invariants import applying
from expectations.stored_rows import StoredRows
from stages import columns
from stages.chat_template import loss_weights
from stages.contract import Batch
from stages.tokens.folded_labels import unfold


@dataclass
class Validate:
    """Refuses every row that breaks an invariant, with the name of the first one as code."""

    context: Context
    name: str = "validate"
    writes: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        kind = self.context.kind
        return (*kind.ids, "labels") if kind.labelled else kind.ids

    @cached_property
    def _laws(self) -> list[tuple[Invariant, tuple[Check, ...]]]:
        context = replace(self.context, layout=STREAM)
        laws = applying(context, EXAMPLE)
        # Invariants that are only checked here come last: the first that breaks gives the code.
        laws.sort(key=lambda law: STREAM in law.needs)
        return [(law, law.checks_for(context)) for law in laws]

    def __call__(self, batch: Batch) -> Batch:
        if not self._laws or not batch.num_rows:
            return batch
        context = replace(self.context, layout=STREAM)
        stored = loss_weights.stored(unfold(pa.table(batch)))
        metrics = metric_tables.measured(StoredRows(stored, context), EXAMPLE)
        bounds = parameters(context)
        for law, checks in self._laws:
            bad = np.logical_or.reduce([check.broken(metrics, bounds) for check in checks])
            if bad.any():
                details = [law.why] * int(bad.sum())
                batch = columns.refuse(batch, bad, law.name, details)
        return batch
