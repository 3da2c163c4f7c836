"""What budgets would take of each source, as far as a sample shows.

The sample of a source is repeated to the size that the source is taken to have; what chooses the
examples of a build then chooses from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from pipeline.choice import given
from pipeline.choice.choose import choose
from pipeline.choice.doubles import DIGEST
from pipeline.choice.examples import PlannedExamples
from pipeline.manifest.source_records import Portion, SourceRecord
from pipeline.options.budgets import Budget
from pipeline.options.config import Config
from stages.columns import Ints

_MOST = 200_000  # examples that are chosen from; of more, every so many stand for all


@dataclass(slots=True)
class MixtureSample:
    """Tokens and trained tokens of the sampled examples of each source."""

    length: dict[int, list[Ints]] = field(default_factory=dict)
    trained: dict[int, list[Ints]] = field(default_factory=dict)

    def add(self, source: int, batch: pa.RecordBatch, longest: int) -> None:
        """More examples of a source; those that are too long for the build do not count."""
        length = batch.column("length").to_numpy().astype(np.int64)
        fits = length <= longest
        self.length.setdefault(source, []).append(length[fits])
        self.trained.setdefault(source, []).append(
            batch.column("trained").to_numpy().astype(np.int64)[fits]
        )


def _smaller(budget: Budget, scale: float) -> Budget:
    """The same part of fewer examples."""
    if budget.amount is None:
        return budget
    unit, amount = budget.amount
    return replace(budget, **{unit: max(1, round(amount * scale))})


def _scaled(config: Config, scale: float) -> Config:
    sources = tuple(replace(one, budget=_smaller(one.budget, scale)) for one in config.sources)
    total = config.plan.total
    plan = replace(config.plan, total=None if total is None else max(1, round(total * scale)))
    return replace(config, sources=sources, plan=plan)


def _examples(sample: MixtureSample, counts: dict[int, int], named: bool) -> PlannedExamples:
    """The sample of each source, repeated; no two of them ask the same."""
    order = sorted(counts)
    total = sum(counts.values())
    length, trained = (
        np.concatenate([np.resize(np.concatenate(kind[n]), counts[n]) for n in order])
        for kind in (sample.length, sample.trained)
    )
    digest = np.zeros(total, DIGEST)
    digest["a"] = np.arange(total)
    return PlannedExamples(
        starts=np.array([0, total]),
        row=np.arange(total),
        length=length.astype(np.int32),
        trained=trained.astype(np.int32),
        digest=digest,
        group=np.arange(1, total + 1, dtype=np.uint64),
        source=np.repeat(order, [counts[n] for n in order]).astype(np.int16) if named else None,
    )


def mixture(config: Config, sample: MixtureSample, rows: dict[int, float]) -> list[SourceRecord]:
    """What each source would give; none where nothing is chosen.

    Args:
        rows: that each source has for each that was sampled, about, by its number.

    Raises:
        UsageError: nothing would be left to train on.
    """
    counts = {n: round(each * sum(map(len, sample.length[n]))) for n, each in rows.items()}
    known = {n: count for n, count in counts.items() if count}
    if not known or (not config.named and config.plan.total is None):
        return []
    scale = min(1.0, _MOST / sum(known.values()))
    fewer = {n: max(1, round(count * scale)) for n, count in known.items()}
    smaller = _scaled(config, scale)
    examples = _examples(sample, fewer, config.named)
    records = given.records(config, examples, choose(smaller, examples))
    return [_enlarged(record, 1 / scale) for record in records]


def _enlarged(record: SourceRecord, by: float) -> SourceRecord:
    def portion(one: Portion) -> Portion:
        return Portion(*(round(n * by) for n in (one.examples, one.tokens, one.trained)))

    counted = record.unit != "epochs"
    return replace(
        record,
        amount=round(record.amount * by) if counted else record.amount,
        given=round(record.given * by) if counted else record.given,
        has=portion(record.has),
        splits={name: portion(one) for name, one in record.splits.items()},
    )
