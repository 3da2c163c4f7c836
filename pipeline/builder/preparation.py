"""First phase: the inputs opened and cut into splits, and the recipe resolved over them."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pipeline import processes, sources
from pipeline.builder.max_reject import Limit, error_of, exceeding, limits
from pipeline.builder.rejects import Ledger
from pipeline.executors import NOTHING, Item, Job, Result, Shared
from pipeline.inputs import declared, equal_build
from pipeline.inputs.recipe import Recipe, resolve_recipe
from pipeline.inputs.scan import Input, scan
from pipeline.messages import progress, session
from pipeline.options.build_options import RunOptions
from pipeline.options.config import Config
from pipeline.shards import chain, filters, part
from pipeline.shards.chain import Losses
from stages import catalog, contract, encoders, readers
from stages.errors import UsageError
from stages.rows.carried import Tally


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that the later phases need. It can be pickled, so that other processes run them.

    Attributes:
        inputs: in the order in which they were named.
        build_id: of the build to be, as far as the inputs were read.
        started: seconds since the epoch.
        left_out: files of named folders that no reader is for.
    """

    recipe: Recipe
    inputs: tuple[Input, ...]
    build_id: str
    started: float
    left_out: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        """The options, with what was left to be chosen."""
        return self.recipe.config

    @property
    def splits(self) -> list[tuple[contract.Split, int, str]]:
        """Every split of every input with the number of its source, and with its format. Its place
        here is the split's number."""
        return [
            (split, number, name)
            for source, (number, name) in zip(self.inputs, self.recipe.readings, strict=True)
            for split in source.splits
        ]

    def of_inputs(self, per_split: Sequence[int]) -> list[list[int]]:
        """Numbers of all splits, grouped by input."""
        numbers = iter(per_split)
        return [[next(numbers) for _ in source.splits] for source in self.inputs]

    @property
    def planned_id(self) -> str:
        """The same for every process that prepares the build, whether the inputs were read or
        not."""
        return equal_build.planned_id_of(self.recipe.fingerprint, self.inputs)

    @property
    def is_read(self) -> bool:
        """Whether all inputs were hashed. Until then the build's id is not its last one."""
        return all(source.sha256 for source in self.inputs)

    def having_read(self, reports: Mapping[int, part.PartReport]) -> "Prepared":
        """The same after bytes of the inputs were read.

        Args:
            reports: of parts, by the numbers of their splits.
        """
        if self.is_read:
            return self
        known = enumerate(split for source in self.inputs for split in source.splits)
        splits = iter([_read(split, reports.get(number)) for number, split in known])
        inputs = tuple(one.having([next(splits) for _ in one.splits]) for one in self.inputs)
        build_id = equal_build.id_of(self.recipe.fingerprint, inputs)
        return replace(self, inputs=inputs, build_id=build_id)

    def encoded_by(self, backend: str) -> "Prepared":
        """The same build, encoded by another encoder, whose ids are the same."""
        return replace(self, recipe=replace(self.recipe, backend=backend))

    def require_current(self) -> None:
        """The build is still what this program, as it is now, would make.

        Raises:
            UsageError: another version of the program prepared it.
        """
        if equal_build.id_of(self.recipe.fingerprint, self.inputs) != self.build_id:
            raise UsageError(
                "The build was prepared by another version of this program.",
                "Prepare it again, and make its parts by the same version.",
            )


def _read(split: contract.Split, report: part.PartReport | None) -> contract.Split:
    """A split after its part was made."""
    if split.sha256 or report is None:
        return split
    return replace(split, sha256=report.input_sha256, lines=report.lines)


