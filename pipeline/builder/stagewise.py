"""Stages one by one: Arrow in, Arrow out, so that any step can be looked at, kept or replaced.

A stage file is an Arrow IPC file whose schema carries the recipe, so only the first command of a
chain needs the options. The chain run by hand gives the same shards as ``pipeline run``.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.contract import STREAM, Context
from pipeline import secrets, tasks
from pipeline.builder import rejects
from pipeline.builds.stored import read_file
from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.inputs.scan import Input, scan
from pipeline.manifest import dataset_files, json_records, records
from pipeline.options.config import Config, from_record
from pipeline.options.paths import require_local
from pipeline.serving.serving import write_tokenizer
from pipeline.shards import chain, collect, gather
from pipeline.shards import plan as planning
from stages import columns, formats, readers
from stages.chat_template import loss_weights
from stages.contract import Batch, Record, Split, Stage
from stages.errors import DataError, UsageError
from stages.files import file_hash
from stages.rows.carried import IDENTITY
from stages.tokens import folded_labels, layouts, pretokenized

METADATA = b"posttrain-pipeline"
_ORIGIN = ("row_id", "offset", "raw")  # columns of a stage file


@dataclass(frozen=True, slots=True)
class StageFile:
    """What a stage file's schema says about it."""

    stage: str
    config: Config
    formats: tuple[str, ...]


def _metadata(recipe: Recipe, stage: str) -> dict[bytes, bytes]:
    config = recipe.config
    # By their spelling too, since a later stage must find the model again.
    named = {"data": [*map(secrets.shown, config.source.data)], "model": config.parts.model}
    content = {"stage": stage, "config": config.for_build | named, "formats": recipe.formats}
    return {METADATA: json.dumps(content, sort_keys=True).encode()}


def describe(path: Path, cache_dir: Path) -> StageFile:
    """Read a stage file's recipe; of the options of a run it has none.

    Raises:
        UsageError: it is not a stage file.
    """
    try:
        with pa.memory_map(file_hash.required(str(path))) as source:
            schema = pa.ipc.open_file(source).schema
        content = json.loads((schema.metadata or {})[METADATA])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise UsageError(
            f"{path} is not a stage file.",
            "Make one with: pipeline stage normalize DATA --task ...",
        ) from error
    config = Config.of(output=path, cache_dir=cache_dir, **from_record(content["config"]))
    return StageFile(content["stage"], config, tuple(content["formats"]))


def _write(path: Path, batches: list[Batch], recipe: Recipe, stage: str) -> None:
    if not batches:
        raise DataError(
            f"Stage {stage} has no rows left to write.", "See the rejects file next to it."
        )
    batches = [folded_labels.unfold(batch) for batch in batches]
    schema = batches[0].schema.with_metadata(_metadata(recipe, stage))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def _with_origin(
    batch: Batch, source: collect.PartSource, split: Split, records: Sequence[Record]
) -> Batch:
    """What normalize made of records, with the columns ``_ORIGIN``.

    A stage file has them, so that a stage that runs alone can write down what it refuses.
    """
    by_line = {record.line: record for record in records}
    rows = [by_line[line] for line in batch.column("line").to_pylist()]
    offsets = [rejects.in_file(split, record.offset) for record in rows]
    batch = columns.put(batch, "row_id", collect.row_ids_of(source, batch))
    batch = columns.put(batch, "offset", pa.array(offsets, pa.int64()))
    return columns.put(batch, "raw", pa.array(map(chain.raw_text, rows), pa.string()))


def _refused(gone: Iterable[chain.Gone]) -> list[records.Reject]:
    """The refused rows of one batch of a stage file, in input order.

    Args:
        gone: with the columns ``_ORIGIN``.
    """
    found: list[records.Reject] = []
    for one in gone:
        origins = zip(*(one.rows.column(name).to_pylist() for name in _ORIGIN), strict=True)
        found += [
            rejects.reject(refusal, *origin)
            for refusal, origin in zip(chain.refusals([one]), origins, strict=True)
        ]
    return sorted(found, key=lambda reject: reject.line)


def _normalized(recipe: Recipe, inputs: Sequence[Input]) -> Iterator[Batch]:
    for source, name in zip(inputs, recipe.formats, strict=True):
        normalize = recipe.of_source(source.source).normalize(name)
        first = 0  # the line of the file at which the split starts
        for split in source.splits:
            lines_read = 0
            for lines in readers.load(split.reader).read(split):
                named = collect.PartSource("", source.name, first)
                batch = normalize(lines.records)
                yield _with_origin(batch, named, split, lines.records)
                lines_read += lines.lines
            first += lines_read


def _run(
    batches: Iterable[Batch], stages: Sequence[Stage], output: Path, recipe: Recipe, stage: str
) -> int:
    """Batches through some stages, into the stage file of the last; how many rows are refused."""
    kept: list[Batch] = []
    refused: list[records.Reject] = []
    for start in batches:
        batch, gone = chain.through(start, stages)
        refused += _refused(gone)
        if batch.num_rows:
            kept.append(batch)
    output.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json_records.one_line(reject) + "\n" for reject in refused)
    Path(f"{output}.rejects.jsonl").write_text(lines, "utf-8")
    _write(output, kept, recipe=recipe, stage=stage)
    return len(refused)


def _stages(recipe: Recipe) -> tuple[Stage, ...]:
    if len({formats.load(name).token_ids for name in recipe.formats}) > 1:
        raise UsageError("Some inputs are token ids, others texts.", "Run each kind separately.")
    return recipe.stages(recipe.formats[0])


