"""Parts and plan to shards: each shard is made, written, read back and measured on its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from expectations.stored_rows import Sources
from pipeline.executors import Amount
from pipeline.inputs.recipe import Recipe
from pipeline.shards.answers import Answers, Counting
from pipeline.shards.collect import Collector, PartSource, Picks
from pipeline.shards.expected import Expected
from pipeline.shards.measured import METRICS, Measured, Wanted, measure
from pipeline.shards.storage import share, writing
from stages.chat_template import loss_weights
from stages.columns import Ints, offsets_of, whole
from stages.tokens import folded_labels, layouts

BATCH_ROWS = 256  # rows per record batch: what a random read touches
BLOCK_TOKENS = 1 << 20  # laid out at once, about


@dataclass(frozen=True, slots=True)
class Gather:
    """What all shards of a build have in common.

    Attributes:
        inputs: all that row ids may name.
        width: of padded rows.
        with_margin: some row of the build has a margin; the others have null.
        with_weights: some row of the build has a loss weight other than 0 and 1.
        tables: whole tables of metrics are written, for suites of the user.
        sources: the parts of the window whose shards are made; ``starts``: index of each one's
            first example in it, and the total.
    """

    recipe: Recipe
    inputs: Sources
    folder: str
    width: int
    with_margin: bool
    with_weights: bool
    tables: bool
    sources: tuple[PartSource, ...] = ()
    starts: Ints = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def stored(self) -> list[str]:
        """Columns of the parts that the build's rows are made of."""
        absent = {"margin": not self.with_margin, "loss_weights": not self.with_weights}
        return [name for name in self.recipe.task.stored if not absent.get(name)]


@dataclass(frozen=True, slots=True)
class ShardWork:
    """One shard to make.

    Attributes:
        path: relative to the build.
        order: examples, as they are stored.
        sizes: how many of them each training row holds.
    """

    path: str
    split: str
    order: Ints
    sizes: Ints

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
    def amount(self) -> Amount:
        """What progress says of it."""
        return Amount(rows=self.rows, tokens=self.tokens)

    @property
    def padding(self) -> int:
        """Stored ids that are none of an example's."""
        return max(0, self.measured.counts.get("n_stored", self.tokens) - self.tokens)

    def at(self, path: str, split: str) -> "ShardReport":
        """The report of the same file at another place in a build."""
        measured = replace(self.measured, path=path, split=split)
        return replace(self, path=path, split=split, measured=measured)


def _examples(shared: Gather, collect: Collector, picked: Picks) -> Callable[[int, int], pa.Table]:
    """The picked examples from .. to .., with their row ids and the names of their sources."""
    fetched = {name: collect.blocks(picked, name) for name in shared.stored}
    fetched["row_id"] = collect.row_ids(picked)
    if shared.recipe.config.named:
        fetched["source"] = collect.source_names(picked)

    def examples(first: int, last: int) -> pa.Table:
        collect.forget()  # the block before
        table = pa.table({name: column(first, last) for name, column in fetched.items()})
        table = folded_labels.unfold(table, shared.recipe.marker)
        return loss_weights.spread(table) if shared.with_weights else table

    return examples


