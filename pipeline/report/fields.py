"""What ``pipeline show --where`` can read of a stored example.

A field is computed for the examples of some record batches at once, from their columns alone: no
token is decoded, and columns that no condition reads are not read from the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.builds import packs
from pipeline.builds.build import Build
from pipeline.shards.values import NUMBER, TEXT
from stages.columns import IGNORED, Ints, count_per_row, list_parts, numbers, whole
from stages.tokens import layouts


@dataclass(frozen=True)
class Held:
    """The examples of a record batch of a shard.

    Attributes:
        rows: as they are stored, in our columns.
        first: the number of the first one, from 0, in its split.
        packs: gives the pack of each of some stored rows.
    """

    build: Build
    split: str
    rows: pa.Table
    first: int
    packs: Callable[[Ints], Ints]

    @cached_property
    def examples(self) -> pa.Table:
        """One a row, unpadded, in stored order."""
        return packs.examples(self.rows, self.build.manifest.layout)

    @cached_property
    def row(self) -> Ints:
        """Of each example, the number of its stored row."""
        sizes = layouts.load(self.build.manifest.layout).sizes(self.rows)
        return self.first + np.repeat(np.arange(len(sizes)), sizes)

    def column(self, name: str) -> Any:
        """A column of the examples, in one piece."""
        return whole(self.examples.column(name))

    def lengths(self, name: str) -> Ints:
        """How many values a list column has for each example."""
        return np.diff(list_parts(self.column(name))[0])

    def count(self, name: str, wanted: Callable[[Any], Any]) -> Ints:
        """How many values of a list of ids fit."""
        offsets, values = numbers(self.column(name))
        return count_per_row(offsets, wanted(values))


def _tokens(held: Held) -> Ints:
    if "input_ids" in held.examples.schema.names:
        return held.lengths("input_ids")
    return np.maximum(held.lengths("chosen_ids"), held.lengths("rejected_ids"))


def _trained(held: Held) -> Ints:
    return held.count("labels", lambda labels: labels != IGNORED)


def _turns(held: Held) -> Ints:
    end = held.build.manifest.model.end_of_turn_id
    return held.count("input_ids", lambda ids: ids == end)


def _source(held: Held) -> Any:
    if "source" in held.examples.schema.names:
        return held.column("source")
    # Without names a source is called by its file: the row id less its line.
    return pc.replace_substring_regex(held.column("row_id"), r":\d+(#\d+)?$", "")


def _column(name: str) -> Callable[[Held], Any]:
    return lambda held: held.column(name)


def _length(name: str) -> Callable[[Held], Any]:
    return lambda held: held.lengths(name)


def _lowest(name: str) -> Callable[[Held], pa.Array]:
    """The least value in the list of each example; null where it has none."""

    def of(held: Held) -> pa.Array:
        offsets, values = list_parts(held.column(name))
        flat = values.to_numpy(zero_copy_only=False)  # nulls are NaN, which fmin passes over
        least, has = np.full(len(offsets) - 1, np.nan), np.diff(offsets) > 0
        if has.any():
            least[has] = np.fmin.reduceat(flat, offsets[:-1][has])
        return pa.array(least, from_pandas=True)

    return of


@dataclass(frozen=True, slots=True)
class Field:
    """Something that an example has.

    Attributes:
        type: ``number`` or ``text``, as conditions know them.
        says: what it is, for a list of them.
        needs: the column that examples must have; empty where every build has it.
    """

    name: str
    type: str
    says: str
    values: Callable[[Held], Any]
    needs: str = ""


_FIELDS = (
    Field("id", TEXT, "row_id: the file and the line that it is from", _column("row_id")),
    Field("source", TEXT, "name of its source; without names, its file", _source),
    Field("split", TEXT, "train or test", lambda held: pa.array([held.split] * len(held.row))),
    Field("row", NUMBER, "number of its stored row, from 0", lambda held: held.row),
    Field("pack", NUMBER, "number of its pack, from 0", lambda h: h.packs(h.row), "pack"),
    Field("tokens", NUMBER, "tokens; of a pair, of the longer side", _tokens),
    Field("trained", NUMBER, "trained tokens", _trained, "labels"),
    Field("turns", NUMBER, "end-of-turn tokens", _turns, "input_ids"),
    Field("prompt", NUMBER, "tokens that both sides share", _column("prompt_length"), "chosen_ids"),
    Field("chosen", NUMBER, "tokens of the chosen side", _length("chosen_ids"), "chosen_ids"),
    Field("rejected", NUMBER, "tokens of the rejected side", _length("rejected_ids"), "chosen_ids"),
    Field("margin", NUMBER, "margin of the pair", _column("margin"), "margin"),
    Field("steps", NUMBER, "steps", _length("step_labels"), "step_labels"),
    Field("reward", NUMBER, "lowest rating of a step", _lowest("step_labels"), "step_labels"),
    Field("weight", NUMBER, "lowest loss weight", _lowest("loss_weights"), "loss_weights"),
)
# What ``--filter`` calls the same.
_ALSO = {"n_tokens": "tokens", "n_trained": "trained", "n_steps": "steps"}


def of_build(build: Build) -> Mapping[str, Field]:
    """The fields that the examples of a build have, by name."""
    manifest = build.manifest
    layout = layouts.load(manifest.layout)
    has = {"", *manifest.columns, *(["pack"] if layout.packs or layout.indexed else [])}
    return {field.name: field for field in _FIELDS if field.needs in has}


def known_as(name: str) -> str:
    """The name of a field that ``--filter`` may call otherwise."""
    return _ALSO.get(name, name)
