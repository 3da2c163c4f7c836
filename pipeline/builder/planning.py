"""Third phase: the plan: which examples are stored, in which order, and in which shard.

It needs every part, and numbers of them alone. Whoever makes shards plans first, or is given the
plan: the same parts give the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import overload

from expectations.audits import with_tolerances
from pipeline.builder import windowed
from pipeline.builder.parts import MadeParts, works_of
from pipeline.builder.preparation import Prepared
from pipeline.messages.progress import Report
from pipeline.options.config import Config
from pipeline.shards import dedup, doubles, facts, filters, margins, values, workspace
from pipeline.shards.choose import choose
from pipeline.shards.collect import PartSource
from pipeline.shards.examples import PlannedExamples, columns_of, read_examples
from pipeline.shards.facts import Counts, Outline
from pipeline.shards.filters import Filtered
from pipeline.shards.gather import ShardWork
from pipeline.shards.layout import Head, IndexRef, ShardRef
from pipeline.shards.part import PartReport, Work
from pipeline.shards.plan import Chosen, ShardPlan, make_plan, orders_of
from pipeline.shards.values import Piece
from pipeline.shards.window import Windows
from stages.columns import Ints
from stages.counted import counted
from stages.errors import ModelError

PLAN = "plan"  # in the workspace


@dataclass(frozen=True, slots=True)
class Planned:
    """What goes into the shards. It can be pickled.

    Attributes:
        backend: the encoder that made the parts.
        works, reports, sources: of every part, in the order of the splits.
        outline: what the plan came to.
        chosen: what becomes of every example, where that was decided in one memory; the whole plan
            where it was made there; None in a large build.
        shards: where the shards of a plan by windows are; its files lie in the workspace.
        packs: the same of packs that are an index; empty elsewhere.
        filtered: what filters left out; None without filters.
        compared: see ``MadeParts``.
    """

    backend: str
    works: list[Work]
    reports: list[PartReport]
    sources: list[PartSource]
    outline: Outline
    chosen: Chosen | None = None
    shards: tuple[ShardRef, ...] = ()
    packs: tuple[IndexRef, ...] = ()
    filtered: Filtered | None = None
    compared: bool = True

    @property
    def n_shards(self) -> int:
        """How many shards the build has."""
        return len(self.items)

    @property
    def items(self) -> Sequence[ShardWork | ShardRef]:
        """The shards to make."""
        if isinstance(self.chosen, ShardPlan):
            return Shards(self.chosen)
        return self.shards

    def index(self) -> dict[str, list[tuple[Ints, Ints]]]:
        """Packs that are an index, by side and by the shard that their rows would be in: numbers of
        examples among those of the side, and how many each pack has."""
        found: dict[str, list[tuple[Ints, Ints]]] = {}
        if isinstance(self.chosen, ShardPlan):
            for side in self.chosen.sides:
                if side.packs is not None:
                    found[side.name] = [piece[1:] for piece in side.packs.pieces()]
        for ref in self.packs:
            order, sizes = Head.read(ref.shard.plan).numbers(ref.shard)
            found.setdefault(ref.shard.split, []).append((order + ref.before, sizes))
        return found


class Shards(Sequence[ShardWork]):
    """The shards of a plan in one memory, each put together when its turn comes: together they
    would take as much memory as the plan."""

    def __init__(self, plan: ShardPlan) -> None:
        self._pieces = [(side.name, *piece) for side in plan.sides for piece in side.pieces()]

    def __len__(self) -> int:
        return len(self._pieces)

    @overload
    def __getitem__(self, index: int) -> ShardWork: ...

    @overload
    def __getitem__(self, index: slice) -> list[ShardWork]: ...

    def __getitem__(self, index: int | slice) -> ShardWork | list[ShardWork]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        split, path, order, sizes = self._pieces[index]
        return ShardWork(path=path, split=split, order=order, sizes=sizes)


def _unseen(what: str, done: int, total: int) -> None:
    return


def workspace_of(prepared: Prepared) -> Path:
    """Where processes leave plans and shards of a build that is assembled later."""
    return workspace.folder_of(prepared.config.run.cache, prepared.planned_id)


def plan(prepared: Prepared, made: MadeParts, report: Report = _unseen) -> Planned:
    """Choose, split, shuffle and lay out.

    Args:
        made: the parts of all splits.

    Raises:
        ModelError: the tokenizer loses the text of too many of the rows that were read twice.
        UsageError: another version of the program prepared the build, or an option leaves nothing
            to train on.
        DataError: an option leaves nothing, or examples that differ have one digest.
    """
    prepared.require_current()
    prepared = prepared.having_read(made.reports).encoded_by(made.backend)
    works = works_of(prepared, made.backend)
    reports = [made.reports[number] for number in range(len(works))]
    require_text_kept(prepared.config, reports)
    return replace(of_parts(prepared, works, reports, report), compared=made.compared)


def require_text_kept(config: Config, reports: Sequence[PartReport]) -> None:
    """The rows that were read twice come back from their ids, but for a few.

    Raises:
        ModelError: the tokenizer loses the text of too many.
    """
    lost, sampled, first = PartReport.lost_of(reports)
    limit = with_tolerances(config.judge.tolerance)["lost_text"]["fail"]
    # One row may be an odd one, unless there is no other.
    if lost > min(1, sampled - 1) and lost > limit * sampled:
        raise ModelError(
            f"The tokenizer of {config.parts.model} loses text in {lost} of "
            f"{counted(sampled, 'sampled row')}: {first}.",
            "Give a model whose tokenizer can write these rows (pipeline doctor shows what it "
            "loses), or allow it with --tolerance lost_text.fail=1.",
        )


def reads_examples(config: Config) -> bool:
    """Whether a plan reads more of the parts than their numbers: the examples themselves, to
    compare them or to write them down in another order."""
    plan = config.plan
    return plan.shuffle or plan.dedup or windowed.needs_one_memory(config)


def of_parts(
    prepared: Prepared, works: list[Work], reports: list[PartReport], report: Report = _unseen
) -> Planned:
    """The same of parts that were looked for already.

    Raises:
        UsageError, DataError: see ``plan``.
    """
    sources = sources_of(prepared, works, reports)
    backend = prepared.recipe.backend
    common = partial(Planned, backend=backend, works=works, reports=reports, sources=sources)
    windows = Windows(works, reports, sources)
    folder = workspace_of(prepared) / f"{PLAN}-{windows.digest}"
    if len(windows) > 1 and not windowed.needs_one_memory(prepared.config):
        outline, shards, packs = windowed.in_buckets(prepared, windows, folder, report)
        return common(outline=outline, shards=tuple(shards), packs=tuple(packs))
    examples, filtered = _examples(prepared.config, works, reports, sources)
    if prepared.config.plan.dedup:
        pairs = doubles.pairs(examples.digest)
        dedup.require_equal(pairs, sources, examples.starts, prepared.recipe.task.stored)
    if len(windows) == 1:
        laid = make_plan(prepared.config, examples)
        outline = _outline(prepared, works, laid)
        return common(outline=outline, chosen=laid, filtered=filtered)
    chosen = Chosen(examples, choose(prepared.config, examples))
    outline, shards, packs = windowed.of_chosen(
        prepared,
        windows,
        folder,
        chosen=chosen,
        counts=_counts(prepared, works, chosen),
        report=report,
    )
    return common(
        outline=outline, chosen=chosen, shards=tuple(shards), packs=tuple(packs), filtered=filtered
    )


def _counts(prepared: Prepared, works: Sequence[Work], chosen: Chosen) -> Counts:
    """What is counted of a choice in one memory."""
    config, examples = prepared.config, chosen.examples
    plans = [work.files.plan for work in works]
    rated = margins.of_parts(prepared.recipe.task.kind, plans, examples.starts, chosen.kept)
    orders = orders_of(chosen.choice, config.plan)
    return facts.of(config, examples, chosen.choice, orders=orders, margins=rated)


def _outline(prepared: Prepared, works: Sequence[Work], plan: ShardPlan) -> Outline:
    """What a plan in one memory came to."""
    return Outline(
        counts=_counts(prepared, works, plan),
        sides={side.name: side.apart for side in plan.sides},
        split=plan.choice.test is not None,
        width=plan.width,
        rule=plan.choice.rule,
        asked=plan.choice.asked,
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
        score=values.scores(config, pieces),
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