def write(
    path: Path,
    sizes: Ints,
    examples: Callable[[int, int], pa.Table],
    rows: Callable[[pa.Table, Ints], pa.Table],
    at_once: int = BATCH_ROWS,
) -> int:
    """Write a shard as an Arrow IPC stream in record batches of ``BATCH_ROWS`` rows.

    Args:
        sizes: how many examples each training row holds.
        examples: fetches a range of the shard's examples; ``rows``: lays them out.
        at_once: training rows that are laid out together: a multiple of ``BATCH_ROWS``.

    Returns:
        The number of its tokens without padding.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    bounds = offsets_of(sizes).tolist()
    tokens = 0
    writer = None
    with pa.OSFile(str(path), "wb") as sink:
        for start in range(0, len(sizes), at_once):
            stop = min(start + at_once, len(sizes))
            block = examples(bounds[start], bounds[stop])
            tokens += _stored(block)
            table = rows(block, sizes[start:stop])
            writer = writer or pa.ipc.new_stream(sink, table.schema)
            for batch in _batches(table):
                writer.write_batch(batch)
        if writer is not None:
            writer.close()
    return tokens


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The table in record batches of ``BATCH_ROWS`` rows, each with buffers of its own.

    The bytes of a slice depend on what it was cut from; a shard's do not depend on its blocks.
    """
    for start in range(0, len(table), BATCH_ROWS):
        columns = [whole(column) for column in table.columns]
        if len(table) > BATCH_ROWS:
            columns = [pa.concat_arrays([one.slice(start, BATCH_ROWS)]) for one in columns]
        yield pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _at_once(shared: Gather, sizes: Ints, tokens: Ints) -> int:
    """Training rows of about ``BLOCK_TOKENS`` tokens, padding included."""
    stored = shared.width * len(sizes) or int(tokens.sum())
    return max(1, BLOCK_TOKENS * len(sizes) // max(stored, 1) // BATCH_ROWS) * BATCH_ROWS


def _stored(table: pa.Table) -> int:
    """Ids of a block of examples, without padding."""
    names = {"input_ids", "chosen_ids", "rejected_ids"} & set(table.schema.names)
    return sum(len(chunk.flatten()) for name in names for chunk in table.column(name).chunks)


def _written(shared: Gather, shard: ShardWork, collect: Collector, counting: Counting) -> int:
    """Write a shard; the number of its tokens without padding.

    Raises:
        SurroundingsError: the disk is full.
    """
    recipe, path = shared.recipe, Path(shared.folder) / shard.path
    layout, shape = layouts.load(recipe.config.plan.layout), recipe.shape(shared.width)
    picked = collect.picks(shard.order)
    fetch = _examples(shared, collect, picked)

    def examples(first: int, last: int) -> pa.Table:
        block = fetch(first, last)
        counting(block)
        return block

    lengths = collect.numbers(picked, "length")
    with writing(str(shard), "written"):
        return write(
            path,
            shard.sizes,
            examples=examples,
            rows=lambda table, sizes: layout.rows(table, sizes, shape),
            at_once=_at_once(shared, shard.sizes, lengths),
        )


def named_inputs(inputs: Sources) -> list[PartSource]:
    """What examples are named after where they no longer lie in their parts."""
    named = inputs.named or ("",) * len(inputs.names)
    return [PartSource("", name, 0, of) for name, of in zip(inputs.names, named, strict=True)]


_opened: list[tuple[Gather, Collector]] = []  # of the build that this process works for


def _collector(shared: Gather) -> Collector:
    """The mapped parts of a build, kept from shard to shard: a shuffled one has rows of all."""
    if not _opened or _opened[0][0] is not shared:
        share(shared.recipe.config.run.cache / "parts", shared.recipe.config.run.shared)
        collect = Collector(shared.sources, shared.starts, named_inputs(shared.inputs))
        _opened[:] = [(shared, collect)]
    return _opened[0][1]


def forget() -> None:
    """Let go of the parts that this process has mapped."""
    _opened.clear()


def _counting(recipe: Recipe) -> Counting:
    """What counts a shard's answers, whatever sources they are from.

    An answer begins at its first trained token only where no source has reasoning as context or
    trains the prompts too. Trained turns that follow no known prompt are those of other roles where
    all sources train them; where only some do, they may be answers, and lengths are unknown.
    """
    sources = [one.options for one in recipe.config.sources]
    whole = [one.train_on == "all" for one in sources]
    masked = any(one.reasoning == "mask" for one in sources) or (any(whole) and not all(whole))
    return Counting(recipe.model, masked, all(whole))


def make_shard(shared: Gather, shard: ShardWork) -> ShardReport:
    """Make, write, read back and measure one shard.

    Raises:
        SurroundingsError: the disk is full.
    """
    counting = _counting(shared.recipe)
    tokens = _written(shared, shard, collect=_collector(shared), counting=counting)
    return read_back(shared, shard, tokens, counting.answers)


def read_back(shared: Gather, shard: ShardWork, tokens: int, answers: Answers) -> ShardReport:
    """Measure a shard that is written.

    Args:
        tokens: of its examples; ``answers``: counted when it was written.

    Raises:
        GateError: a metric cannot be computed, so the rows cannot be judged.
    """
    recipe, collect = shared.recipe, _collector(shared)
    expected = Expected(
        collect,
        shared.sources,
        shared.inputs,
        starts=shared.starts,
        order=shard.order,
        stored=shared.stored,
        marker=recipe.marker,
    )
    folder = Path(shared.folder)
    wanted = Wanted(folder / METRICS, recipe.context, shared.inputs, shared.tables)
    path = folder / shard.path
    measured = measure(path, shard.path, shard.split, wanted=wanted, plan=expected)
    collect.forget()
    measured.counts["n_rows_planned"] = len(shard.sizes)
    return ShardReport(
        path=shard.path,
        split=shard.split,
        rows=len(shard.sizes),
        examples=len(shard.order),
        tokens=tokens,
        bytes=measured.state.size,
        sha256=measured.sha256,
        measured=measured,
        answers=answers,
    )
