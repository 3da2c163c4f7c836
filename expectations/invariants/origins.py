"""Where each example comes from, and whether it is the one that was planned for its place.

Row ids and tokens are compared here, so that the metrics are numbers only.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations import contract, stored_rows, undo_layout
from expectations.invariants import laws
from expectations.stored_rows import Lists, Planned, StoredRows, fitted
from stages.columns import Ints


def _bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int32]:
    """Numbers by their bits, since NaN is not equal to itself."""
    return np.ascontiguousarray(values).view(np.int32)


def _differs(
    stored: Mapping[str, Lists], key: tuple[Ints, Ints], planned: Planned
) -> npt.NDArray[np.bool_]:
    """Which examples are not, number by number, what their parts contain, or have not the digest
    that they were encoded with."""
    differs = np.zeros(len(key[0]), bool)
    for name, wanted in planned.lists.items():
        differs |= stored_rows.differs(stored[name], wanted)
    for half, planned_half in zip(key, planned.digest, strict=True):
        differs |= half != fitted(planned_half, len(half), 0)
    return differs


def _named_otherwise(rows: StoredRows) -> npt.NDArray[np.bool_]:
    """Which examples have not the name of the source that their row id's input is of."""
    named = rows.sources.named if rows.sources is not None else ()
    stored = undo_layout.source_names(rows.table)
    if stored is None or not named:
        return np.full(len(rows), stored is not None or bool(named))
    # The number of each name, not the names: -1 for one that is no source's.
    known = list(dict.fromkeys(named))
    found = pc.index_in(stored, pa.array(known)).fill_null(-1).to_numpy()
    of_input = np.array([*(known.index(name) for name in named), -2], np.int64)  # -2: of no input
    differs: npt.NDArray[np.bool_] = fitted(found, len(rows), -1) != of_input[rows.place["source"]]
    return differs


def _origins(rows: StoredRows) -> contract.Columns:
    """Place and key of each example, and its differences from the plan, where there is one."""
    stored = stored_rows.lists(rows)
    key = stored_rows.keys(rows, stored)
    columns: dict[str, npt.NDArray[np.generic]] = {
        **rows.place,
        "digest_a": key[0],
        "digest_b": key[1],
        "source_differs": _named_otherwise(rows),
    }
    planned, count = rows.planned, len(rows)
    if planned is None:
        return columns
    renamed = [columns[name] != fitted(values, count, -2) for name, values in planned.place.items()]
    changed = np.zeros(count, np.int64)
    for name, values in planned.values.items():
        found = rows.table.column(name).to_numpy()
        changed += _bits(found) != fitted(_bits(values), count, -1)
    return {
        **columns,
        "n_tokens_planned": fitted(planned.tokens, count, -1),
        "digest_differs": _differs(stored, key, planned),
        "name_differs": np.any(renamed, axis=0),
        "n_values_differ": changed,
    }


SUBJECT = contract.Subject(
    metrics=(contract.Metrics(measure=_origins, evidence=contract.STORED),),
    invariants=laws("origins"),
)
