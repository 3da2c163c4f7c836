"""The Parquet view: the examples as text, for people and for viewers of tables.

One file a split, one example a row: ``row_id``, the text that its token ids stand for, and how many
tokens it has. It is for reading; what is trained on are the shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import tasks
from pipeline.builds.build import Build
from pipeline.builds.examples import examples
from stages.columns import IGNORED, TYPES
from stages.encoders import parsed

FOLDER = "view"
_ROWS = 1024  # examples that are decoded at a time
_CARRIED = ("source", "step_labels", "margin")


def name_of(split: str) -> str:
    """The file of a split, relative to the build."""
    return f"{FOLDER}/{split}.parquet"


def _stretches(labels: np.ndarray[Any, np.dtype[np.int32]]) -> list[tuple[int, int]]:
    """Where trained tokens follow each other: first and past the last."""
    trained = np.concatenate(([False], labels != IGNORED, [False]))
    edges = np.flatnonzero(trained[1:] != trained[:-1])
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _texts(tokenizer: Any, lists: list[list[int]]) -> pa.Array:
    return pa.array(tokenizer.decode_batch(lists, skip_special_tokens=False), pa.string())


def _pairs(table: pa.Table, tokenizer: Any) -> dict[str, pa.Array]:
    """Prompt and both answers; the sides share their first ``prompt_length`` tokens."""
    shared = table.column("prompt_length").to_pylist()
    sides = {name: table.column(f"{name}_ids").to_pylist() for name in ("chosen", "rejected")}
    prompts = [ids[:n] for ids, n in zip(sides["chosen"], shared, strict=True)]
    texts = {"prompt": _texts(tokenizer, prompts)}
    for name, lists in sides.items():
        texts[name] = _texts(tokenizer, [ids[n:] for ids, n in zip(lists, shared, strict=True)])
    counts = (len(a) + len(b) for a, b in zip(*sides.values(), strict=True))
    return {**texts, "tokens": pa.array(counts, pa.int32())}


def _single(table: pa.Table, tokenizer: Any) -> dict[str, pa.Array]:
    """The whole text, and each stretch of it that is trained."""
    ids, labels = (table.column(name).to_pylist() for name in ("input_ids", "labels"))
    spans = [_stretches(np.asarray(row, np.int32)) for row in labels]
    flat = [row[a:b] for row, where in zip(ids, spans, strict=True) for a, b in where]
    offsets = np.cumsum([0, *map(len, spans)]).astype(np.int32)
    trained = pa.ListArray.from_arrays(pa.array(offsets), _texts(tokenizer, flat))
    return {
        "text": _texts(tokenizer, ids),
        "trained": trained,
        "tokens": pa.array(map(len, ids), pa.int32()),
        "trained_tokens": pa.array((sum(b - a for a, b in one) for one in spans), pa.int32()),
    }


def _readable(build: Build, table: pa.Table, tokenizer: Any) -> pa.Table:
    """The rows of the view for some examples."""
    compares = tasks.kind_of(build.manifest.task).compares
    columns = {
        "row_id": table.column("row_id"),
        **(_pairs if compares else _single)(table, tokenizer),
    }
    kept = {name: table.column(name) for name in _CARRIED if name in table.schema.names}
    return pa.table({**columns, **kept})


def _tables(build: Build, split: str, tokenizer: Any) -> Iterator[pa.Table]:
    for shard in build.splits[split].tables():
        # Columns of a task of the user's own cannot be taken out of a layout.
        known = [name for name in shard.schema.names if name in TYPES or name == "row_ids"]
        single = examples(shard.select(known), build.manifest.layout)
        for start in range(0, len(single), _ROWS):
            yield _readable(build, single.slice(start, _ROWS).combine_chunks(), tokenizer)


def write(build: Build, work: Path) -> None:
    """Write the view of every split into a folder.

    Raises:
        DataError: a shard or the tokenizer is damaged.
    """
    tokenizer = parsed(build.tokenizer_json)
    (work / FOLDER).mkdir()
    for split in build.splits:
        writer: pq.ParquetWriter | None = None
        for table in _tables(build, split, tokenizer):
            writer = writer or pq.ParquetWriter(
                work / name_of(split), table.schema, compression="zstd"
            )
            writer.write_table(table)
        if writer is not None:
            writer.close()
