"""The examples of a build as its sample shows them, and what budgets and packs make of them.

Every input's sample is repeated up to the number of its examples, so that a large input counts for
more than a small one, of which as many rows were sampled.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.builder.forecast import Forecast
from pipeline.manifest.counts import Portion, SourceRecord
from pipeline.options.build_options import Budget
from pipeline.options.config import Config
from pipeline.shards import budgets, doubles, train_test
from pipeline.shards.choose import choose
from pipeline.shards.examples import Choice, PlannedExamples
from stages.columns import Ints, offsets_of
from stages.errors import UsageError
from stages.tokens import layouts, packed

MOST = 50_000  # examples; of a larger build they stand for several each
MAX_LENGTHS = (2048, 4096, 8192, 16384, 32768)  # of the packing table
_SALT = 1


class Population(NamedTuple):
    """Examples that stand for those of the build.

    Attributes:
        lengths, trained: tokens; ``source``: the number of its source.
        each: how many examples of the build one of them stands for.
    """

    lengths: Ints
    trained: Ints
    source: npt.NDArray[np.int16]
    each: float


def population(estimate: Forecast) -> Population:
    """The examples of a build, about."""
    sampled, expected = estimate.sampled, estimate.examples_of
    starts = offsets_of(np.array([made for _, made in sampled.of_looks], np.int64))
    each = max(1.0, sum(expected) / MOST)
    counts = [round(number / each) for number in expected]
    places = [np.resize(np.arange(*starts[n : n + 2]), count) for n, count in enumerate(counts)]
    place = np.concatenate(places).astype(np.int64)
    return Population(
        lengths=sampled.lengths[place],
        trained=sampled.trained[place],
        source=np.repeat(np.array([look.source for look in estimate.looks], np.int16), counts),
        each=each,
    )


def _chosen(config: Config, those: Population, limit: int) -> tuple[PlannedExamples, Choice] | None:
    """Those that a build would choose from, none of which equals or asks what another does.

    Args:
        limit: longer ones are refused.
    """
    fits = np.flatnonzero(those.lengths <= limit)
    digests = np.zeros(len(fits), doubles.DIGEST)
    digests["a"], digests["b"] = train_test.mixed(fits, _SALT), fits
    examples = PlannedExamples(
        starts=np.array([0, len(fits)]),
        row=fits,
        length=those.lengths[fits].astype(np.int32),
        trained=those.trained[fits].astype(np.int32),
        digest=digests,
        group=digests["a"] | np.uint64(1),
        source=those.source[fits],
    )
    try:
        return examples, choose(_scaled(config, those.each), examples)
    except UsageError:  # so few that a split may be empty
        return None


def _scaled(config: Config, each: float) -> Config:
    """The same with amounts for examples that stand for several."""

    def less(amount: int | None) -> int | None:
        return None if amount is None else max(1, round(amount / each))

    def budget(one: Budget) -> Budget:
        amounts = {"rows": less(one.rows), "tokens": less(one.tokens)}
        return replace(one, **amounts, trained_tokens=less(one.trained_tokens))

    sources = tuple(replace(one, budget=budget(one.budget)) for one in config.sources)
    plan = replace(config.plan, total=less(config.plan.total))
    return replace(config, sources=sources, plan=plan)


def sources(estimate: Forecast) -> tuple[SourceRecord, ...]:
    """What the sources would give, about; empty where they have no names and no budget."""
    config, those = estimate.recipe.config, population(estimate)
    chosen = _chosen(config, those, config.plan.longest_example)
    if chosen is None:
        return ()
    split = config.plan.test_size or config.plan.test
    sides = (train_test.TRAIN, train_test.TEST) if split else (train_test.TRAIN,)
    portions = budgets.source_portions(config, *chosen)
    records = budgets.records(config, portions, chosen[1].asked, sides)
    return tuple(_grown(one, those.each) for one in records)


def _grown(one: SourceRecord, each: float) -> SourceRecord:
    def more(portion: Portion) -> Portion:
        numbers = (portion.examples, portion.tokens, portion.trained)
        return Portion(*(round(number * each) for number in numbers))

    by = 1.0 if one.unit == "epochs" else each
    splits = {name: more(portion) for name, portion in one.splits.items()}
    amount = one.asked.get(one.unit.replace("_", "-"), round(one.amount * by, 6))
    found = replace(one, has=more(one.has), splits=splits, amount=amount)
    return replace(found, given=round(one.given * by, 6))


def _stored(config: Config, those: Population, limit: int) -> Ints:
    """Lengths of what a build with this limit would pack."""
    chosen = _chosen(config, those, limit) if budgets.has_budgets(config) else None
    if chosen is None or chosen[1].times is None:
        return those.lengths[those.lengths <= limit]
    return np.repeat(chosen[0].length.astype(np.int64), chosen[1].times)


def packing_table(estimate: Forecast) -> list[dict[str, Any]]:
    """For each length: examples above it, packs of the whole build, and how full they are."""
    config, those = estimate.recipe.config, population(estimate)
    packs = any(layouts.load(name).packs for name in estimate.recipe.task.layouts)
    table: list[dict[str, Any]] = []
    profile = estimate.recipe.model.profile
    limits = {*MAX_LENGTHS, config.plan.longest_example}
    if profile.pair is not None:  # an encoder has no more positions
        limits = {limit for limit in limits if limit <= profile.context_length}
    for limit in sorted(limits):
        longer = int((those.lengths > limit).sum())
        entry: dict[str, Any] = {
            "max_length": limit,
            "too_long": round(longer / max(len(those.lengths), 1), 6),
            "packs": None,
            "efficiency": None,
        }
        stored = _stored(config, those, limit)
        if packs and len(stored):
            made = int(packed.plan(stored, limit).max()) + 1
            entry["packs"] = max(1, round(made * those.each))
            entry["efficiency"] = round(int(stored.sum()) / (made * limit), 6)
        table.append(entry)
    return table
