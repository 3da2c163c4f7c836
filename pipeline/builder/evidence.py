"""What the judges of finished files are given: a build, its shards as measured, and its rows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from expectations import undo_layout
from expectations.contract import EXAMPLE
from pipeline.builder.description import Outcome
from pipeline.builder.planning import Planned
from pipeline.builds import stored
from pipeline.builds.build import Build
from pipeline.inputs.scan import Input
from pipeline.manifest.manifest import Manifest
from pipeline.manifest.records import TOKENIZER
from pipeline.options.source import Said
from pipeline.shards.collect import PartSource
from pipeline.shards.measured import Measured
from stages.columns import IGNORED, Ints, count_per_row, numbers, offsets_of
from stages.encoders import parsed
from stages.files import content
from stages.tokens import layouts

AGAIN = 1 << 22  # tokens of a build whose rows are read once more


class Example(NamedTuple):
    """A stored example: its tokens (of a pair, those of the longer side) and those it trains."""

    name: str
    source: str | None
    tokens: int
    trained: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Its input, line and number in the line, -1 where it is the only one."""
        return place_of(self.name)


def place_of(name: str) -> tuple[str, int, int]:
    """Input, line and number in the line of an example."""
    path, _, rest = name.rpartition(":")
    line, _, number = rest.partition("#")
    return path, int(line), int(number or -1)


