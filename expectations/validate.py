"""The stage that refuses rows in stream: the first of the two runs of the invariants."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from expectations import metric_tables
from expectations.contract import EXAMPLE, STREAM, Context
from expectations.invariants import applying
from expectations.readback.stored_rows import StoredRows
from stages import columns, weights
from stages.contract import Batch


@dataclass
class Validate:
    """Refuses every row that breaks an invariant, by the first it breaks."""

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
        metrics = metric_tables.examples(StoredRows(weights.stored(pa.table(batch)), context))
        verdicts = metrics.select(law.bad(context).alias(law.name) for law in laws)
        # What only the stream can judge comes last: a row has the code of the first law it breaks.
        for law in sorted(laws, key=lambda law: STREAM in law.needs):
            bad = verdicts[law.name].fill_null(True).to_numpy()
            if bad.any():
                details = [law.why] * int(bad.sum())
                batch = columns.refuse(batch, np.asarray(bad, bool), law.name, details)
        return batch
