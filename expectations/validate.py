"""The stage that checks the invariants on every row while a part is made; see also ``gate``."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from expectations import metric_tables
from expectations.contract import EXAMPLE, STREAM, Context
from expectations.invariants import applying
from expectations.readback.stored_rows import StoredRows
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

    def __call__(self, batch: Batch) -> Batch:
        context = replace(self.context, layout=STREAM)
        laws = applying(context, EXAMPLE)
        if not laws or not batch.num_rows:
            return batch
        metrics = metric_tables.examples(
            StoredRows(loss_weights.stored(unfold(pa.table(batch))), context)
        )
        verdicts = metrics.select(law.bad(context).alias(law.name) for law in laws)
        # Invariants that are only checked here come last: the first one that breaks gives the code.
        for law in sorted(laws, key=lambda law: STREAM in law.needs):
            bad = verdicts[law.name].fill_null(True).to_numpy()
            if bad.any():
                details = [law.why] * int(bad.sum())
                batch = columns.refuse(batch, np.asarray(bad, bool), law.name, details)
        return batch
