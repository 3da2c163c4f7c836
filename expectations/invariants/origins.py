"""Where each example comes from, and whether it is the one that was planned for its place.

Row ids and digests are compared here, so that the metrics are numbers only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations.checks import Between, Equal, none
from expectations.contract import LABELLED, PLANNED, STORED, Columns, Invariant, Metrics, Subject
from expectations.readback.stored_rows import StoredRows, fitted
from stages.columns import IGNORED, Ints, list_parts
from stages.tokens.digest import digests, weighted_digests
from stages.tokens.folded_labels import folded_ids


def _halves(column: pa.Array) -> tuple[Ints, Ints]:
    """16-byte digests as two columns of int64."""
    # Arrow stores fixed-size binary as one buffer; a slice keeps the whole buffer and an offset.
    _, data = column.buffers()
    view = np.frombuffer(data or b"", np.int64)[2 * column.offset :][: 2 * len(column)]
    return view[0::2], view[1::2]


def _digests(rows: StoredRows) -> tuple[Ints, Ints]:
    """The digest of each stored example, computed as in ``encode`` from what is stored."""
    if rows.paired:
        return _halves(digests(*((side.offsets, side.ids) for side in rows.sides.values())))
    examples = rows.examples
    offsets, ids = examples.sequences.offsets, examples.sequences.ids
    if examples.weights is not None:
        trained, folded = examples.labels != IGNORED, folded_ids(ids, examples.labels)
        weights = examples.weights[0]
        return _halves(weighted_digests(offsets, folded, trained=trained, weights=weights))
    if examples.steps is None:
        return _halves(digests((offsets, folded_ids(ids, examples.labels))))
    rated_at, ratings = list_parts(examples.steps[1])
    floats = ratings.to_numpy(zero_copy_only=False).astype(np.float32)
    coded = np.nan_to_num(floats, nan=-1.0).view(np.int32)
    return _halves(digests((offsets, ids), (offsets, examples.labels), (rated_at, coded)))


def _bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int32]:
    """Numbers by their bits, since NaN is not equal to itself."""
    return np.ascontiguousarray(values).view(np.int32)


def _origins(rows: StoredRows) -> Columns:
    """Place and digest of each example, and its differences from the plan, where there is one."""
    digest = _digests(rows)
    columns = {**rows.place, "digest_a": digest[0], "digest_b": digest[1]}
    planned, count = rows.planned, len(rows)
    if planned is None:
        return columns
    differs = [a != fitted(b, count, 0) for a, b in zip(digest, planned.digest, strict=True)]
    renamed = [columns[name] != fitted(values, count, -2) for name, values in planned.place.items()]
    changed = np.zeros(count, np.int64)
    for name, values in planned.values.items():
        stored = rows.table.column(name).to_numpy()
        changed += _bits(stored) != fitted(_bits(values), count, -1)
    return {
        **columns,
        "n_tokens_planned": fitted(planned.tokens, count, -1),
        "digest_differs": differs[0] | differs[1],
        "name_differs": np.any(renamed, axis=0),
        "n_values_differ": changed,
    }


SUBJECT = Subject(
    metrics=(Metrics(measure=_origins, evidence=STORED),),
    invariants=(
        Invariant(
            name="row_ids_known",  # every row id is an input of the build and a line of it
            why="every stored example must come from a row of the data",
            checks=(Between("source", 0), Between("line", 1)),
            breaks={"source": -1},
            evidence=STORED,
        ),
        Invariant(
            name="row_ids_as_planned",
            why="an example with the id of another row points to the wrong row",
            checks=(none("name_differs"),),
            breaks={"name_differs": 1},
            evidence=PLANNED,
        ),
        Invariant(
            name="examples_as_encoded",  # ids, labels, ratings, weights and numbers
            why="the stored tokens must be the encoded ones: none lost, moved or changed",
            checks=(none("digest_differs"), none("n_values_differ")),
            breaks={"digest_differs": 1},
            evidence=PLANNED,
        ),
        Invariant(
            name="examples_whole",  # each has its planned length: none is split or joined
            why="a boundary that is off by one gives a document a wrong token, and no sum shows it",
            checks=(Equal("n_tokens", "n_tokens_planned"),),
            breaks={"n_tokens_planned": -1},
            needs=(LABELLED,),
            evidence=PLANNED,
        ),
    ),
)
