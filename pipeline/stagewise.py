"""Stages one by one: Arrow in, Arrow out, so that any step can be looked at, kept or replaced.

A stage file is an Arrow IPC file whose schema carries the recipe, so only the first command of a
chain needs the options. The chain run by hand gives the same shards as ``pipeline run``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import chain, gather, rejects
from pipeline import plan as planning
from pipeline.build_dir.json_records import one_line
from pipeline.build_dir.records import Reject
from pipeline.config import LISTS, Config
from pipeline.dataset_files import write_split, write_splits
from pipeline.inputs import Input, scan
from pipeline.measured import read
from pipeline.recipe import Recipe, resolve_recipe
from pipeline.tokenizer_files import write_tokenizer
from stages import formats, layouts, readers, weights
from stages.columns import offsets_of
from stages.contract import Batch, Stage
from stages.errors import DataError, UsageError

METADATA = b"posttrain-pipeline"


@dataclass(frozen=True, slots=True)
class StageFile:
    """What a stage file's schema says about it."""

    stage: str
    config: Config
    formats: tuple[str, ...]


def _metadata(recipe: Recipe, stage: str) -> dict[bytes, bytes]:
    recorded = {f.name: getattr(recipe.config, f.name) for f in fields(recipe.config)}
    content = {"stage": stage, "config": recorded, "formats": recipe.formats}
    return {METADATA: json.dumps(content, default=str, sort_keys=True).encode()}


def describe(path: Path) -> StageFile:
    """Read a stage file's recipe.

    Raises:
        UsageError: it is not a stage file.
    """
    try:
        with pa.memory_map(str(path)) as source:
            schema = pa.ipc.open_file(source).schema
        content = json.loads((schema.metadata or {})[METADATA])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise UsageError(
            f"{path} is not a stage file.",
            "Make one with: pipeline stage normalize DATA --task ...",
        ) from error
    options = content["config"]
    options |= {name: Path(options[name]) for name in ("output", "cache_dir")}
    options |= {name: tuple(options[name]) for name in ("data", *LISTS)}
    options["expectations"] = tuple((name, text) for name, text in options["expectations"])
    return StageFile(content["stage"], Config(**options), tuple(content["formats"]))


def _write(path: Path, batches: list[Batch], recipe: Recipe, stage: str) -> None:
    if not batches:
        raise DataError(
            f"Stage {stage} has no rows left to write.", "See the rejects file next to it."
        )
    schema = batches[0].schema.with_metadata(_metadata(recipe, stage))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def _write_rejects(path: Path, refused: Sequence[Reject]) -> int:
    path.write_text("".join(one_line(reject) + "\n" for reject in refused), "utf-8")
    return len(refused)


def _normalized(recipe: Recipe, inputs: Sequence[Input]) -> Iterator[Batch]:
    for source, name in zip(inputs, recipe.formats, strict=True):
        door = recipe.normalize(name)
        first = 0
        for split in source.splits:
            lines_read = 0
            for lines in readers.load(split.reader).read(split):
                named = gather.Source("", source.name, first)
                yield rejects.with_origin(door(lines.records), named, split, lines.records)
                lines_read += lines.lines
            first += lines_read


def _through(batches: Iterable[Batch], stages: Sequence[Stage]) -> tuple[list[Batch], list[Reject]]:
    kept: list[Batch] = []
    refused: list[Reject] = []
    for start in batches:
        batch, gone = chain.through(start, stages)
        refused += rejects.of_batch(gone)
        if batch.num_rows:
            kept.append(batch)
    return kept, refused


def _stages(recipe: Recipe) -> tuple[Stage, ...]:
    kinds = {formats.load(name).token_ids for name in recipe.formats}
    if len(kinds) > 1:
        raise UsageError("Token ids and texts need different stages.", "Run them one by one.")
    return recipe.stages(recipe.formats[0])


def run_until(config: Config, until: str) -> int:
    """From raw data through one stage, into the stage file ``config.output``.

    Returns:
        How many rows were refused; they are named in ``<output>.rejects.jsonl``.

    Raises:
        UsageError: the task has no such stage.
    """
    if config.dedup or config.shuffle or config.test_size:
        raise UsageError(
            "A stage sees one row at a time; --dedup, --shuffle and --test-size need all rows.",
            "Leave them out, or use: pipeline run",
        )
    inputs = scan(config)
    recipe = resolve_recipe(config, inputs)
    stages = _stages(recipe)
    names = ["normalize", *(stage.name for stage in stages)]
    if until not in names:
        raise UsageError(
            f"{config.task} has no stage {until!r}.", f"Its stages: {', '.join(names)}."
        )
    kept, refused = _through(_normalized(recipe, inputs), stages[: names.index(until)])
    config.output.parent.mkdir(parents=True, exist_ok=True)
    count = _write_rejects(Path(f"{config.output}.rejects.jsonl"), refused)
    _write(config.output, kept, recipe, until)
    return count