def run_until(config: Config, until: str) -> int:
    """From raw data through one stage, into the stage file ``config.run.output``.

    Returns:
        How many rows were refused; they are named in ``<output>.rejects.jsonl``.

    Raises:
        UsageError: the task has no such stage, or the output is an address.
    """
    require_local(config.run.output, "-o", build=False)
    plan = config.plan
    if plan.dedup or plan.shuffle or plan.test_size or config.source.filter:
        raise UsageError(
            "A stage sees one row at a time; --dedup, --filter, --shuffle and --test-size need all "
            "rows.",
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
    some = stages[: names.index(until)]
    return _run(_normalized(recipe, inputs), some, config.run.output, recipe, until)


def _reopened(path: Path, cache_dir: Path) -> tuple[StageFile, Recipe]:
    stage_file = describe(path, cache_dir)
    recipe = resolve_recipe(stage_file.config.but(format=stage_file.formats[0]), [])
    sources = (0,) * len(stage_file.formats)
    return stage_file, replace(recipe, formats=stage_file.formats, sources=sources)


def _batches(path: Path) -> list[Batch]:
    with pa.memory_map(file_hash.required(str(path))) as source:
        file = pa.ipc.open_file(source)
        batches = [file.get_batch(i) for i in range(file.num_record_batches)]
    return [batch.replace_schema_metadata(None) for batch in batches]


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
    _require(batches, [*stages[name].reads, *_ORIGIN], name=name, source=source)
    return _run(batches, [stages[name]], output, recipe, name)


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

    Args:
        options: of ``PlanOptions``, in place of those of the first stage.

    Returns:
        0: no row is refused here.

    Raises:
        UsageError: the file holds no encoded examples, or the task is not stored so.
    """
    _, recipe = _reopened(source, cache_dir)
    known = {layouts.load(one).stage: layouts.load(one) for one in recipe.task.layouts}
    if name not in known:
        raise UsageError(f"{recipe.task.name} has no stage {name!r}.", f"Use {' or '.join(known)}.")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} is not an empty directory.", "Give another with -o.")
    recipe = replace(recipe, config=recipe.config.but(layout=known[name].name, **options))
    files = _write_train(recipe, _examples(recipe, name, source), output)
    schema = read_file(output / files[0]).schema
    names = [Path(path).name for path in files]
    dataset_files.write_split(output, "train", schema=schema, shards=names, key="0" * 16)
    dataset_files.write_splits(output, ["train"])
    write_tokenizer(output / "tokenizer", recipe.model)
    return 0


def _examples(recipe: Recipe, name: str, source: Path) -> pa.Table:
    """A stage file's examples: the columns that training rows are made from, id and length.

    Margins and loss weights are stored for all rows of a dataset or for none.
    """
    batches = _batches(source)
    kept = [n for n in recipe.task.kept if n not in ("margin", loss_weights.NAME)]
    _require(batches, [*kept, "length"], name, source)
    table = loss_weights.stored(_encoded(batches))
    kept += [loss_weights.NAME] if loss_weights.NAME in table.schema.names else []
    if "margin" in table.schema.names and table.column("margin").null_count < len(table):
        kept.append("margin")
    return table.select(["row_id", "length", *kept])


def _range(examples: pa.Table, order: columns.Ints, first: int, last: int) -> pa.Table:
    return examples.take(pa.array(order[first:last])).combine_chunks()


def _write_train(recipe: Recipe, table: pa.Table, output: Path) -> list[str]:
    """The shards of the examples, in their order; the paths."""
    options = recipe.config.plan
    layout = layouts.load(options.layout)
    lengths = table.column("length").to_numpy().astype(np.int64)
    width = layout.width(options.pad_to, int(lengths.max(initial=0)), options.max_length)
    shape = recipe.shape(width)
    side = planning.lay_out("train", np.arange(len(lengths)), lengths, options, width)
    examples = table.drop_columns(["length"])
    files = []
    for path, order, sizes in side.pieces():
        gather.write(
            output / path,
            sizes,
            examples=partial(_range, examples, order),
            rows=lambda block, sizes: layout.rows(block, sizes, shape),
        )
        files.append(path)
    return files


# What each stage of each task reads and writes, for people.


Row = tuple[str, str, tuple[str, ...], tuple[str, ...]]


def _unbound(task: tasks.Task) -> Any:
    """Tools without a model: stages only keep what they are made from until they run."""
    config = Config.of(task.name, data=(), model="", output=Path())
    nothing: Any = None
    context = Context(task.kind, STREAM, config.plan.max_length, nothing)
    missing = dict.fromkeys(("model", "encoder", "renderer", "segment_encoder"))
    return SimpleNamespace(config=config, context=context, family="decoder", **missing)


def stage_table() -> list[Row]:
    """(task, stage, columns read, columns written), in the order in which they run."""
    rows: list[Row] = []
    for name in tasks.names():
        task = tasks.load(name)
        rows.append((name, "normalize", ("raw rows",), task.kind.columns + IDENTITY))
        rows += [(name, s.name, s.reads, s.writes) for s in task.stages(_unbound(task))]
        if task.kind.trains_answers:  # rows that are token ids already take this way
            rows.append((name, "accept", pretokenized.Accept.reads, pretokenized.Accept.writes))
        rows += [(name, layouts.load(x).stage, task.kept, ("shards",)) for x in task.layouts]
    return rows
