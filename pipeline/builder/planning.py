"""Third phase: the plan: which examples are stored, in which order, and in which shard.

It needs every part, and numbers of them alone. Whoever makes shards plans first, or is given the
plan: the same parts give the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from expectations.audits import with_tolerances
from pipeline.builder import windowed
from pipeline.builder.make_parts import MadeParts, works_of
from pipeline.builder.preparation import Prepared
from pipeline.messages.progress import Report
from pipeline.options.config import Config
from pipeline.shards import collect, doubles, facts, filters, values, window_plan, workspace
from pipeline.shards.choose import choose
from pipeline.shards.collect import PartSource
from pipeline.shards.examples import PlannedExamples, columns_of, read_examples
from pipeline.shards.facts import Counts, Outline
from pipeline.shards.filters import Filtered
from pipeline.shards.part import PartReport, Work
from pipeline.shards.plan import Chosen, orders_of
from pipeline.shards.values import Piece
from pipeline.shards.window import digest_of, windows_of
from pipeline.shards.window_plan import Head, IndexRef, ShardRef
from stages.columns import Ints
from stages.errors import ModelError, counted

PLAN = "plan"  # in the workspace
STAGED = ".plan"  # in the staging directory; removed before the build is published


@dataclass(frozen=True, slots=True)
class Planned:
    """What goes into the shards. It can be pickled.

    Attributes:
        backend: the encoder that made the parts.
        works, reports, sources: of every part, in the order of the splits.
        outline: what the plan came to.
        chosen: what becomes of every example, where that was decided in one memory; None in a
            large build.
        shards: where they are in the plans of windows, whose files lie in the workspace.
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
        return len(self.shards)

    def index(self) -> dict[str, list[tuple[Ints, Ints]]]:
        """Packs that are an index, by side and by the shard that their rows would be in: numbers of
        examples among those of the side, and how many each pack has."""
        found: dict[str, list[tuple[Ints, Ints]]] = {}
        for ref in self.packs:
            order, sizes = Head.read(ref.shard.plan).numbers(ref.shard)
            found.setdefault(ref.shard.split, []).append((order + ref.before, sizes))
        return found


def _unseen(what: str, done: int, total: int) -> None:
    return


def workspace_of(prepared: Prepared) -> Path:
    """Where processes leave plans and shards of a build that is assembled later."""
    return workspace.folder_of(prepared.config.run.cache, prepared.planned_id)


def plan(
    prepared: Prepared, made: MadeParts, report: Report = _unseen, staged: Path | None = None
) -> Planned:
    """Choose, split, shuffle and lay out.

    Args:
        made: the parts of all splits.
        staged: the staging directory, for the plan of a small build: no other process that builds
            the same removes it there. By default it lies in the workspace.

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
    planned = of_parts(prepared, works, reports, report, staged)
    return replace(planned, compared=made.compared)


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
    prepared: Prepared,
    works: list[Work],
    reports: list[PartReport],
    report: Report = _unseen,
    staged: Path | None = None,
) -> Planned:
    """The same of parts that were looked for already.

    Raises:
        UsageError, DataError: see ``plan``.
    """
    config, sources = prepared.config, sources_of(prepared, works, reports)
    windows = windows_of(works, reports, sources)
    folder = workspace_of(prepared) / f"{PLAN}-{digest_of(windows)}"
    if staged is not None and len(windows) == 1:
        folder = staged / STAGED
    chosen, filtered = None, None
    if len(windows) > 1 and not windowed.needs_one_memory(config):
        outline, laid = windowed.in_buckets(prepared, windows, folder, report)
    else:
        examples, filtered = _examples(config, works, reports, sources)
        if config.plan.dedup:
            pairs = doubles.pairs(examples.digest)
            collect.require_equal(pairs, sources, examples.starts, prepared.recipe.task.stored)
        chosen = Chosen(examples, choose(config, examples))
        counts = _counts(prepared, works, chosen)
        outline, laid = windowed.of_chosen(
            prepared, windows, folder, chosen=chosen, counts=counts, report=report
        )
    return Planned(
        backend=prepared.recipe.backend,
        works=works,
        reports=reports,
        sources=sources,
        outline=outline,
        chosen=chosen,
        shards=tuple(window_plan.shards_of(laid)),
        packs=tuple(window_plan.packs_of(laid)),
        filtered=filtered,
    )


def _counts(prepared: Prepared, works: Sequence[Work], chosen: Chosen) -> Counts:
    """What is counted of a choice in one memory."""
    config, examples = prepared.config, chosen.examples
    plans = [work.files.plan for work in works]
    rated = facts.of_parts(prepared.recipe.task.kind, plans, examples.starts, chosen.kept)
    orders = orders_of(chosen.choice, config.plan)
    return facts.of(config, examples, chosen.choice, orders=orders, margins=rated)


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
