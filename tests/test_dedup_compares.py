"""``--dedup`` leaves out no example for its digest alone: ids and labels are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.shards import dedup, doubles
from pipeline.shards.collect import PartSource
from pipeline.shards.doubles import DIGEST
from stages.errors import DataError

LISTS = st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=3), min_size=1, max_size=8)


def part(folder: Path, number: int, lists: list[list[int]]) -> PartSource:
    """A part with one column of lists."""
    path = folder / f"{number}.arrow"
    count = len(lists)
    table = pa.table(
        {
            "line": pa.array(range(count), pa.int64()),
            "sequence": pa.array([-1] * count, pa.int32()),
            "folded": pa.array(lists, pa.list_(pa.int32())),
            "margin": pa.array(range(count), pa.float32()),
        }
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return PartSource(str(path), f"{number}.jsonl", 0)


@given(LISTS, LISTS, st.booleans())
def test_examples_with_one_digest_must_be_equal(
    tmp_path_factory: pytest.TempPathFactory,
    one: list[list[int]],
    other: list[list[int]],
    honest: bool,
) -> None:
    """Digests that follow from the lists pass; one for all of them names two that differ."""
    folder = tmp_path_factory.mktemp("parts")
    sources = [part(folder, 0, one), part(folder, 1, other)]
    every = [*one, *other]
    digest = np.zeros(len(every), DIGEST)
    digest["b"] = [every.index(values) if honest else 7 for values in every]
    starts = np.array([0, len(one), len(every)])
    pairs = doubles.pairs(digest)
    names = ("folded", "margin")  # the margin differs, and says nothing about equality
    if honest or all(values == every[0] for values in every):
        dedup.require_equal(pairs, sources, starts, names)
    else:
        odd = next(i for i, values in enumerate(every) if values != every[0])
        name = f"0.jsonl:{odd + 1}" if odd < len(one) else f"1.jsonl:{odd - len(one) + 1}"
        with pytest.raises(DataError, match=f"{name} and 0.jsonl:1 differ"):
            dedup.require_equal(pairs, sources, starts, names)