def prepare(config: Config, inputs: Sequence[Input] | None = None) -> Prepared:
    """Open the inputs and resolve the options; no row is encoded.

    Args:
        inputs: those of the configuration, where they were scanned already.

    Raises:
        UsageError: an option, the model or an input does not exist or does not fit the others.
        DataError: an input is empty or damaged, or its format cannot be detected.
        SurroundingsError: an input is not readable.
    """
    started = time.time()
    declared.require_model(config)
    left_out = tuple(sources.left_out(config.data))
    inputs = tuple(scan(config, hash_now=False) if inputs is None else inputs)
    with encoders.without_threads():  # a process with threads is not copied
        recipe = resolve_recipe(config, inputs)
    build_id = equal_build.id_of(recipe.fingerprint, inputs)
    return Prepared(recipe, inputs, build_id=build_id, started=started, left_out=left_out)


def refuse_early(prepared: Prepared) -> None:
    """Stop a build now that would be refused after all its work is done.

    Raises:
        DataError: a sample of the rows says that too many will be refused.
    """
    with encoders.without_threads():
        require_hopeful(prepared.recipe, prepared.inputs)


# The work of a phase, spread over processes by the build's engine.


def in_parallel(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    *,
    run: RunOptions,
    report: progress.Report,
    what: str,
    folders: Sequence[Path] | None = None,
    whole: progress.Whole | None = None,
) -> list[Result]:
    """``function(shared, item)`` for all items.

    Args:
        function, shared: sent to the workers once; items: one by one.
        what: the phase, as the report calls it.
        folders: that workers read and write, and so all machines share; by default the cache.
        whole: the phase, where more than the number of its pieces is known.

    Returns:
        The results in the order of the items.
    """
    follower = progress.follower_of(report)
    if items or whole is not None:
        known = whole or progress.Whole(pieces=len(items), one_round=True)
        follower.begin(what, replace(known, at_once=run.processes))
    if not items:
        return []
    results: dict[int, Result] = {}
    job = Job(
        phase=what,
        folders=tuple((run.cache,) if folders is None else folders),
        at_once=run.workers or 0,
        address=run.ray_address,
        lost=session.current().warn,
        partly=follower.partly,
    )
    for index, found in _answers(job, function, shared, items, run):
        results[index] = found
        follower.piece(index, getattr(found, "amount", NOTHING), kept=getattr(found, "kept", False))
    return [results[index] for index in range(len(items))]


def workers(run: RunOptions) -> AbstractContextManager[None]:
    """Until the block ends, the workers of one phase, or the connection to them, serve the next."""
    if run.engine == "ray":
        from pipeline import ray  # which may not be installed

        return ray.connected(run.ray_address, run.processes)
    return processes.lasting()


def _answers(
    job: Job,
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    run: RunOptions,
) -> Iterator[tuple[int, Result]]:
    """What the engine yields; one that takes a job is given it.

    Machines of a cluster that share a cache in a store share no folder: what needs one is done by
    processes of this machine.
    """
    apart = run.engine == "ray" and bool(run.shared and job.folders)
    engine = "local" if apart else run.engine
    pmap = catalog.load("pipeline.executors", engine, "pmap")
    if "job" in inspect.signature(pmap).parameters:
        pmap = partial(pmap, job=job)
    found: Iterator[tuple[int, Result]] = pmap(function, shared, items, run.processes)
    return found


# Stops a build at once if a few sampled rows show that it would refuse too many.
#
# Rows from the head, the middle and the tail of each input go through the build's own stages. Bad
# rows in one place prove nothing about the rest of a file. So an input counts only if all three
# places are bad, and then with the smallest share of refused rows among the three.


PLACES = 3
ROWS = 40  # in each place
BYTES = 64 << 10  # of a place; the rows after that are left out
ENOUGH = 0.5  # an input counts if more than this share is refused in every place
INPUTS = 8


