"""Packs as an index: a file for each side, beside the shards with its examples.

``packs/train.arrow`` is an Arrow IPC stream with a row for each pack: the numbers of its examples,
counted over the shards of the side from 0, and how many tokens they have together. A record batch
has the packs of one shard of packed rows, so the index also says which shards those would be.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from expectations import contract, tallies, undo_layout
from pipeline.builds.stored import read_file
from pipeline.manifest.manifest import IndexRecord
from pipeline.shards import facts, storage
from stages.columns import Ints, list_parts, make_list, offsets_of, sum_per_row, whole
from stages.errors import GateError, require_reading
from stages.files import file_hash

Piece = tuple[Ints, Ints]  # the examples of some packs, flat, and how many each has
FOLDER = "packs"
SCHEMA = pa.schema([("examples", pa.list_(pa.int64())), ("tokens", pa.int32())])


class MeasuredIndex(NamedTuple):
    """The index of one side, as it was read back.

    Attributes:
        path: in the build; ``sha256``: of the bytes that were read.
        tally: what is kept of the metrics of its packs.
    """

    path: str
    split: str
    sha256: str
    tally: tallies.Tally


def path_of(split: str) -> str:
    """Where the index of a side is, relative to the build."""
    return f"{FOLDER}/{split}.arrow"


def write(
    folder: Path, split: str, pieces: Sequence[Piece], lengths: npt.NDArray[np.integer]
) -> None:
    """Write the index of a side.

    Args:
        pieces: the packs of each shard; ``lengths``: tokens of each stored example of the side.

    Raises:
        SurroundingsError: the disk is full.
    """
    path = folder / path_of(split)
    with storage.writing(path_of(split), "written"):
        path.parent.mkdir(exist_ok=True)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as out:
            for order, sizes in pieces:
                bounds = offsets_of(sizes)
                tokens = sum_per_row(bounds, lengths[order].astype(np.int64))
                columns = [make_list(bounds, pa.array(order)), pa.array(tokens.astype(np.int32))]
                out.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def read(path: Path) -> pa.Table:
    """An index, memory-mapped.

    Raises:
        OSError, pyarrow.ArrowException: it is missing, or is no such file.
    """
    table = read_file(path)
    if table.schema != SCHEMA:
        raise pa.ArrowInvalid(f"its columns are {', '.join(table.schema.names)}")
    return table


def lengths_of(shards: list[Path]) -> npt.NDArray[np.int32]:
    """Tokens of each example of some shards: nothing but where their ids begin is read."""
    found = [np.zeros(0, np.int32)]
    for path in shards:
        with pa.memory_map(str(path)) as file:
            begins = (list_parts(b.column("input_ids"))[0] for b in pa.ipc.open_stream(file))
            found += [np.diff(one).astype(np.int32) for one in begins]
    return np.concatenate(found)


def measure(
    folder: Path,
    split: str,
    lengths: npt.NDArray[np.integer],
    context: contract.Context,
    planned: Sequence[Piece] | None,
) -> MeasuredIndex:
    """Read the index of a side back, hash it, and measure its packs.

    Args:
        lengths: tokens of each stored example of the side.
        planned: its packs, by shard; None in a finished build.

    Raises:
        GateError: it cannot be read.
    """
    path = folder / path_of(split)
    try:
        sha256 = file_hash.sha256(path)
        table = read(path)
        table.validate(full=True)
    except (OSError, KeyError, pa.ArrowException) as error:
        require_reading(error)
        raise GateError(f"{path_of(split)} cannot be read: {error}.", "Build it again.") from error
    rows = undo_layout.IndexRows(
        table=pa.table({name: whole(table.column(name)) for name in SCHEMA.names}),
        lengths=lengths,
        context=context,
        planned=None if planned is None else _joined(planned),
    )
    tally = tallies.tally(tallies.of_index(rows), tallies.checks_of(context, contract.ROW))
    return MeasuredIndex(path_of(split), split, sha256, tally)


def _joined(pieces: Sequence[Piece]) -> Piece:
    none = np.zeros(0, np.int64)
    order, sizes = (np.concatenate([none, *(piece[i] for piece in pieces)]) for i in (0, 1))
    return order, sizes


def records(indexes: Sequence[MeasuredIndex]) -> dict[str, IndexRecord]:
    """The manifest's ``packs``."""
    return {
        one.split: IndexRecord(
            path=one.path,
            packs=one.tally.rows,
            examples=one.tally.sums["n_examples"],
            tokens=one.tally.sums["n_tokens"],
            sha256=one.sha256,
        )
        for one in indexes
    }


def packs_and_tokens(indexes: Sequence[MeasuredIndex]) -> tuple[int, int]:
    """Packs of all sides, and tokens in them."""
    every = records(indexes).values()
    return sum(one.packs for one in every), sum(one.tokens for one in every)


def held(counts: facts.Counts, packed: dict[str, int]) -> dict[str, int]:
    """What is stored: every example once, copies in the index alone.

    Args:
        packed: what would be stored in packed rows.
    """
    return {
        "examples_kept": counts.held,
        "tokens_kept": counts.held_tokens,
        "trained_kept": counts.held_trained,
        "duplicates_declared": counts.held_equal,
        "indexed_declared": packed["examples_kept"],
        "indexed_once_declared": counts.kept,
        "indexed_tokens_declared": packed["tokens_kept"],
        "indexed_trained_declared": packed["trained_kept"],
        "indexed_duplicates_declared": packed["duplicates_declared"],
    }
