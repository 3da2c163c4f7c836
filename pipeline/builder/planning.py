"""Third phase: the plan: which examples are stored, in which order, and in which shard.

It needs every part, and numbers of them alone. Whoever makes shards plans first, or is given the
plan: the same parts give the same one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from expectations.audits import with_tolerances
from pipeline.builder import windowed
from pipeline.builder.preparation import Prepared, in_parallel
from pipeline.inputs import equal_build
from pipeline.messages.progress import ENCODE, Report, Whole
from pipeline.options.config import Config
from pipeline.shards import choose, collect, facts, part, reused_shards, window_plan
from pipeline.shards.part import PartReport, Work
from pipeline.shards.plan import digest_of, windows_of
from stages import columns, encoders
from stages.errors import ModelError, ParityError, PipelineError, UsageError, counted

PLAN = "plan"  # in the workspace
STAGED = ".plan"  # in the staging directory; removed before the build is published


@dataclass(frozen=True, slots=True)
class Planned:
    """What goes into the shards. It can be pickled.

    Attributes:
        backend: the encoder that made the parts.
        works, reports, sources: of every part, in the order of the splits.
        outline: what the plan came to.
        chosen: what becomes of every example, where an option needs all of them in one memory;
            None elsewhere.
        shards: where they are in the plans of windows, whose files lie in the workspace.
        packs: the same of packs that are an index; empty elsewhere.
        compared: see ``MadeParts``.
    """

    backend: str
    works: list[Work]
    reports: list[PartReport]
    sources: list[collect.PartSource]
    outline: facts.Outline
    chosen: choose.Chosen | None = None
    shards: tuple[window_plan.ShardRef, ...] = ()
    packs: tuple[window_plan.ShardRef, ...] = ()
    compared: bool = True

    @property
    def n_shards(self) -> int:
        """How many shards the build has."""
        return len(self.shards)

    def index(self) -> dict[str, list[tuple[columns.Ints, columns.Ints]]]:
        """Packs that are an index, by side and by the shard that their rows would be in: numbers of
        examples among those of the side, and how many each pack has."""
        found: dict[str, list[tuple[columns.Ints, columns.Ints]]] = {}
        for ref in self.packs:
            order, sizes = ref.numbers()
            found.setdefault(ref.split, []).append((order + ref.before, sizes))
        return found


def _unseen(what: str, done: int, total: int) -> None:
    return


def workspace_of(prepared: Prepared) -> Path:
    """Where processes leave plans and shards of a build that is assembled later."""
    return reused_shards.folder_of(prepared.config.run.cache, prepared.planned_id)


def plan(
    prepared: Prepared, made: "MadeParts", report: Report = _unseen, staged: Path | None = None
) -> Planned:
    """Choose, split, shuffle and lay out.

    Args:
        made: the parts of all splits.
        staged: the staging directory, for the plan of a small build: no other process that builds
            the same removes it there. By default it lies in the workspace.

    Raises:
        ModelError: the tokenizer loses the text of too many of the sampled rows.
        UsageError: another version of the program prepared the build, or an option leaves nothing
            to train on.
        DataError: an option leaves nothing, or examples that differ have one digest.
    """
    prepared.require_current()
    prepared = prepared.having_read(made.reports).encoded_by(made.backend)
    works = works_of(prepared, made.backend)
    reports = [made.reports[number] for number in range(len(works))]
    require_text_kept(prepared.config, reports)
    return replace(of_parts(prepared, works, reports, report, staged), compared=made.compared)


def require_text_kept(config: Config, reports: Sequence[PartReport]) -> None:
    """The sampled rows come back from their ids, but for a few.

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
    return plan.shuffle or plan.dedup or choose.needs_one_memory(config)


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
    sources = sources_of(prepared, works, reports)
    windows = windows_of(works, reports, sources)
    folder = workspace_of(prepared) / f"{PLAN}-{digest_of(windows)}"
    if staged is not None and len(windows) == 1:
        folder = staged / STAGED
    parts = [part for window in windows for part in window.members]
    chosen = choose.in_one_memory(prepared.config, parts, reports)
    outline, laid = windowed.plan(prepared, windows, folder, report, chosen)
    return Planned(
        backend=prepared.recipe.backend,
        works=works,
        reports=reports,
        sources=sources,
        outline=outline,
        chosen=chosen,
        shards=tuple(window_plan.shards_of(laid)),
        packs=tuple(window_plan.packs_of(laid)),
    )


def sources_of(
    prepared: Prepared, works: Sequence[Work], reports: Sequence[PartReport]
) -> list[collect.PartSource]:
    """Where each part's examples come from: its file, and the line of it at which it starts."""
    sources = []
    for source, numbers in zip(prepared.inputs, prepared.of_inputs(range(len(works))), strict=True):
        line = 0
        for number in numbers:
            path = str(works[number].path)
            sources.append(collect.PartSource(path, source.name, line, source.source_name))
            line += reports[number].lines
    return sources