def _reopened(path: Path, cache_dir: Path) -> tuple[StageFile, Recipe]:
    found = describe(path)
    config = replace(found.config, cache_dir=cache_dir, format=found.formats[0])
    recipe = resolve_recipe(config, [])
    return found, replace(recipe, formats=found.formats)


def _batches(path: Path) -> list[Batch]:
    with pa.memory_map(str(path)) as source:
        file = pa.ipc.open_file(source)
        found = [file.get_batch(i) for i in range(file.num_record_batches)]
    return [batch.replace_schema_metadata(None) for batch in found]


def run_stage(name: str, source: Path, output: Path, cache_dir: Path) -> int:
    """One stage over a stage file.

    Returns:
        How many rows it refused.

    Raises:
        UsageError: the file does not have the columns that the stage reads.
    """
    _, recipe = _reopened(source, cache_dir)
    stages = {stage.name: stage for stage in _stages(recipe)}
    if name not in stages:
        laid = [layouts.load(one).stage for one in recipe.task.layouts]
        known = ", ".join(["normalize", *stages, *laid])
        raise UsageError(f"{recipe.config.task} has no stage {name!r}.", f"Its stages: {known}.")
    batches = _batches(source)
    _require(batches, [*stages[name].reads, *rejects.ORIGIN], name, source)
    kept, refused = _through(batches, [stages[name]])
    count = _write_rejects(Path(f"{output}.rejects.jsonl"), refused)
    _write(output, kept, recipe, name)
    return count


def _require(batches: list[Batch], reads: Sequence[str], name: str, source: Path) -> None:
    missing = sorted(set(reads) - set(batches[0].schema.names if batches else []))
    if missing:
        raise UsageError(
            f"{source} has no {', '.join(missing)}, which stage {name} reads.",
            "Run the stages in the order of: pipeline list stages",
        )


def _encoded(batches: list[Batch]) -> pa.Table:
    """The batches in one piece, without the rows' own texts, which are many bytes."""
    table = pa.Table.from_batches(batches)
    names = [name for name in table.schema.names if name not in ("offset", "raw")]
    return table.select(names).combine_chunks()


def run_layout(name: str, source: Path, output: Path, cache_dir: Path, **options: Any) -> int:
    """Lay encoded examples out as shards of a ``datasets`` directory.

    Returns:
        0: no row is refused here.

    Raises:
        UsageError: the file holds no encoded examples, or the task is not stored so.
    """
    _, recipe = _reopened(source, cache_dir)
    offered = {layouts.load(one).stage: layouts.load(one) for one in recipe.task.layouts}
    if name not in offered:
        raise UsageError(
            f"{recipe.task.name} has no stage {name!r}.", f"Use {' or '.join(offered)}."
        )
    layout = offered[name]
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} is not an empty directory.", "Give another with -o.")
    config = replace(recipe.config, layout=layout.name, **options)
    recipe = replace(recipe, config=config)
    batches = _batches(source)
    kept = [n for n in recipe.task.kept if n not in ("margin", weights.NAME)]
    _require(batches, [*kept, "length"], name, source)
    table = weights.stored(_encoded(batches))
    kept += [weights.NAME] if weights.NAME in table.schema.names else []
    if "margin" in table.schema.names and table.column("margin").null_count < len(table):
        kept.append("margin")
    lengths = table.column("length").to_numpy().astype(np.int64)
    width = layout.width(config.pad_to, int(lengths.max(initial=0)), config.max_length)
    shape = recipe.shape(width)
    side = planning.lay_out("train", np.arange(len(lengths)), lengths, config, width)
    bounds = offsets_of(side.sizes)
    count = len(side.shards) - 1
    files = []
    for index in range(count):
        rows = slice(int(side.shards[index]), int(side.shards[index + 1]))
        files.append(f"data-{index:05d}-of-{count:05d}.arrow")
        gather.write(
            output / "train" / files[-1],
            side.order[bounds[rows.start] : bounds[rows.stop]],
            side.sizes[rows],
            lambda order: table.select(["row_id", *kept]).take(pa.array(order)).combine_chunks(),
            lambda block, sizes: layout.rows(block, sizes, shape),
        )
    schema = read(output / "train" / files[0]).schema
    write_split(output, "train", schema, files, "0" * 16)
    write_splits(output, ["train"])
    write_tokenizer(output / "tokenizer", recipe.model)
    return 0
