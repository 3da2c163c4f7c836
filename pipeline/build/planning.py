"""Third phase: the plan: which examples are stored, in which order, and in which shard.

It needs every part, and numbers of them alone. Whoever makes shards plans first, or is given the
plan: the same parts give the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.build.parts import MadeParts, works_of
from pipeline.build.preparation import Prepared
from pipeline.choice import filters, scores
from pipeline.choice.examples import PlannedExamples, columns_of, read_examples
from pipeline.choice.filters import Filtered
from pipeline.choice.values import Piece
from pipeline.options.config import Config
from pipeline.parts.part import PartReport, Work
from pipeline.shards import dedup, facts, margins
from pipeline.shards.collect import PartSource
from pipeline.shards.facts import Outline
from pipeline.shards.plan import ShardPlan, make_plan
from stages.columns import Ints


@dataclass(frozen=True, slots=True)
class Planned:
    """What goes into the shards. It can be pickled.

    Attributes:
        backend: the encoder that made the parts.
        works, reports, sources: of every part, in the order of the splits.
        outline: what the plan came to.
        plan: the plan itself.
        filtered: what filters left out; None without filters.
    """

    backend: str
    works: list[Work]
    reports: list[PartReport]
    sources: list[PartSource]
    outline: Outline
    plan: ShardPlan
    filtered: Filtered | None = None

    @property
    def n_shards(self) -> int:
        """How many shards the build has."""
        return sum(len(side.shards) - 1 for side in self.plan.sides)


def plan(prepared: Prepared, made: MadeParts) -> Planned:
    """Choose, split, shuffle and lay out.

    Args:
        made: the parts of all splits.

    Raises:
        UsageError: another version of the program prepared the build, or an option leaves nothing
            to train on.
        DataError: an option leaves nothing, or examples that differ have one digest.
    """
    prepared.require_current()
    prepared = prepared.encoded_by(made.backend)
    works = works_of(prepared, made.backend)
    reports = [made.reports[number] for number in range(len(works))]
    sources = sources_of(prepared, works, reports)
    examples, filtered = _examples(prepared.config, works, reports, sources)
    if prepared.config.plan.dedup:
        dedup.require_equal(examples, sources, prepared.recipe.task.stored)
    planned = make_plan(prepared.config, examples)
    return Planned(
        backend=made.backend,
        works=works,
        reports=reports,
        sources=sources,
        outline=_outline(prepared, works, planned),
        plan=planned,
        filtered=filtered,
    )


def _outline(prepared: Prepared, works: Sequence[Work], plan: ShardPlan) -> Outline:
    """What a plan in one memory came to."""
    examples, choice = plan.examples, plan.choice
    plans = [work.files.plan for work in works]
    rated = margins.of_parts(prepared.recipe.task.kind, plans, examples.starts, plan.kept)
    orders = {side.name: side.order for side in plan.sides}
    return Outline(
        counts=facts.of(prepared.config, examples, choice, orders=orders, margins=rated),
        sides={side.name: side.apart for side in plan.sides},
        split=choice.test is not None,
        width=plan.width,
        rule=choice.rule,
        asked=choice.asked,
    )


def _examples(
    config: Config, works: list[Work], reports: list[PartReport], sources: Sequence[PartSource]
) -> tuple[PlannedExamples, Filtered | None]:
    """What is chosen from, and what filters leave out of it."""
    pieces = pieces_of(works, reports, sources)
    filtered = filters.over_parts(config, pieces)
    examples = replace(
        read_examples(works, reports, config),
        filtered=None if filtered is None else filtered.by,
        score=scores.over_parts(config, pieces),
    )
    return examples, filtered


def sources_of(
    prepared: Prepared, works: Sequence[Work], reports: Sequence[PartReport]
) -> list[PartSource]:
    """Where each part's examples come from: its file, and the line of it at which it starts."""
    sources = []
    for source, numbers in zip(prepared.inputs, prepared.of_inputs(range(len(works))), strict=True):
        line = 0
        for number in numbers:
            path = str(works[number].path)
            sources.append(PartSource(path, source.name, line, source.source_name))
            line += reports[number].lines
    return sources


def pieces_of(
    works: Sequence[Work], reports: Sequence[PartReport], sources: Sequence[PartSource]
) -> list[Piece]:
    """The parts, as filters and the choice among equal examples read them."""
    return [
        Piece(
            path=work.path,
            name=source.name,
            first_line=source.first_line,
            source=work.source,
            unread=frozenset(report.counts.get("unread_rows", ())),
        )
        for work, report, source in zip(works, reports, sources, strict=True)
    ]


def lines_of_part(work: Work) -> Ints:
    """The line of each example of a part in its split, ascending."""
    lines: Ints = columns_of(work.files.plan, ("line",)).column("line").to_numpy()
    return lines
