"""``pipeline export``: writes a finished build (or export) in another trainer's columns.

Ids and labels stay the same; only columns, layout and file type change.
"""

import itertools
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline import exports
from pipeline.builder import export_gate, launch
from pipeline.builds import failed, limits, publish, stored
from pipeline.builds import packs as rows
from pipeline.builds.build import Build
from pipeline.builds.packs import Packs
from pipeline.exports import Export, ExportFacts, Projection
from pipeline.manifest import dataset_files, json_records
from pipeline.manifest import manifest as records
from pipeline.manifest.counts import PackingCounts, PaddingCounts
from pipeline.manifest.records import SERVING, TOKENIZER, VALIDATION
from pipeline.report import card
from stages.columns import Ints, numbers, offsets_of, whole
from stages.errors import UsageError
from stages.files import file_hash
from stages.tokens import layouts, ragged

_CARRIED = (TOKENIZER, SERVING, VALIDATION)  # copied from the build unchanged


def _even(total: int, parts: int) -> list[int]:
    """Bounds of so many parts of nearly equal size; fewer parts where one would be empty."""
    parts = max(1, min(parts, total))
    return [total * i // parts for i in range(parts + 1)]


def _length(table: pa.Table) -> Ints:
    """Tokens of each example, int64 [examples]; of a pair, those of its longer side."""
    names = [n for n in ("input_ids", "chosen_ids", "rejected_ids") if n in table.schema.names]
    each = [np.diff(numbers(whole(table.column(name)))[0]) for name in names]
    return np.asarray(np.maximum.reduce(each), np.int64)


def _examples(source: Build, split: str) -> tuple[pa.Table, int]:
    """The examples that a split trains, and how many shards they are in.

    Where packs are an index, these are the ones in packs, in their order.
    """
    if source.manifest.packs:
        packs = Packs(source, split)
        return packs.examples(packs.members(0, len(packs))[0]), len(packs.shards())
    shards = [rows.examples(t) for t in source.splits[split].tables()]
    return pa.concat_tables(shards), len(shards)


def _relaid(source: Build, split: str, facts: ExportFacts) -> Iterator[tuple[pa.Table, Ints]]:
    """The shards of one split in another layout, each with the number of examples in its rows."""
    table, count = _examples(source, split)
    lengths = _length(table.combine_chunks())
    layout, model = layouts.load(facts.layout), facts.model
    order, sizes = layout.plan(lengths, facts.max_length)
    width = layout.width("longest", int(lengths.max()), facts.max_length)
    types = model.pair is not None and model.pair.token_types
    shape = layouts.Shape(
        width=width, padding_side=model.padding_side, pad_id=model.pad_token_id, token_types=types
    )
    # order lists all examples row by row; at says where each row begins in it.
    at, bounds = offsets_of(sizes), _even(len(sizes), count)
    for start, stop in itertools.pairwise(bounds):
        block = table.take(pa.array(order[at[start] : at[stop]])).combine_chunks()
        yield layout.rows(block, sizes[start:stop], shape), sizes[start:stop]


def _as_stored(source: Build, split: str) -> Iterator[tuple[pa.Table, Ints]]:
    for table in source.splits[split].tables():
        yield table, ragged.sizes(table)


def _copied(table: pa.Table) -> pa.Table:
    """The same with buffers of its own: the bytes of a slice depend on what it was cut from, and
    those of a build's shards do not."""
    columns = [pa.concat_arrays([whole(column)]) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _shards_of(
    source: Build, split: str, facts: ExportFacts
) -> tuple[int, Iterable[tuple[pa.Table, Ints]]]:
    """How many shards an export of a split has, and each with the examples in its rows."""
    if source.manifest.packs and facts.layout == layouts.PACKED:
        packs = Packs(source, split)
        some = packs.shards()  # as the packed rows would have been written
        return len(some), ((packs.table(*one), packs.members(*one)[1]) for one in some)
    same = facts.layout == source.manifest.layout
    made = list(_as_stored(source, split) if same else _relaid(source, split, facts))
    return len(made), made


def _tokens(table: pa.Table) -> tuple[int, int]:
    """How many tokens a shard has, without padding and with it."""
    names = [n for n in ("input_ids", "chosen_ids", "rejected_ids") if n in table.schema.names]
    total = sum(len(whole(table.column(n)).flatten()) for n in names)
    masks = [n for n in table.schema.names if n.endswith("attention_mask")]
    if not masks:
        return total, total
    return sum(int(whole(table.column(n)).flatten().to_numpy().sum()) for n in masks), total


def _write_split(
    source: Build,
    split: str,
    facts: ExportFacts,
    folder: Path,
    projection: Projection | None = None,
    container: str = "arrow",
) -> tuple[records.SplitRecord, int]:
    """Write the shards of a split; returns their record and the padding tokens in them.

    Args:
        projection: to the trainer's columns; None writes ours.
        container: ``arrow``, ``parquet`` or ``jsonl``.
    """
    count, tables = _shards_of(source, split, facts)
    shards: list[records.ShardRecord] = []
    names: list[str] = []
    examples, padding, schema = 0, 0, None
    for index, (table, sizes) in enumerate(tables):
        path = stored.path_of(split, index, count, container)
        with stored.Sink(folder, path, projection) as sink:
            for start in range(0, len(table), stored.BATCH_ROWS):
                piece = table.slice(start, stored.BATCH_ROWS).combine_chunks()
                sink.write(_copied(piece) if source.manifest.packs else piece)
        tokens, total = _tokens(table)
        size, sha256 = (folder / path).stat().st_size, file_hash.sha256(folder / path)
        shards.append(records.ShardRecord(path, len(table), tokens, size, sha256))
        examples, padding = examples + int(sizes.sum()), padding + total - tokens
        arrow = folder / stored.arrow_of(path)
        names, schema = [*names, arrow.name], stored.read_file(arrow).schema
    dataset_files.write_split(folder, split, schema, names, key=shards[0].sha256)
    stored_rows, tokens = sum(s.rows for s in shards), sum(s.tokens for s in shards)
    return records.SplitRecord(stored_rows, examples, tokens, tuple(shards)), padding


def _fit(source: Build, export: Export, layout: str) -> ExportFacts:
    """The facts of the export; its layout is the build's if the trainer takes that one."""
    facts = source.facts
    if not layout:
        taken = export.takes.get(facts.kind.trains_as, ())
        layout = facts.layout if facts.layout in taken else export.layout(facts.task, taken)
    facts = replace(facts, layout=layout)
    export.require(facts)
    return facts


def _describe(
    source: Build,
    facts: ExportFacts,
    export: Export,
    splits: dict[str, records.SplitRecord],
    padding: int,
) -> records.Manifest:
    manifest = source.manifest
    rows_made = sum(split.rows for split in splits.values())
    tokens = sum(split.tokens for split in splits.values())
    packs = pads = None
    layout = layouts.load(facts.layout)
    if layout.packs:
        same = facts.layout == manifest.layout or bool(manifest.packs)
        bound = manifest.packing.lower_bound if same and manifest.packing else None
        packs = PackingCounts(rows_made, round(tokens / (rows_made * facts.max_length), 6), bound)
    if layout.pads:
        width = (tokens + padding) // rows_made // len(facts.kind.ids)  # a pair has two sequences
        pads = PaddingCounts(width, round(padding / (tokens + padding), 6))
    exported = replace(
        manifest,
        layout=facts.layout,
        splits=splits,
        packs={},
        tokens=replace(manifest.tokens, total=tokens, padding=padding),
        packing=packs,
        padding=pads,
        for_=None,
        export=records.ExportRecord(export.name, manifest.build_id),
    )
    return replace(exported, build_id=records.id_of_manifest(exported))


def _write(source: Build, export: Export, facts: ExportFacts, staged: Path) -> records.Manifest:
    """A whole export, in an empty directory."""
    projection = export.projection(facts)
    written = {
        split: _write_split(source, split, facts, staged, projection, export.container)
        for split in facts.splits
    }
    padding = sum(tokens for _, tokens in written.values())
    dataset_files.write_splits(staged, list(written))
    for entry in _CARRIED:
        origin = source.folder / entry
        if origin.is_dir():
            shutil.copytree(origin, staged / entry)
        elif origin.exists():
            shutil.copyfile(origin, staged / entry)
    splits = {split: record for split, (record, _) in written.items()}
    manifest = _describe(source, facts, export, splits, padding)
    first = manifest.shards[0].path
    manifest = replace(manifest, columns=stored.columns_of(staged, first, projection))
    manifest = replace(manifest, trainers=exports.verdicts(exports.facts_of(manifest)))
    launch.write(staged, export, manifest)
    card.write(Build(staged, manifest))
    manifest = json_records.sealed(replace(manifest, files=stored.hash_files(staged, {})))
    dataset_files.write_json(staged / records.MANIFEST, json_records.as_json(manifest))
    export_gate.require(Build(staged, manifest), source)
    return manifest


def bring_back(source: Build, folder: Path) -> Build:
    """Write an export's rows in our columns, as a build has them, into an empty folder.

    Returns:
        A build of these shards alone; its manifest is the export's, with the new splits.
    """
    splits = {s: _write_split(source, s, source.facts, folder)[0] for s in source.facts.splits}
    dataset_files.write_splits(folder, list(splits))
    return Build(folder, replace(source.manifest, splits=splits, export=None))


def export_build(name: str, folder: Path, output: Path, layout: str = "") -> limits.Built:
    """Write a build for another trainer.

    Raises:
        UsageError: the trainer cannot train from it, with the reason, or the output has another
            build or export.
        DataError: the build is damaged.
    """
    failed.begin()
    export, source = exports.load(name), Build.open(folder).fetched().require_intact()
    facts = _fit(source, export, layout)
    if Path(output).resolve() == Path(folder).resolve():
        raise UsageError(f"{output} is the build itself.", "Give another directory with -o.")
    target = publish.check_target(output)
    _require_replaceable(output, source, export)
    with publish.staging(target) as staged:
        written = Build(output, _write(source, export, facts, staged))
        there = failed.publishing(limits.Built(written, fresh=True), publish.moment(staged, target))
        publish.publish(staged, target)
    return there


def _require_replaceable(output: Path, source: Build, export: Export) -> None:
    """Require that what an export takes the place of is the same one of other rows.

    Raises:
        UsageError: it is a build, or an export for another trainer, task or model.
    """
    if publish.id_of(output) is None:
        return
    there, new = Build.open(output).manifest, source.manifest
    another = "Give another directory with -o."
    if there.export is None:
        raise UsageError(f"{output} is a build, and no export takes the place of one.", another)
    was = (there.export.trainer, there.task, there.model.name)
    if was != (export.name, new.task, new.model.name):
        raise UsageError(f"{output} is an export of {was[1]} for {was[0]} and {was[2]}.", another)


def for_trainer(folder: Path, manifest: records.Manifest, name: str) -> records.Manifest:
    """The manifest of a build whose shards are written, with a verdict for every trainer.

    For the trainer of ``--for`` a launch script is written too. If it does not read our columns,
    its rows are exported to a folder of its name in the build.

    Args:
        name: of ``--for``; empty for none.

    Raises:
        UsageError: that trainer cannot train from this build.
    """
    paths = [folder / shard.path for shard in manifest.shards]
    names = tuple(stored.read_file(paths[0]).schema.names)
    described = replace(manifest, columns=names, for_=name or None)
    if described.prm:
        tables = map(stored.read_file, paths)
        labels = [chunk for table in tables for chunk in table.column("step_labels").chunks]
        unrated = sum(chunk.flatten().null_count for chunk in labels)
        told = {"unlabelled": unrated > 0, "unrated": unrated or None}
        described = replace(described, prm=replace(described.prm, **told))
    source = Build(folder, described)
    verdicts = exports.verdicts(source.facts)
    if name:
        export = exports.load(name)
        export.require(source.facts)
        if export.projection(source.facts) is None:
            launch.write(folder, export, described)
            export_gate.require_scripts(Build(folder, described), name)
        else:
            (folder / name).mkdir()
            _write(source, export, source.facts, folder / name)
            launch.forward(folder, name)
    return replace(described, trainers=verdicts)
