"""Writes ``contaminated.jsonl``: each example that was left out, and the questions for which."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.inputs.recipe import Recipe
from pipeline.manifest import json_records, records
from pipeline.options import overlaps
from pipeline.options.config import Config
from pipeline.shards import choose, doubles, filters
from pipeline.shards.collect import Collector, PartSource
from pipeline.shards.examples import Fate, most_shared
from stages import encoders
from stages.columns import Ids
from stages.contract import Batch
from stages.errors import counted
from stages.normalize import overlap_search, signatures
from stages.normalize.overlap import Search
from stages.tokens.folded_labels import unfolded

_BLOCK = 4096  # examples that are written at once


def _hits(
    plan: choose.Chosen, sources: Sequence[PartSource], share: float
) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """Number, name and hits of every example that was left out for some."""
    left_out = np.flatnonzero(plan.choice.fate == Fate.CONTAMINATED)
    collect = Collector(sources, plan.examples.starts)
    for start in range(0, len(left_out), _BLOCK):
        order = left_out[start : start + _BLOCK]
        found = collect.named(order, overlap_search.NAME)
        for example, (name, every) in zip(order.tolist(), found, strict=True):
            yield example, name, [one for one in every if one["share"] > share]


def _hit(
    name: str, overlap: dict[str, Any], asked: Search, items: overlap_search.Items
) -> records.Hit:
    item = overlap.pop("item")
    evaluation = asked.evaluations[items.evaluation[item]]
    share = round(overlap.pop("share"), 6)
    return records.Hit(
        id=name,
        evaluation=evaluation.name,
        file=Path(evaluation.path).name,
        line=items.line[item],
        share=share,
        question=overlap_search.shortened(items.question[item]),
        **overlap,
    )


def write(
    folder: Path, config: Config, plan: choose.Chosen | None, sources: Sequence[PartSource]
) -> records.Decontamination | None:
    """Write the file, in input order; what is counted of it. None where nothing is searched for.

    Args:
        sources: of the parts.
    """
    asked = overlaps.search_of(config.plan)
    if asked is None or plan is None:
        return None
    items = overlap_search.items(asked.evaluations)
    found: list[set[int]] = [set() for _ in asked.evaluations]
    examples: list[list[int]] = [[] for _ in asked.evaluations]
    with (folder / records.CONTAMINATED).open("w", encoding="utf-8") as file:
        for example, name, hits in _hits(plan, sources, config.plan.overlap_share):
            for number in sorted({items.evaluation[one["item"]] for one in hits}):
                examples[number].append(example)
            for overlap in hits:
                found[items.evaluation[overlap["item"]]].add(overlap["item"])
                file.write(json_records.one_line(_hit(name, overlap, asked, items)) + "\n")
    each = [
        _record(number, asked, items, len(found[number]), examples[number], plan)
        for number in range(len(asked.evaluations))
    ]
    return records.Decontamination(
        words=asked.size,
        share=config.plan.overlap_share,
        compared=config.plan.overlap_in,
        evaluations=tuple(each),
    )


def _record(
    number: int,
    asked: Search,
    items: overlap_search.Items,
    found: int,
    examples: list[int],
    plan: choose.Chosen,
) -> records.EvaluationRecord:
    own = [item for item, of in enumerate(items.evaluation) if of == number]
    judged = [items.judged(item) for item in own]
    return records.EvaluationRecord(
        name=asked.evaluations[number].name,
        sha256=asked.evaluations[number].sha256,
        column=items.columns[number],
        questions=sum(judged),
        not_judged=tuple(items.line[n] for n, known in zip(own, judged, strict=True) if not known),
        found=found,
        rows=plan.examples.rows(np.array(examples, np.int64)) if examples else 0,
        examples=len(examples),
    )


# Writes ``near_duplicates.jsonl``: each example that was left out, and the one that is like it.


_BEFORE, _SHOWN = 40, 160  # tokens before the first that differs, and in all


class _Texts:
    """Texts of examples, from their token ids: parts have no others."""

    def __init__(self, recipe: Recipe) -> None:
        stored = recipe.task.stored
        self._folded, self._marker = "folded" in stored, recipe.marker
        self.column = "folded" if self._folded else next(n for n in stored if n.endswith("_ids"))
        self._tokenizer = encoders.parsed(recipe.model.tokenizer_json)

    def both(self, one: list[int], other: list[int]) -> tuple[str, str]:
        """Two texts around the first token that differs."""
        first, second = self._ids(one), self._ids(other)
        shorter = min(len(first), len(second))
        differs = np.flatnonzero(first[:shorter] != second[:shorter])
        at = int(differs[0]) if len(differs) else shorter
        start = max(0, at - _BEFORE)
        return self._text(first, start), self._text(second, start)

    def _ids(self, stored: list[int]) -> Ids:
        ids = np.array(stored, np.int32)
        return unfolded(ids, self._marker)[0] if self._folded else ids

    def _text(self, ids: Ids, start: int) -> str:
        shown = ids[start : start + _SHOWN].tolist()
        text = self._tokenizer.decode(shown, skip_special_tokens=False)
        return f"{'…' if start else ''}{text}{'…' if start + _SHOWN < len(ids) else ''}"


def write_near(
    folder: Path, recipe: Recipe, plan: choose.Chosen | None, sources: Sequence[PartSource]
) -> records.Likeness | None:
    """Write the file, in input order; what is counted of it. None where rows are not compared.

    Args:
        sources: of the parts.
    """
    found, config = None if plan is None else plan.choice.near, recipe.config
    if plan is None or found is None:
        return None
    texts = _Texts(recipe)
    collect = Collector(sources, plan.examples.starts)
    with (folder / records.NEAR_DUPLICATES).open("w", encoding="utf-8") as file:
        for start in range(0, len(found.dropped), _BLOCK):
            some = slice(start, start + _BLOCK)
            both = (found.dropped[some], found.kept[some])
            pairs = [collect.named(each, texts.column) for each in both]
            for one, other, likeness in zip(*pairs, found.likeness[some].tolist(), strict=True):
                said, kept_said = texts.both(one[1], other[1])
                entry = records.NearDuplicate(one[0], other[0], round(likeness, 6), said, kept_said)
                file.write(json_records.one_line(entry) + "\n")
    used = plan.choice.used
    with_dropped = used.copy()
    with_dropped[found.dropped] = True
    return records.Likeness(
        likeness=config.plan.near_dedup,
        words=config.plan.near_words,
        compared=config.plan.near_in,
        signatures=signatures.version(),
        clusters=found.clusters,
        rows=plan.examples.rows(with_dropped) - plan.examples.rows(used),
        examples=len(found.dropped),
    )


# What a build would leave out of the sample: by its filters, or for being like something else.


@dataclass(slots=True)
class FilterTally:
    """One filter of one source.

    Attributes:
        of: sampled examples of the source; ``examples``: of these, left out by this filter, and
            ``null``: those of them for which it is null.
    """

    expression: str
    source: str
    of: int = 0
    examples: int = 0
    null: int = 0


@dataclass(slots=True)
class FilteredSample:
    """The filters of all sources, each with what it leaves out of the sample."""

    tallies: dict[tuple[int, int], FilterTally] = field(default_factory=dict)

    def left(self, config: Config, number: int, batch: Batch, names: Sequence[str]) -> Batch:
        """The examples that the filters leave.

        Args:
            config: of the one source; ``number``: its number in the build.
            names: of the lines of the sample, in messages.
        """
        by, null = filters.of_rows(config, batch, names.__getitem__)
        for place, text in enumerate(config.source.filter, 1):
            name = config.sources[0].name
            tally = self.tallies.setdefault((number, place), FilterTally(text, name))
            tally.of += batch.num_rows
            tally.examples += int(np.count_nonzero(by == place))
            tally.null += int(np.count_nonzero(null & (by == place)))
        return batch.filter(pa.array(by == 0)) if by.any() else batch


_FIRST = 3  # that are named


@dataclass
class Alike:
    """Examples of the sample that ask what an evaluation asks, and what the others are like.

    Attributes:
        contaminated: their names.
        names, parts: of the others, where rows are compared with each other: each example's, and
            the signatures of some examples.
    """

    contaminated: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    parts: list[signatures.Signatures] = field(default_factory=list)

    def taken(self, batch: Batch, config: Config, name_of: Callable[[int], str]) -> Batch:
        """The examples of a batch that no evaluation asks for.

        Args:
            name_of: a line.
        """
        if config.plan.decontaminate:
            shared = most_shared(pa.chunked_array([batch.column(overlap_search.NAME)]))
            gone = pa.array(shared > config.plan.overlap_share)
            self.contaminated += map(name_of, batch.filter(gone).column("line").to_pylist())
            batch = batch.filter(pa.compute.invert(gone))
        if config.plan.near_dedup:
            self.parts.append(signatures.numbers(batch.column(signatures.ROW)))
            self.names += map(name_of, batch.column("line").to_pylist())
        return batch

    def as_json(self, config: Config) -> dict[str, Any]:
        """What ``plan --json`` has of it: only what was asked for."""
        found: dict[str, Any] = {}
        if config.plan.decontaminate:
            first = self.contaminated[:_FIRST]
            found["contaminated"] = {"examples": len(self.contaminated), "first": first}
        if config.plan.near_dedup:
            every = np.ones(len(self.names), bool)
            alike = doubles.alike(self.parts, every, config.plan.near_dedup)
            first = [self.names[at] for at in alike.dropped[:_FIRST].tolist()]
            found["near_duplicates"] = {"examples": len(alike.dropped), "first": first}
        return found


_WORDS = {
    "contaminated": "evals     {} with a question of an evaluation{}",
    "near_duplicates": "alike     {}, near-duplicates of others{}",
}


def sampled_lines(plan: dict[str, Any]) -> list[str]:
    """The same on the page."""
    found, total = [], counted(plan["rejects"]["sampled"], "sampled row")
    for name, words in _WORDS.items():
        if name in plan:
            count, first = plan[name]["examples"], plan[name]["first"]
            where = f": {', '.join(first)}{' ...' if count > _FIRST else ''}" if first else ""
            found.append(words.format(f"{counted(count, 'example')} of {total}", where))
    return found
