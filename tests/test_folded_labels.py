"""Ids and labels in one column, and taken apart again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from stages import columns
from stages.columns import IDS, IGNORED
from stages.errors import PipelineError
from stages.tokens.folded_labels import NO_MARKER, fold, unfold

MARKER, GOOD, BAD = 3, 0, 9


def _batch(ids: list[list[int]], labels: list[list[int]]) -> pa.RecordBatch:
    lists = [pa.array(ids, IDS), pa.array(labels, IDS)]
    return pa.RecordBatch.from_arrays(lists, names=["input_ids", "labels"])


@pytest.mark.parametrize(
    ("marker", "ids", "labels"),
    [
        (NO_MARKER, [[5, 6, 0], [], [3]], [[IGNORED, 6, 0], [], [IGNORED]]),
        (MARKER, [[5, 3, 6, 3], [], [3, 3]], [[IGNORED, GOOD, IGNORED, BAD], [], [IGNORED, BAD]]),
    ],
)
def test_what_is_folded_is_unfolded_to_the_same(
    marker: int, ids: list[list[int]], labels: list[list[int]]
) -> None:
    """Also id 0 as a label, an unlabelled marker, and a row without tokens."""
    batch = _batch(ids, labels)
    folded = fold(batch, marker)
    assert folded.schema.names == ["folded"]
    flat = columns.numbers(folded.column("folded"))[1]
    assert np.array_equal(flat < 0, columns.numbers(batch.column("labels"))[1] != IGNORED)
    back = unfold(folded, marker)
    assert back.column("input_ids").to_pylist() == ids
    assert back.column("labels").to_pylist() == labels


def test_a_label_that_stands_at_no_marker_is_not_folded() -> None:
    """The id in its place would be lost."""
    with pytest.raises(PipelineError, match="no marker"):
        fold(_batch([[5, 6]], [[IGNORED, GOOD]]), MARKER)
