"""Fourth phase: the plan to shards, in one process or in several, now or later.

Shards go where the build is assembled, or into its workspace in the cache, by processes that make
some of them each. A build that is assembled later takes over what lies there.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from expectations.stored_rows import Sources
from pipeline.builder.planning import Planned, workspace_of
from pipeline.builder.preparation import Prepared, in_parallel
from pipeline.builds.place import before
from pipeline.builds.stored import read_file
from pipeline.executors import Result
from pipeline.inputs import declared, equal_build
from pipeline.manifest.dataset_files import write_json, write_split, write_splits
from pipeline.manifest.records import SERVING
from pipeline.messages.progress import WRITE, Report, Whole
from pipeline.serving import serving
from pipeline.shards import pack_index, reused_shards, window_plan
from pipeline.shards.gather import Gather, ShardReport
from pipeline.shards.measured import METRICS
from stages import formats


def _named(prepared: Prepared) -> Sources:
    """What row ids may name, and which of it rates steps up to the first error only."""
    return Sources(
        names=tuple(source.name for source in prepared.inputs),
        first_error=tuple(formats.load(one).first_error for one in prepared.recipe.formats),
        named=tuple(source.source_name for source in prepared.inputs if source.source_name),
    )


def _keeping(prepared: Prepared, planned: Planned, folder: Path) -> reused_shards.Keeping:
    """What all shards of a build have in common, and what they are taken over by.

    Args:
        folder: where they are written.
    """
    config, recipe, rated = prepared.config, prepared.recipe, planned.outline.counts.margins
    run, model, cache = config.run, recipe.model, config.run.cache / reused_shards.FOLDER
    # Somebody's own suite or page is about every row, not only those that decide.
    tables = bool(config.judge.expectations) or run.data_docs is not None
    gather = Gather(
        recipe=recipe,
        inputs=_named(prepared),
        folder=str(folder),
        width=planned.outline.width,
        with_margin=bool(rated and rated.present),
        # The column is stored for all rows or for none.
        with_weights=any(part.weighted for part in planned.reports),
        tables=tables,
    )
    return reused_shards.Keeping(
        gather=gather,
        recipe=f"{recipe.fingerprint} {tables}",
        rows=declared.fingerprint_of_rows(config, model.profile, model.tokenizer_json),
        previous=reused_shards.previous(before(run.place, run.keep or bool(run.address)), cache)
        | reused_shards.found(workspace_of(prepared), cache),
        hashes=equal_build.known_hashes(config),
        cache=str(cache),
        compared=planned.compared,
    )


def _each(
    function: Callable[[reused_shards.Keeping, window_plan.ShardRef], Result],
    prepared: Prepared,
    planned: Planned,
    folder: Path,
    *,
    shards: Sequence[window_plan.ShardRef],
    report: Report,
    whole: Whole | None = None,
) -> list[Result]:
    """What a function makes of shards, which are written into a folder."""
    prepared = prepared.encoded_by(planned.backend)
    run = prepared.config.run
    try:
        return in_parallel(
            function,
            _keeping(prepared, planned, folder),
            shards,
            run=run,
            report=report,
            what=WRITE,
            folders=(run.cache, folder),
            whole=whole,
        )
    finally:
        window_plan.forget()


def write_shards(
    prepared: Prepared, planned: Planned, folder: Path, report: Report
) -> list[ShardReport]:
    """Write every shard, read it back and judge it; numbers of it lie in ``folder / METRICS`` then.

    Shards that lie in the workspace, or in the build that this one replaces, are taken over.
    """
    (folder / METRICS).mkdir()
    row = "pack" if prepared.config.plan.layout == "packed" else "row"
    whole = Whole(pieces=planned.n_shards, row=row)
    make, every = window_plan.make, planned.shards
    return _each(make, prepared, planned, folder, shards=every, report=report, whole=whole)


def make_shards(
    prepared: Prepared, planned: Planned, report: Report, numbers: Sequence[int] | None = None
) -> int:
    """Make shards into the build's workspace; those that are there already are not made again.

    The build that ``assemble`` or ``finish`` makes of the same cache takes them over.

    Args:
        numbers: of the shards, below ``planned.n_shards``; None for all.

    Returns:
        How many were made.

    Raises:
        UsageError: another version of the program prepared the build.
        SurroundingsError: the disk is full.
    """
    prepared.require_current()
    every = planned.shards
    some = every if numbers is None else [every[number] for number in numbers]
    with reused_shards.own(workspace_of(prepared)) as folder:
        new = _each(window_plan.leave, prepared, planned, folder, shards=some, report=report)
    return sum(new)


def write_index(
    prepared: Prepared, planned: Planned, folder: Path, shards: Sequence[ShardReport]
) -> tuple[pack_index.MeasuredIndex, ...]:
    """Write which examples are in which pack, and read it back; nothing where packs are rows.

    Raises:
        SurroundingsError: the disk is full.
        GateError: what was written cannot be read.
    """
    context, measured = prepared.recipe.context, []
    for split, pieces in planned.index().items():
        own = [folder / shard.path for shard in shards if shard.split == split]
        lengths = pack_index.lengths_of(own)
        pack_index.write(folder, split, pieces, lengths)
        measured.append(pack_index.measure(folder, split, lengths, context, pieces))
    return tuple(measured)


def _schema(folder: Path, shards: Sequence[ShardReport]) -> pa.Schema:
    """That of the first shard that opens; the gate names those that do not."""
    for shard in shards:
        if shard.measured.counts["opens_pyarrow"]:
            return read_file(folder / shard.path).schema
    return pa.schema([])


def write_dataset(folder: Path, prepared: Prepared, shards: Sequence[ShardReport]) -> None:
    """The files beside the shards: those of ``datasets`` and the stop contract."""
    sides = list(dict.fromkeys(shard.split for shard in shards))
    for side in sides:
        own = [shard for shard in shards if shard.split == side]
        names = [Path(shard.path).name for shard in own]
        write_split(folder, side, _schema(folder, own), shards=names, key=prepared.build_id)
    write_splits(folder, sides)
    write_json(folder / SERVING, serving.contract_of(prepared.recipe, shards))
