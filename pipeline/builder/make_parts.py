"""Second phase: splits to parts, in one process or in several, now or later.

Parts lie in the cache, named by what they depend on. A record of made parts says which of them are
there and what was counted while they were made; records of several processes are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.builder.preparation import Prepared, in_parallel
from pipeline.inputs import equal_build
from pipeline.messages.progress import ENCODE, Report, Whole
from pipeline.shards import part
from pipeline.shards.part import PartReport, Work
from stages.encoders import Reference
from stages.errors import ParityError, PipelineError, UsageError

REFERENCE = Reference.name


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
            f"splits {listed}.",
            f"Make them with the encoder {made.backend}, and join the reports.",
        )
