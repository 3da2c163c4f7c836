"""Loss weights and labels must agree; rows without weights always do."""

from __future__ import annotations

import numpy as np

from expectations.checks import holds, none
from expectations.contract import ANSWERS, Columns, Invariant, Metrics, Subject
from expectations.stored_rows import StoredRows
from stages.columns import IGNORED


def _weights(rows: StoredRows) -> Columns:
    examples = rows.examples
    if examples.weights is None:
        count = len(examples.sequences)
        return {"weights_fit": np.ones(count, bool), "n_weights_off": np.zeros(count, np.int64)}
    values, fits = examples.weights
    good = np.where(examples.labels != IGNORED, np.isfinite(values) & (values > 0), values == 0)
    return {
        "weights_fit": examples.from_rows(fits),
        "n_weights_off": examples.sequences.per_row(~good),
    }


SUBJECT = Subject(
    metrics=(Metrics(measure=_weights, needs=(ANSWERS,)),),
    invariants=(
        Invariant(
            # Every token has its weight: positive where it is trained, zero where it is not.
            name="loss_weights_fit_labels",
            why="a weight on the wrong token trains that token, or leaves out one that must be "
            "trained",
            checks=(holds("weights_fit"), none("n_weights_off")),
            breaks={"n_weights_off": 1},
            needs=(ANSWERS,),
        ),
    ),
)