# Second phase: splits to parts, in one process or in several, now or later.
#
# Parts lie in the cache, named by what they depend on. A record of made parts says which of them
# are there and what was counted while they were made; records of several processes are joined.


REFERENCE = encoders.Reference.name


@dataclass(frozen=True, slots=True)
class MadeParts:
    """Parts of some of a build's splits, or of all. It can be pickled.

    Attributes:
        backend: the encoder that made them, one for all.
        reports: what was counted, by the number of the split in ``Prepared.splits``.
        compared: the bytes of all their examples were compared with their hashes. Where not, the
            makers of shards do that, each of the parts that it reads.
    """

    backend: str
    reports: Mapping[int, PartReport]
    compared: bool = True


def works_of(prepared: Prepared, backend: str) -> list[Work]:
    """The part of every split, as one encoder makes it."""
    return part.plan_parts(prepared.encoded_by(backend).recipe, prepared.splits)


def make_parts(
    prepared: Prepared, report: Report, numbers: Sequence[int] | None = None
) -> MadeParts:
    """Make parts; those that the cache has are not made again.

    All are made once more by the reference encoder where a sampled row shows that the fast one
    gives other ids.

    Args:
        numbers: of the splits whose parts are made; None for all.

    Raises:
        UsageError: another version of the program prepared the build.
        PipelineError: see ``part.make``.
    """
    prepared.require_current()
    wanted = list(range(len(prepared.splits)) if numbers is None else numbers)
    for backend in dict.fromkeys((prepared.recipe.backend, REFERENCE)):
        recipe = prepared.encoded_by(backend).recipe
        works = works_of(prepared, backend)
        done = _unchanged(prepared, {n: works[n] for n in wanted if works[n].key})
        left = [number for number in wanted if number not in done]
        try:
            made = in_parallel(
                part.make,
                recipe,
                [works[number] for number in left],
                run=recipe.config.run,
                report=report,
                what=ENCODE,
                whole=_whole(works, done, left),
                folders=() if recipe.config.run.shared else None,
            )
        except ParityError as error:
            difference = error
        else:
            reports = done | dict(zip(left, made, strict=True))
            return MadeParts(backend, {number: reports[number] for number in wanted})
    raise PipelineError(
        f"Token ids differ from Hugging Face tokenizers on a sampled row: {difference}.",
        "Nothing was published; please report it with the row and the model.",
    ) from difference


def _whole(works: Sequence[Work], done: Mapping[int, PartReport], left: Sequence[int]) -> Whole:
    """What progress knows of the phase.

    Args:
        done: parts that are there; ``left``: numbers of those that are to be made.
    """
    kept = [replace(report.amount, size=works[n].split.size) for n, report in done.items()]
    sizes = [works[number].split.size for number in left]
    return Whole(pieces=len(kept) + len(left), sizes=sizes, kept=kept, in_bytes=True)


def _unchanged(prepared: Prepared, works: Mapping[int, Work]) -> dict[int, PartReport]:
    """Reports of the parts that an earlier build of the same output had, and that nobody has
    written to since, as their sizes and times say."""
    hashes = equal_build.known_hashes(prepared.config)
    found = {number: part.finished(work, hashes.of) for number, work in works.items()}
    return {number: report for number, report in found.items() if report is not None}


def join(records: Sequence[MadeParts]) -> MadeParts:
    """What several processes made, as one record.

    Where one of them had to turn to the reference encoder, the parts that others made with the fast
    one are left out: a build has one encoder. ``missing`` then names them.
    """
    backends = {record.backend for record in records}
    backend = REFERENCE if len(backends) != 1 else backends.pop()
    reports: dict[int, PartReport] = {}
    for record in records:
        if record.backend == backend:
            reports |= record.reports
    return MadeParts(backend, reports)


def missing(prepared: Prepared, made: MadeParts) -> list[int]:
    """Numbers of the splits whose parts are still to be made by ``made.backend``: those that no
    report is of, and those whose files are not in the cache, whole and as the report has them (of
    examples that nobody compares yet only that they are there)."""
    works = works_of(prepared.having_read(made.reports), made.backend)
    return [
        number
        for number, work in enumerate(works)
        if number not in made.reports
        or part.finished(work, examples=made.compared) != made.reports[number]
    ]


def require_complete(prepared: Prepared, made: MadeParts) -> None:
    """Every split has its part.

    Raises:
        UsageError: another version of the program prepared the build, or parts are missing.
    """
    prepared.require_current()
    lacking = missing(prepared, made)
    if lacking:
        listed = ", ".join(map(str, lacking[:8])) + (" and more" if len(lacking) > 8 else "")
        raise UsageError(
            f"{len(lacking)} of {len(prepared.splits)} parts are missing or damaged: those of the "
            f"input splits {listed}.",
            f"Make them with the encoder {made.backend}, and join the reports.",
        )
