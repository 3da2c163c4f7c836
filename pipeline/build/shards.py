"""From the plan to the shards of a dataset directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import pyarrow as pa

from expectations.readback.stored_rows import Sources
from pipeline.build.parallel import Report, in_parallel
from pipeline.build.preparation import Prepared
from pipeline.choice.values import Piece
from pipeline.manifest.dataset_files import write_json, write_split, write_splits
from pipeline.manifest.records import SERVING
from pipeline.parts.part import PartReport, Work
from pipeline.publish.place import before
from pipeline.recipe import equal_build
from pipeline.serving import inference
from pipeline.serving.tokenizer_files import write_tokenizer
from pipeline.shards import gather, kept
from pipeline.shards.collect import PartSource
from pipeline.shards.gather import Gather, ShardReport, ShardWork
from pipeline.shards.kept import Keeping
from pipeline.shards.measured import METRICS, read
from pipeline.shards.plan import ShardPlan
from stages import formats
from stages.columns import Ints


def sources_of(
    prepared: Prepared, works: Sequence[Work], reports: Sequence[PartReport]
) -> list[PartSource]:
    """Where each part's examples come from: its file, and the line of it at which it starts."""
    sources = []
    for source, numbers in zip(prepared.inputs, prepared.of_inputs(range(len(works))), strict=True):
        line = 0
        for number in numbers:
            path = str(works[number].path)
            sources.append(PartSource(path, source.name, line, source.source_name))
            line += reports[number].lines
    return sources


def pieces_of(
    works: Sequence[Work], reports: Sequence[PartReport], sources: Sequence[PartSource]
) -> list[Piece]:
    """The parts, as filters and the choice among equal examples read them."""
    return [
        Piece(
            path=work.path,
            name=source.name,
            first_line=source.first_line,
            source=work.source,
            unread=frozenset(report.counts.get("unread_rows", ())),
        )
        for work, report, source in zip(works, reports, sources, strict=True)
    ]


def lines_of_parts(plan: ShardPlan, reports: Sequence[PartReport]) -> Iterator[Ints]:
    """The line of each example in its split, part by part.

    The plan counts lines over all inputs, so the lines of the parts before are taken off again.
    """
    before = 0
    for index, report in enumerate(reports):
        first, last = plan.examples.starts[index : index + 2]
        yield plan.examples.row[first:last] - before
        before += report.lines


class _Shards(Sequence[ShardWork]):
    """The shards to make, each put together when its turn comes: together they would take as much
    memory as the plan."""

    def __init__(self, plan: ShardPlan) -> None:
        self._pieces = [(side.name, *piece) for side in plan.sides for piece in side.pieces()]

    def __len__(self) -> int:
        return len(self._pieces)

    @overload
    def __getitem__(self, index: int) -> ShardWork: ...

    @overload
    def __getitem__(self, index: slice) -> list[ShardWork]: ...

    def __getitem__(self, index: int | slice) -> ShardWork | list[ShardWork]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        split, path, order, sizes = self._pieces[index]
        return ShardWork(path=path, split=split, order=order, sizes=sizes)


def _named(prepared: Prepared) -> Sources:
    """What row ids may name, and which of it rates steps up to the first error only."""
    return Sources(
        names=tuple(source.name for source in prepared.inputs),
        first_error=tuple(map(formats.rates_to_first_error, prepared.recipe.formats)),
        named=tuple(source.source_name for source in prepared.inputs if source.source_name),
    )


def _keeping(shared: Gather, parts: Sequence[PartReport]) -> Keeping:
    """What shards are taken over by."""
    run = shared.recipe.config.run
    cache = run.cache_dir / kept.FOLDER
    return Keeping(
        gather=shared,
        recipe=shared.recipe.fingerprint,
        parts=tuple(part.sha256 for part in parts),
        previous=kept.previous(before(run.place, run.keep or bool(run.address)), cache),
        hashes=equal_build.known_hashes(shared.recipe.config),
        cache=str(cache),
    )


def write_shards(
    prepared: Prepared,
    plan: ShardPlan,
    folder: Path,
    *,
    parts: Sequence[PartReport],
    sources: Sequence[PartSource],
    with_margin: bool,
    tables: bool,
    report: Report,
) -> list[ShardReport]:
    """Write every shard, read it back and judge it; numbers of it lie in ``folder / METRICS`` then.

    Args:
        parts: what was counted in each; sources: where each is and what its rows are called.
        with_margin: some pair of the build has a margin.
        tables: write whole tables of metrics there too.
    """
    recipe = prepared.recipe
    shared = Gather(
        recipe=recipe,
        sources=tuple(sources),
        inputs=_named(prepared),
        starts=plan.examples.starts,
        folder=str(folder),
        width=plan.width,
        with_margin=with_margin,
        # The column is stored for all rows or for none.
        with_weights=any(part.weighted for part in parts),
        tables=tables,
    )
    (folder / METRICS).mkdir()
    try:
        return in_parallel(
            kept.make,
            _keeping(shared, parts),
            _Shards(plan),
            run=recipe.config.run,
            report=report,
            what="write",
        )
    finally:
        gather.forget()


def _schema(folder: Path, shards: Sequence[ShardReport]) -> pa.Schema:
    """That of the first shard that opens; the gate names those that do not."""
    for shard in shards:
        if shard.measured.counts["opens_pyarrow"]:
            return read(folder / shard.path).schema
    return pa.schema([])


def write_dataset(folder: Path, prepared: Prepared, shards: Sequence[ShardReport]) -> None:
    """The files beside the shards: those of ``datasets``, the tokenizer and the stop contract."""
    sides = list(dict.fromkeys(shard.split for shard in shards))
    for side in sides:
        own = [shard for shard in shards if shard.split == side]
        names = [Path(shard.path).name for shard in own]
        write_split(folder, side, _schema(folder, own), shards=names, key=prepared.build_id)
    write_splits(folder, sides)
    write_tokenizer(folder / "tokenizer", prepared.recipe.model)
    write_json(folder / SERVING, inference.contract(prepared.recipe, shards))
