"""Parts and plan to shards: each shard is made, written, read back and measured on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from expectations.readback.stored_rows import Planned, Sources
from pipeline.recipe.recipe import Recipe
from pipeline.shards.answers import Answers, Counting
from pipeline.shards.collect import Collector, PartSource
from pipeline.shards.measured import METRICS, Measured, measure
from stages import layouts
from stages.chat_template import loss_weights
from stages.columns import Ints, offsets_of
from stages.errors import SurroundingsError
from stages.files import file_hash
from stages.tokens.folded_labels import unfold

BATCH_ROWS = 256  # rows per record batch: what a random read touches


@dataclass(frozen=True, slots=True)
class Gather:
    """What all shards of a build have in common.

    Attributes:
        starts: index of each part's first example, and the total.
        inputs: all that row ids may name.
        width: of padded rows.
        with_margin: some row of the build has a margin; the others have null.
        with_weights: some row of the build has a loss weight other than 0 and 1.
    """

    recipe: Recipe
    sources: tuple[PartSource, ...]
    inputs: Sources
    starts: Ints
    folder: str
    width: int
    with_margin: bool
    with_weights: bool

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns of the parts that the build's rows do not have."""
        absent = {"margin": not self.with_margin, "loss_weights": not self.with_weights}
        return tuple(name for name, gone in absent.items() if gone)


@dataclass(frozen=True, slots=True)
class ShardWork:
    """One shard to make.

    Attributes:
        path: relative to the build.
        order: examples, as they are stored.
        sizes: how many of them each training row holds.
        tokens, digest: of these examples, as the plan has them.
    """

    path: str
    split: str
    order: Ints
    sizes: Ints
    tokens: Ints
    digest: tuple[Ints, Ints]

    def __str__(self) -> str:
        return f"Shard {self.path}"


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard: what was written, and what was read back."""

    path: str
    split: str
    rows: int
    examples: int
    tokens: int
    bytes: int
    sha256: str
    measured: Measured
    answers: Answers

    @property
    def padding(self) -> int:
        """Stored ids that are none of an example's."""
        return max(0, self.measured.counts.get("n_stored", self.tokens) - self.tokens)

    def at(self, path: str, split: str) -> ShardReport:
        """The report of the same file at another place in a build."""
        measured = replace(self.measured, path=path, split=split)
        return replace(self, path=path, split=split, measured=measured)


def _examples(shared: Gather, collect: Collector, order: Ints) -> pa.Table:
    """The examples of these numbers, in this order, with their row ids."""
    picked = collect.picks(order)
    stored = [name for name in shared.recipe.task.stored if name not in shared.left_out]
    made = {name: collect.values(picked, name) for name in stored}
    made["row_id"] = collect.row_ids(picked)
    table = unfold(pa.table(made))
    return loss_weights.spread(table) if shared.with_weights else table


def write(
    path: Path,
    order: Ints,
    sizes: Ints,
    examples: Callable[[Ints], pa.Table],
    rows: Callable[[pa.Table, Ints], pa.Table],
) -> tuple[str, int]:
    """Write a shard as an Arrow IPC stream, one record batch at a time.

    Args:
        order: the shard's examples; ``sizes``: how many of them each training row holds.
        examples: fetches examples by index; ``rows``: lays them out.

    Returns:
        The file's sha256, and the number of its tokens without padding.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    bounds = offsets_of(sizes)
    tokens = 0
    writer = None
    with pa.OSFile(str(path), "wb") as sink:
        for start in range(0, len(sizes), BATCH_ROWS):
            stop = min(start + BATCH_ROWS, len(sizes))
            block = examples(order[bounds[start] : bounds[stop]])
            tokens += _stored(block)
            table = rows(block, sizes[start:stop])
            writer = writer or pa.ipc.new_stream(sink, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return file_hash.sha256(path), tokens


class _Written(NamedTuple):
    """A shard's file: its size and hash, and its tokens without padding."""

    bytes: int
    sha256: str
    tokens: int


def _stored(table: pa.Table) -> int:
    """Ids of a block of examples, without padding."""
    names = {"input_ids", "chosen_ids", "rejected_ids"} & set(table.schema.names)
    return sum(len(chunk.flatten()) for name in names for chunk in table.column(name).chunks)


def _planned(shared: Gather, shard: ShardWork, collect: Collector) -> Planned:
    """What the rows of a shard must be, from plan and parts: never from what was written."""
    picked = collect.picks(shard.order)
    ordinals = {name: index for index, name in enumerate(shared.inputs.names)}
    source = np.array([ordinals[one.name] for one in shared.sources], np.int64)
    first = np.array([one.first_line for one in shared.sources], np.int64)
    place = {
        "source": source[picked.parts],
        "line": collect.numbers(picked, "line") + first[picked.parts] + 1,
        "sequence": collect.numbers(picked, "sequence"),
    }
    kept = [n for n in shared.recipe.task.stored if n in ("prompt_length", "margin")]
    values = {
        name: collect.values(picked, name).to_numpy(zero_copy_only=False)
        for name in kept
        if name not in shared.left_out
    }
    return Planned(tokens=shard.tokens, digest=shard.digest, place=place, values=values)


def _written(shared: Gather, shard: ShardWork, collect: Collector, counting: Counting) -> _Written:
    """Write a shard.

    Raises:
        SurroundingsError: the disk is full.
    """
    recipe, path = shared.recipe, Path(shared.folder) / shard.path
    layout, shape = layouts.load(recipe.config.plan.layout), recipe.shape(shared.width)

    def examples(order: Ints) -> pa.Table:
        block = _examples(shared, collect, order)
        counting(block)
        return block

    try:
        sha256, tokens = write(
            path,
            shard.order,
            sizes=shard.sizes,
            examples=examples,
            rows=lambda table, sizes: layout.rows(table, sizes, shape),
        )
        return _Written(path.stat().st_size, sha256, tokens)
    except (pa.ArrowInvalid, OSError) as error:
        raise SurroundingsError(
            f"Shard {shard.path} cannot be written: {error}.", "Make room on the disk."
        ) from error


def make_shard(shared: Gather, shard: ShardWork) -> ShardReport:
    """Make, write, read back and measure one shard.

    Raises:
        SurroundingsError: the disk is full.
    """
    recipe = shared.recipe
    source = recipe.config.source
    collect = Collector(shared.sources, shared.starts)
    counting = Counting(recipe.model, source.reasoning == "mask", source.train_on == "all")
    written = _written(shared, shard, collect=collect, counting=counting)
    measured = measure(
        Path(shared.folder) / shard.path,
        shard.path,
        split=shard.split,
        folder=Path(shared.folder) / METRICS,
        context=recipe.context,
        sources=shared.inputs,
        planned=_planned(shared, shard, collect),
    )
    measured.counts["n_rows_planned"] = len(shard.sizes)
    return ShardReport(
        path=shard.path,
        split=shard.split,
        rows=len(shard.sizes),
        examples=len(shard.order),
        tokens=written.tokens,
        bytes=written.bytes,
        sha256=written.sha256,
        measured=measured,
        answers=counting.answers,
    )
