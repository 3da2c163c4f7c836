"""Writes ``contaminated.jsonl``: each example that was left out, and the questions for which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.manifest.json_records import one_line
from pipeline.manifest.overlap_records import CONTAMINATED, Decontamination, EvaluationRecord, Hit
from pipeline.options import overlaps
from pipeline.options.config import Config
from pipeline.shards.collect import Collector, PartSource
from pipeline.shards.fates import Fate
from pipeline.shards.plan import Chosen
from stages.overlap import evaluations, search
from stages.overlap.evaluations import Items
from stages.overlap.settings import Search

_BLOCK = 4096  # examples that are written at once


def _hits(
    plan: Chosen, sources: Sequence[PartSource], share: float
) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """Number, name and hits of every example that was left out for some."""
    left_out = np.flatnonzero(plan.choice.fate == Fate.CONTAMINATED)
    collect = Collector(sources, plan.examples.starts)
    for start in range(0, len(left_out), _BLOCK):
        order = left_out[start : start + _BLOCK]
        found = collect.named(order, search.NAME)
        for example, (name, every) in zip(order.tolist(), found, strict=True):
            yield example, name, [one for one in every if one["share"] > share]


def _hit(name: str, overlap: dict[str, Any], asked: Search, items: Items) -> Hit:
    item = overlap.pop("item")
    evaluation = asked.evaluations[items.evaluation[item]]
    share = round(overlap.pop("share"), 6)
    return Hit(
        id=name,
        evaluation=evaluation.name,
        file=Path(evaluation.path).name,
        line=items.line[item],
        share=share,
        question=search.shortened(items.question[item]),
        **overlap,
    )


def write(
    folder: Path, config: Config, plan: Chosen | None, sources: Sequence[PartSource]
) -> Decontamination | None:
    """Write the file, in input order; what is counted of it. None where nothing is searched for.

    Args:
        sources: of the parts.
    """
    asked = overlaps.search_of(config.plan)
    if asked is None or plan is None:
        return None
    items = evaluations.items(asked.evaluations)
    found: list[set[int]] = [set() for _ in asked.evaluations]
    examples: list[list[int]] = [[] for _ in asked.evaluations]
    with (folder / CONTAMINATED).open("w", encoding="utf-8") as file:
        for example, name, hits in _hits(plan, sources, config.plan.overlap_share):
            for number in sorted({items.evaluation[one["item"]] for one in hits}):
                examples[number].append(example)
            for overlap in hits:
                found[items.evaluation[overlap["item"]]].add(overlap["item"])
                file.write(one_line(_hit(name, overlap, asked, items)) + "\n")
    records = [
        _record(number, asked, items, len(found[number]), examples[number], plan)
        for number in range(len(asked.evaluations))
    ]
    return Decontamination(
        words=asked.size,
        share=config.plan.overlap_share,
        compared=config.plan.overlap_in,
        evaluations=tuple(records),
    )


def _record(
    number: int, asked: Search, items: Items, found: int, examples: list[int], plan: Chosen
) -> EvaluationRecord:
    own = [item for item, of in enumerate(items.evaluation) if of == number]
    judged = [items.judged(item) for item in own]
    return EvaluationRecord(
        name=asked.evaluations[number].name,
        sha256=asked.evaluations[number].sha256,
        column=items.columns[number],
        questions=sum(judged),
        not_judged=tuple(
            items.line[item] for item, known in zip(own, judged, strict=True) if not known
        ),
        found=found,
        rows=plan.examples.rows(np.array(examples, np.int64)) if examples else 0,
        examples=len(examples),
    )