def _places(records: Sequence[contract.Record]) -> list[list[contract.Record]]:
    """The first rows of each third of the records, up to ``ROWS`` rows and ``BYTES`` bytes."""
    third = -(-len(records) // PLACES)
    places = []
    for start in range(0, len(records), max(third, 1)):
        size = 0
        taken: list[contract.Record] = []
        for record in records[start : start + min(third, ROWS)]:
            size += len(record.raw)
            if taken and size > BYTES:
                break
            taken.append(record)
        places.append(taken)
    return places


def row_name(name: str, record: contract.Record) -> str:
    """``data.jsonl:1``, or a byte offset where the line's number is unknown."""
    at = f":{record.line + 1}" if record.line >= 0 else f" at byte {record.offset}"
    return f"{name}{at}"


@dataclass(frozen=True, slots=True)
class Through:
    """What became of sampled rows.

    Attributes:
        normalized: what normalize wrote; ``batch``: the examples that are left; ``gone``: the rest.
        tally: what normalize counted.
    """

    normalized: contract.Batch
    batch: contract.Batch
    gone: list[chain.Gone]
    tally: Tally

    def count(self, ledger: Ledger, names: Sequence[str]) -> None:
        """Count what was refused; ``names``: of the rows, by their lines."""
        kept = set(self.batch.column("line").to_pylist()) if self.gone else set()
        for line, some in chain.by_line(chain.refusals(self.gone)).items():
            ledger.count([(names[line], one) for one in some], kept=line in kept)


def through(recipe: Recipe, reading: str, records: list[contract.Record]) -> Through:
    """Sampled rows through normalize and the stages of a build of their source alone; their lines
    are places among them from here on."""
    normalize = recipe.normalize(reading)
    normalized = normalize([replace(record, line=i) for i, record in enumerate(records)])
    return Through(normalized, *chain.through(normalized, recipe.stages(reading)), normalize.tally)


def _refused(
    recipe: Recipe, reading: str, records: list[contract.Record], name: str, ledger: Ledger
) -> Losses:
    """Run rows through the stages: what they lose."""
    names = [row_name(name, record) for record in records]
    made = through(recipe, reading, records)
    made.count(ledger, names)
    filters.of_rows(recipe.config, made.batch, names.__getitem__)
    return chain.losses_of(made.normalized, made.batch, made.gone)


def require_hopeful(recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Stop a build that would refuse more than ``--max-reject`` allows.

    Raises:
        DataError: see ``max_reject.refuse_too_many``; its counts are those of the sample.
        UsageError: a filter compares what cannot be compared.
    """
    recipe = replace(recipe, backend="tokenizers")  # gives the same ids, and is loaded already
    every = list(zip(inputs, recipe.formats, strict=True))
    for limit in limits(recipe.config):
        mine = [(one, name) for one, name in every if one.source in limit.sources]
        if not any(recipe.config.sources[number].options.salvage for number in limit.sources):
            _require_hopeful(recipe, mine, limit)


def _require_hopeful(recipe: Recipe, inputs: Sequence[tuple[Input, str]], limit: Limit) -> None:
    """The same for the inputs that one limit is for."""
    config = recipe.config
    ledger, bound, sampled, small = Ledger(), Losses(), Losses(), 0
    for source, reading in inputs[:INPUTS]:
        machine = recipe.of_source(source.source)
        glimpse = readers.load(source.reader).glimpse(source.version or source.path, PLACES * ROWS)
        if glimpse.rows <= len(glimpse.records):
            small += glimpse.rows
            continue  # so small that the build itself is as fast
        places = _places(glimpse.records)
        seen = [_refused(machine, reading, p, source.name, ledger) for p in places]
        every = sum(seen, Losses())
        sampled += every
        # At least this share of the input will be refused, as far as the sample shows.
        bound += every.at_least(seen, ENOUGH).scaled(glimpse.rows)
    if small:  # how many examples those have is not known
        rows = (bound.rows + small, bound.rows_refused, bound.rows_hit)
        bound = Losses(*rows)
    over = exceeding(bound, limit.share) if len(inputs) <= INPUTS else None
    over = exceeding(sampled, 0) if limit.share == 0 else over
    if over is not None:
        told = exceeding(sampled, limit.share) or over
        raise error_of(ledger, sampled, told, config=config, limit=limit, of="sampled ")