@dataclass(frozen=True)
class Evidence:
    """What side files are judged by.

    Attributes:
        build: its folder and its manifest, which need not be written yet.
        shards: as they were measured; ``dataset``: what was counted of all of them.
        inputs: those that are files of JSON, by the names that row ids have.
        case: what the witness has read the rows by; None where it has read none.
        parts: those that the build was chosen from; none where they are not here.
        filtered: of each example of these, whether a filter leaves it out; empty without filters.
        said: what the options follow from; None where that is not known.
        questions: of rows that the witness has read, the hash of what each asks.
    """

    build: Build
    shards: Sequence[Measured]
    dataset: Mapping[str, int]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    case: Mapping[str, Any] | None = None
    parts: Sequence[PartSource] = ()
    filtered: Sequence[bool] = ()
    said: Said | None = None
    questions: Mapping[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> list[Mapping[str, Any]]:
        """The options of each source."""
        options: Any = self.manifest.options
        return list(options.get("sources") or [options])

    @property
    def manifest(self) -> Manifest:
        """What it says."""
        return self.build.manifest

    def text(self, name: str) -> str:
        """A file of the build."""
        return (self.build.here / name).read_text("utf-8")

    def read(self, name: str) -> Any:
        """A file of JSON."""
        return orjson.loads((self.build.here / name).read_bytes())

    def lines(self, name: str) -> list[dict[str, Any]]:
        """A file of JSON lines."""
        with (self.build.here / name).open("rb") as file:
            return [json.loads(line) for line in file]

    @cached_property
    def tokenizer(self) -> dict[str, Any]:
        """``tokenizer.json``."""
        found: dict[str, Any] = self.read(f"{TOKENIZER}/tokenizer.json")
        return found

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token, by its text, in the tokenizer that will be loaded."""
        told = self.tokenizer
        words = told["model"].get("vocab", {})
        found = dict(words) if isinstance(words, dict) else {w: i for i, (w, _) in enumerate(words)}
        return found | {one["content"]: one["id"] for one in told["added_tokens"]}

    def encoded(self, text: str) -> list[int]:
        """The ids of a text."""
        data = (self.build.here / TOKENIZER / "tokenizer.json").read_bytes()
        return list(parsed(data).encode(text, add_special_tokens=False).ids)

    @property
    def _is_small(self) -> bool:
        manifest = self.manifest
        large = manifest.tokens.total + manifest.tokens.padding > AGAIN
        return not large and manifest.layout in layouts.MEMBERS and manifest.export is None

    @cached_property
    def examples(self) -> dict[str, list[Example]]:
        """Those of each split, in the order in which they are stored; none of large builds, of
        exports, of packs that are an index, and of a layout of another package."""
        if self.manifest.packs or not self._is_small:
            return {}
        return {
            name: [x for shard in side.shards for x in _examples(self._table(shard.path))]
            for name, side in self.manifest.splits.items()
        }

    @cached_property
    def rows(self) -> dict[str, list[list[str]]]:
        """The names of the examples of each row that is trained on, by split, in order: of packs
        where these are an index. None where ``examples`` are, but for these."""
        found: dict[str, list[list[str]]] = {}
        for name, side in self.manifest.splits.items() if self._is_small else ():
            tables = [self._table(shard.path) for shard in side.shards]
            both = [undo_layout.names(table) for table in tables]
            names = [one for _, own in both for one in own.to_pylist()]
            sizes = np.concatenate([np.diff(bounds) for bounds, _ in both])
            if name in self.manifest.packs:
                index = self._table(self.manifest.packs[name].path).column("examples").to_pylist()
                found[name] = [[names[at] for at in pack] for pack in index]
            else:
                bounds = offsets_of(sizes).tolist()
                found[name] = [names[a:b] for a, b in pairwise(bounds)]
        return found

    @cached_property
    def answers(self) -> Ints:
        """Tokens of each trained run, cut behind each end of turn; none where ``examples`` are."""
        model, found = self.manifest.model, [np.zeros(0, np.int64)]
        for side in self.manifest.splits.values() if self.examples else ():
            for shard in side.shards:
                labels = numbers(undo_layout.column(self._table(shard.path), "labels"))[1]
                at = np.flatnonzero(labels != IGNORED)
                if not len(at):
                    continue
                ends = np.isin(labels[at], (model.end_of_turn_id, model.end_of_call_id or -1))
                last = np.flatnonzero(np.append(np.diff(at) > 1, True) | ends)
                found.append(np.diff(last, prepend=-1))
        return np.concatenate(found)

    @cached_property
    def answers_alone(self) -> bool:
        """Whether each side of each pair is known to end with its first turn behind the prompt."""
        model, ends = self.manifest.model, 0
        rows = 0
        for side in self.manifest.splits.values() if self.examples else ():
            for table in (self._table(shard.path) for shard in side.shards):
                prompt = table.column("prompt_length").to_numpy()
                for name in ("chosen", "rejected"):
                    at, ids = numbers(undo_layout.column(table, f"{name}_ids"))
                    place = np.arange(len(ids)) - np.repeat(at[:-1], np.diff(at))
                    behind = place >= np.repeat(prompt, np.diff(at))
                    end = (model.end_of_turn_id, model.end_of_call_id or -1)
                    ends, rows = ends + int((behind & np.isin(ids, end)).sum()), rows + len(at) - 1
        return 0 < rows == ends

    def _table(self, path: str) -> pa.Table:
        return stored.read_file(self.build.here / path).combine_chunks()

    def total(self, column: str) -> int:
        """The sum of a metric over all examples."""
        found = [one.tallies[EXAMPLE] for one in self.shards if EXAMPLE in one.tallies]
        return sum(one.sums.get(column, 0) for one in found)

    def counted(self, name: str, split: str | None = None) -> int:
        """The sum of a count of shards, of one split or of all."""
        return sum(s.counts.get(name, 0) for s in self.shards if split in (None, s.split))


def of(
    build: Build,
    outcome: Outcome,
    planned: Planned,
    dataset: Mapping[str, int],
    case: Mapping[str, Any],
    questions: Mapping[str, str],
) -> Evidence:
    """What a build that was just made is judged by; for the last three see there."""
    filtered = planned.chosen.filtered if planned.chosen else None
    return Evidence(
        build,
        [shard.measured for shard in outcome.shards],
        dataset,
        {one.name: one for one in outcome.inputs if _is_json(one.path)},
        case,
        parts=planned.sources,
        filtered=() if filtered is None else tuple((filtered.by > 0).tolist()),
        said=outcome.recipe.config.said,
        questions=questions,
    )


def _is_json(path: str) -> bool:
    """Whether a file of this machine has rows as they are."""
    return (
        path.endswith((".jsonl", ".json"))
        and Path(path).is_file()
        and content.compression(path) is None
    )


def _examples(table: pa.Table) -> Iterator[Example]:
    """The examples of a shard, whatever its layout."""
    names, named = undo_layout.names(table)[1], undo_layout.source_names(table)
    if "chosen_ids" in table.schema.names:
        both = np.stack([_filled(table, f"{side}_") for side in ("chosen", "rejected")])
        prompts = table.column("prompt_length").to_numpy().astype(np.int64)
        tokens, trained = both.max(axis=0), both.sum(axis=0) - 2 * prompts
    else:
        at, labels = numbers(undo_layout.column(table, "labels"))
        tokens = _filled(table, "")
        if "seq_lengths" in table.schema.names:
            tokens = numbers(undo_layout.column(table, "seq_lengths"))[1].astype(np.int64)
            at = offsets_of(tokens)
        trained = count_per_row(at, labels != IGNORED)
    own = [None] * len(names) if named is None else named.to_pylist()
    values = (names.to_pylist(), own, tokens.tolist(), trained.tolist())
    yield from map(Example, *values)


def _filled(table: pa.Table, prefix: str) -> Ints:
    """Tokens of each row, without padding."""
    mask = f"{prefix}attention_mask"
    if mask in table.schema.names:
        at, there = numbers(undo_layout.column(table, mask))
        return count_per_row(at, there == 1)
    name = f"{prefix}ids" if prefix else "input_ids"
    return np.diff(numbers(undo_layout.column(table, name))[0])
