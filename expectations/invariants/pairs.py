"""Pairs of a chosen and a rejected answer to one prompt."""

import numpy as np

from expectations import contract, stored_rows
from expectations.invariants import laws


def _pairs(rows: stored_rows.StoredRows) -> contract.Columns:
    chosen, rejected = rows.sides.values()
    shared = rows.table.column("prompt_length").to_numpy()
    lengths = [np.diff(side.offsets) for side in (chosen, rejected)]
    # Slices of bytes are compared in one step each; 4 bytes an id.
    a, b = (side.ids.tobytes() for side in (chosen, rejected))
    starts, stops = (
        [(4 * offsets).tolist() for offsets in (chosen.offsets[cut], rejected.offsets[cut])]
        for cut in (slice(None, -1), slice(1, None))
    )
    sides = list(zip(*starts, *stops, strict=True))
    equal = [a[i:k] == b[j:m] for i, j, k, m in sides]
    common = 4 * np.clip(shared, 0, np.minimum(*lengths))
    ends = zip(sides, common.tolist(), strict=True)
    prefix = np.array([a[i : i + n] == b[j : j + n] for (i, j, _, _), n in ends], bool)
    return {
        "sides_equal": np.array(equal, bool),
        "prompt_shared": prefix & (shared <= np.minimum(*lengths)) & (shared > 0),
        "n_longer_side": np.maximum(*lengths),
    }


def _margins(rows: stored_rows.StoredRows) -> contract.Columns:
    if "margin" not in rows.table.schema.names:
        ones = np.ones(len(rows), bool)
        return {"margin_finite": ones, "has_margin": ~ones}
    column = rows.table.column("margin")
    missing = column.is_null().to_numpy()
    finite = np.isfinite(column.fill_null(0).to_numpy())
    return {"margin_finite": missing | finite, "has_margin": ~missing}


SUBJECT = contract.Subject(
    metrics=(
        contract.Metrics(measure=_pairs, needs=(contract.COMPARES,)),
        contract.Metrics(measure=_margins, needs=(contract.COMPARES,)),
    ),
    invariants=laws("pairs"),
)
