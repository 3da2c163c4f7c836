"""Parts that the ranks of a job array make, each rank in a run of its own.

A rank leaves a record of its parts in the cache, be it a folder or a store. The records are joined
when the build goes on. Nobody waits for anybody: whatever is missing is named, with the ranks to
run again.
"""

import fnmatch
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pipeline.builder.planning import REFERENCE, MadeParts, join, make_parts, missing
from pipeline.builder.preparation import Prepared
from pipeline.inputs import declared
from pipeline.manifest import dataset_files, json_records
from pipeline.manifest.json_records import from_json, plain
from pipeline.messages.progress import Report
from pipeline.options.config import Config
from pipeline.shards import reused_shards
from pipeline.stores import Store, open_store
from stages.errors import UsageError

_RECORDS = "parts-*-of-*.json"


@dataclass(frozen=True, slots=True)
class Rank:
    """One run of so many; counted from 0."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise UsageError(
                f"--shard-id {self.number} is not below --num-shards {self.of}.",
                "Ranks count from 0.",
            )

    def share(self, total: int) -> list[int]:
        """Which of so many pieces this rank makes."""
        return list(range(self.number, total, self.of))

    @property
    def name(self) -> str:
        """Of the file of its record."""
        return f"parts-{self.number}-of-{self.of}.json"


@dataclass(frozen=True, slots=True)
class Record:
    """What a rank leaves behind.

    Attributes:
        rank: its number, and of how many.
        output: of the build, as a real path.
        versions: that it ran with, by what they are of.
        made: its parts.
    """

    rank: tuple[int, int]
    build_id: str
    output: str
    versions: Mapping[str, str]
    made: MadeParts


def _unsealed(store: Store, name: str) -> dict[str, Any]:
    """What a record says, as JSON has it: one of another version may say other things.

    Raises:
        UsageError: it is damaged.
    """
    try:
        return json_records.content_of(store.get(name) or b"")
    except ValueError as error:
        raise UsageError(
            f"{store.shown}/{name} is damaged: {error}.", "Remove it, and run its rank again."
        ) from error


def make_share(prepared: Prepared, rank: Rank, report: Report) -> tuple[MadeParts, list[int]]:
    """Make the parts of one rank, and leave their record.

    Where another rank had to turn to the reference encoder, this one begins with it.

    Returns:
        The parts, and the numbers of the ranks whose parts another encoder made before: they have
        to run again.

    Raises:
        UsageError: another rank ran with other versions.
        PipelineError: see ``make_parts``.
    """
    before = _records(prepared)
    if any(record.made.backend == REFERENCE for record in before):
        prepared = prepared.encoded_by(REFERENCE)
    made = make_parts(prepared, report, rank.share(len(prepared.splits)))
    record = Record(
        rank=(rank.number, rank.of),
        build_id=prepared.planned_id,
        output=_output(prepared.config),
        versions=declared.versions(),
        made=made,
    )
    text = dataset_files.json_text(json_records.sealed_text(plain(record)))
    _cache(prepared).put(f"{_folder(prepared)}/{rank.name}", text.encode(errors="surrogatepass"))
    others = {
        one.rank[0] for one in before if one.made.reports and one.made.backend != made.backend
    }
    return made, sorted(others - {rank.number}) if made.backend == REFERENCE else []


def joined(prepared: Prepared, compared: bool = True) -> MadeParts:
    """The parts of all ranks.

    Args:
        compared: read the examples of all, and compare them with their hashes; else the makers of
            shards do that, each of the parts that it reads. Not where plans read examples, too.

    Raises:
        UsageError: some are missing, or were made by other versions; the message names the ranks.
    """
    records = _records(prepared)
    if not records:
        raise UsageError(*_nothing(prepared))
    made = replace(join([record.made for record in records]), compared=compared)
    lacking = missing(prepared, made)
    if lacking:
        of = Counter(record.rank[1] for record in records).most_common(1)[0][0]
        ranks = sorted({number % of for number in lacking})
        several = len({record.made.backend for record in records}) > 1
        every = f" ({made.backend} has to make all)" if several else ""
        rest = ", and so on." if len(ranks) > 1 else "."
        raise UsageError(
            f"{len(lacking)} of {len(prepared.splits)} parts are missing{every}: those of rank "
            f"{_listed(ranks)} of {of}.",
            f"Run pipeline parts again with --num-shards {of} and --shard-id {ranks[0]}{rest}",
            {"ranks": ranks, "of": of},
        )
    return made


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:20])) + (" and more" if len(ranks) > 20 else "")


def _cache(prepared: Prepared) -> Store:
    """Where ranks find each other's records: a folder, or a store."""
    return open_store(prepared.config.run.cache_dir)


def _folder(prepared: Prepared) -> str:
    return f"{reused_shards.WORKSPACE}/{prepared.planned_id}"


def shown(prepared: Prepared, name: str = "") -> str:
    """Where ranks leave what they make; the record of one by its name."""
    return f"{_cache(prepared).shown}/{_folder(prepared)}/{name}".rstrip("/")


def _output(config: Config) -> str:
    return config.run.shown if config.run.address else os.path.realpath(config.run.output)


def _records(prepared: Prepared) -> list[Record]:
    """The records of the build, in the order of their ranks.

    Raises:
        UsageError: one was written with other versions than this process has.
    """
    store = _cache(prepared)
    names = fnmatch.filter(store.list(_folder(prepared)), f"*/{_RECORDS}")
    records = [from_json(Record, _unsealed(store, name)) for name in names]
    for record in records:
        told = declared.difference(declared.versions(), record.versions)
        if told:
            rank = Rank(*record.rank)
            raise UsageError(
                f"Rank {rank.number} of {rank.of} ran with {told}.",
                "Install the same versions on every machine. Then run its pipeline parts again, "
                f"after removing {shown(prepared, rank.name)}.",
            )
    return sorted(records, key=lambda record: record.rank[::-1])


def _nothing(prepared: Prepared) -> tuple[str, str]:
    """That no rank has made anything; or that they made parts of a build that differs."""
    store = _cache(prepared)
    told, remedy = "No rank has made parts of this build.", "Run pipeline parts first."
    for name in sorted(fnmatch.filter(store.list(reused_shards.WORKSPACE), f"*/*/{_RECORDS}")):
        with suppress(UsageError, KeyError, TypeError):  # damaged, and of another build
            said = _unsealed(store, name)
            if said["output"] == _output(prepared.config):
                differs = declared.difference(declared.versions(), said["versions"])
                what = differs or "other options or inputs than these"
                number, of = said["rank"]
                told = f"Rank {number} of {of} made parts with {what}."
                remedy = "Run all phases with the same recipe, inputs, cache and versions."
    return told, remedy
