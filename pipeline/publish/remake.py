"""A sample of a finished build's rows, made again from the source by the reference encoder."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from expectations import contents
from expectations.contract import STREAM
from expectations.stored_rows import StoredRows
from pipeline.inputs import model_description
from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.inputs.scan import Input, scan
from pipeline.manifest.manifest import InputRecord, Manifest
from pipeline.options.config import Config
from pipeline.shards import chain, collect, filters
from pipeline.shards.measured import Measured, identities
from stages import readers
from stages.chat_template import loss_weights
from stages.contract import Batch, Record
from stages.errors import SurroundingsError
from stages.tokens.folded_labels import unfold

ROWS = 64  # of each input, from its first split


@dataclass
class Remade:
    """How many rows were made again, and which of their examples are not the stored ones."""

    rows: int = 0
    differ: list[tuple[str, str]] = field(default_factory=list)


def _same_source(inputs: list[Input], said: Sequence[InputRecord]) -> None:
    for source, known in zip(inputs, said, strict=False):
        if (source.name, source.sha256) != (known.path, known.sha256):
            raise SurroundingsError(f"{source.path} is not the file that the build was made from.")
    if len(inputs) != len(said):
        raise SurroundingsError("The inputs are not those of the build.")


def _records(source: Input) -> list[Record]:
    """Rows spread evenly over the input's first split; an empty file has none."""
    if not source.splits:
        return []
    split = source.splits[0]
    every = [r for lines in readers.load(split.reader).read(split) for r in lines.records]
    chosen = np.linspace(0, len(every) - 1, min(ROWS, len(every))).astype(int)
    return [every[i] for i in np.unique(chosen)]


def _made(recipe: Recipe, source: Input, format_name: str) -> tuple[list[str], Batch]:
    """Examples of those rows, and what they are called; refused rows are left out."""
    recipe = recipe.of_source(source.source)
    normalized = recipe.normalize(format_name)(_records(source))
    batch, _ = chain.through(normalized, recipe.stages(format_name))
    return collect.row_ids_of(collect.PartSource("", source.name, 0), batch).to_pylist(), batch


def _stored(metrics: Path, shards: list[Measured]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The key of every stored example, by input, line and sequence."""
    every = np.concatenate([identities(metrics, shard) for shard in shards], axis=1)
    return {tuple(one[:3]): tuple(one[3:]) for one in every.T.tolist()}


def _keys(recipe: Recipe, batch: Batch) -> list[tuple[int, ...]]:
    """The keys of examples, as those of stored ones are computed."""
    context = replace(recipe.context, layout=STREAM)
    rows = StoredRows(loss_weights.stored(unfold(pa.table(batch))), context)
    made = contents.keys(rows, contents.lists(rows))
    return [tuple(one) for one in np.stack(made, axis=1).tolist()]


def remake(
    config: Config,
    said: Manifest,
    metrics: Path,
    shards: list[Measured],
    left_out: Container[str] = (),
) -> Remade:
    """Make a sample again and compare ids, labels, ratings and weights by their keys.

    Args:
        said: the build's manifest.
        left_out: ids of examples that the build lists as left out.

    Raises:
        PipelineError: the source is gone or changed, or the model cannot be found here.
    """
    inputs = scan(config)
    _same_source(inputs, said.inputs)
    recipe = replace(resolve_recipe(config, inputs), backend="tokenizers")
    model = model_description.model_of(recipe.model)
    for key in ("tokenizer_sha256", "chat_template_sha256"):
        if getattr(model, key) != getattr(said.model, key):
            raise SurroundingsError(f"The model found here has another {key}.")
    stored = _stored(metrics, shards)
    # Of equal examples only the first is stored, so under --dedup another may stand for this one.
    known = set(stored.values()) if config.plan.dedup else set()
    # Filters are tried again, and what is like evaluations and other rows is listed. Which examples
    # a budget left out, or a named test file, is written nowhere: those are not looked for.
    unlisted = said.examples.left_out > 0 or any(one.test for one in config.sources)
    remade = Remade()
    for ordinal, (source, name) in enumerate(zip(inputs, recipe.formats, strict=True)):
        names, batch = _made(recipe, source, name)
        filtered, _ = filters.of_rows(config.only(source.source), batch, "line {}".format)
        remade.rows += batch.num_rows
        columns = (batch.column(n).to_pylist() for n in ("line", "sequence"))
        keys = _keys(recipe, batch)
        for row, line, sequence, made, out in zip(names, *columns, keys, filtered, strict=True):
            there = stored.get((ordinal, line + 1, sequence))
            gone = out or row in left_out
            if gone and there is not None:
                remade.differ.append((row, "it is to be left out, and a shard has it"))
            elif there is None and not (gone or unlisted or made in known):
                remade.differ.append((row, "the source has it, but no shard has"))
            elif there is not None and there != made:
                remade.differ.append((row, "rebuilt from the source, it is a different example"))
    return remade
