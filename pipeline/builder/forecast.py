"""What a build would give, from a sample of its rows. Reads little and writes nothing.

The sample goes through the very stages of a build. Only the limit on length is lifted, so that one
sample answers for every ``--max-length``.
"""

import itertools
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations import audits
from pipeline import exports, sources
from pipeline.builder import contaminated, max_reject
from pipeline.builder.preparation import row_name, through
from pipeline.builder.rejects import TOO_LONG, Ledger
from pipeline.inputs import declared, readings
from pipeline.inputs.readings import Looks
from pipeline.inputs.recipe import Models, Recipe, opened_otherwise, refusals, resolve_recipe
from pipeline.options.config import Config
from pipeline.shards import chain, facts
from stages import columns, findings
from stages.chat_template import loss_weights
from stages.chat_template.appended import APPENDED
from stages.columns import Bools, Ints
from stages.contract import Batch, Glimpse, Record
from stages.errors import ContainerError
from stages.normalize.evidence import Detection
from stages.rows import carried
from stages.tokens.folded_labels import unfold

SAMPLE_BYTES = 3 << 20
ROW_BYTES = 1 << 18  # larger rows would take seconds to encode; they are counted instead
APPENDED_ROWS = 32  # of an input; a dialogue of many calls takes long to render
_NO_LIMIT = 1 << 30
_IDS = {"folded", "input_ids", "chosen_ids", "rejected_ids"}


class Look(NamedTuple):
    """One input that was looked at."""

    name: str
    origin: str
    bytes: int
    reader: str
    glimpse: Glimpse
    detection: Detection
    source: int = 0


@dataclass(slots=True)
class Sampled:
    """What became of the sample.

    Attributes:
        rows: rows that went in; ``large``: the ids of those that were left out for their size.
        ledger: of what is refused, whatever its length.
        filtered: rows that ``--where`` leaves out, by input; ``lacking``: for a column that is
            null, by input and column.
        unread: rows by input and by column that nothing reads.
        notes: rows by what is odd about them; ``first_noted``: the first of each.
        lengths: tokens of every example (rm: of its longer side).
        shown: the first rows as they are stored, each with its name.
        tokens: of all examples, both sides of a pair counted.
        split: what ``loss_weights.count`` finds; ``once``: tokens of conversations, counted once;
            ``whole``: of some; ``appended``: these appended, None where there is none of one.
        margins: of the sampled pairs (rm); None elsewhere. ``unrated``: steps without a rating;
            ``soft``: some rating is between good and bad.
        failing: audits that fail the examples of the sample.
        alike: what is like evaluations, or like other examples.
        long: examples that a build refuses for their length, trimmed as it trims them.
        left: at least so many are neither refused nor left out by a filter.
        chosen: what filters leave out.
        of_looks: rows of each input that went in, and the examples that ``lengths`` has of them.
        read: rows that went in, by the number of their source; ``losses``: what of these is lost,
            with what is too long.
    """

    rows: int = 0
    large: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    notes: Counter[str] = field(default_factory=Counter)
    first_noted: dict[str, str] = field(default_factory=dict)
    lengths: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    trained: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    shown: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    filtered: Counter[str] = field(default_factory=Counter)
    lacking: dict[str, Counter[str]] = field(default_factory=dict)
    unread: dict[str, Counter[str]] = field(default_factory=dict)
    alike: contaminated.Alike = field(default_factory=contaminated.Alike)
    tokens: int = 0
    split: Counter[str] = field(default_factory=Counter)
    once: int = 0
    whole: int = 0
    appended: int | None = 0
    margins: facts.Margins | None = None
    unrated: int = 0
    soft: bool = False
    failing: list[findings.AuditResult] = field(default_factory=list)
    long: int = 0
    left: int = 0
    chosen: contaminated.FilteredSample = field(default_factory=contaminated.FilteredSample)
    of_looks: list[tuple[int, int]] = field(default_factory=list)
    read: Counter[int] = field(default_factory=Counter)
    losses: dict[int, chain.Losses] = field(default_factory=dict)

    def count_appended(self, machine: Recipe, look: Look, rows: list[Record], batch: Batch) -> None:
        """Count the tokens of the examples of some rows as one example a conversation has them.

        Args:
            machine: without a limit on length; ``rows``: of which the batch is made.
        """
        own = replace(machine, config=machine.config.but(history=APPENDED))
        lines = batch.column("line").unique()
        step = -(-len(lines) // APPENDED_ROWS) or 1
        lines = lines.take(np.arange(0, len(lines), step))
        made = through(own, look.detection.reading, [rows[i] for i in lines.to_pylist()]).batch
        known = self.appended is not None and len(made.column("line").unique()) == len(lines)
        more = pc.sum(made.column("length")).as_py() or 0
        self.appended = (self.appended or 0) + more if known else None
        self.whole += loss_weights.once(batch.filter(pc.is_in(batch.column("line"), lines)))


class Forecast(NamedTuple):
    """What ``pipeline plan`` prints."""

    recipe: Recipe
    files: int
    looks: tuple[Look, ...]
    sampled: Sampled
    left_out: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all inputs, about; files that were not looked at are taken to be alike."""
        return self.rows_of({look.source for look in self.looks})

    def rows_of(self, sources: Container[int]) -> int:
        """The same of some sources, by their numbers."""
        seen = sum(look.glimpse.rows for look in self.looks if look.source in sources)
        return round(seen * self.files / len(self.looks))

    @property
    def examples(self) -> int:
        """Examples of the whole build, about."""
        return round(sum(self.examples_of))

    @property
    def examples_of(self) -> list[float]:
        """The same of each input that was looked at, and of those that it stands for."""
        more = self.files / len(self.looks)
        return [
            look.glimpse.rows * more * made / max(rows, 1)
            for look, (rows, made) in zip(self.looks, self.sampled.of_looks, strict=True)
        ]


def _look(seen: readings.Look, detection: Detection) -> Look:
    """What was found out about an input."""
    name, file, reader, glimpse = seen
    return Look(
        name=name,
        origin=file.origin,
        bytes=file.version.size if file.version else Path(file.path).stat().st_size,
        reader=reader,
        glimpse=glimpse,
        detection=detection,
        source=file.source,
    )


def _affordable(records: list[Record], budget: int) -> list[Record]:
    """Records up to a number of bytes, from all over the sample, without monstrous ones."""
    small = [record for record in records if len(record.raw) <= ROW_BYTES]
    total = sum(len(record.raw) for record in small)
    if total <= budget:
        return small
    step = -(-total // budget)
    return small[:3] + small[3::step]


def _through(
    machine: Recipe, recipe: Recipe, look: Look, records: list[Record], made: Sampled
) -> tuple[Batch, int]:
    """The sample through every stage of a build of its source alone.

    Args:
        machine: the same as the recipe, without a limit on length.

    Returns:
        Its examples, whatever their length, and how many of them are refused for that.
    """
    names = [row_name(look.name, record) for record in records]
    went = through(machine, look.detection.reading, records)
    went.count(made.ledger, names)
    over = _too_long(recipe, look, records=records, batch=went.batch)
    gone, left = went.gone, went.batch
    if over.any():
        gone, left = [*gone, chain.Gone(TOO_LONG, _cut(left, over))], left.filter(pa.array(~over))
    lost = chain.losses_of(went.normalized, left, gone)
    made.losses[look.source] = made.losses.get(look.source, chain.Losses()) + lost
    made.unread[look.name], made.filtered[look.name] = went.tally.rows, went.tally.filtered
    made.lacking[look.name] = went.tally.lacking
    if "note" in went.batch.schema.names:
        for note, lines in carried.noted(went.batch).items():
            made.notes[note] += len(lines)
            made.first_noted.setdefault(note, names[lines[0]])
    batch = made.alike.taken(went.batch, recipe.config, names.__getitem__)
    _show(names, batch=batch, made=made)
    return batch, int(over.sum())


def _cut(batch: Batch, over: Bools) -> Batch:
    """Those that are too long, as refused ones."""
    return columns.refuse(batch, over, TOO_LONG, [""] * int(over.sum())).filter(pa.array(over))


def _too_long(recipe: Recipe, look: Look, records: list[Record], batch: Batch) -> Bools:
    """Which examples of a batch without limits are refused under the limit of the build.

    Where they are trimmed, a build may still refuse one: an exchange may be too long by itself.
    """
    over: Bools = batch.column("length").to_numpy() > recipe.config.plan.longest_example
    if recipe.config.parts.too_long == "reject" or not over.any():
        return over
    place = np.stack([batch.column(name).to_numpy() for name in ("line", "sequence")], axis=1)
    lines = np.unique(place[over, 0])
    trimmed = through(recipe, look.detection.reading, [records[line] for line in lines.tolist()])
    fits = zip(*(trimmed.batch.column(n).to_pylist() for n in ("line", "sequence")), strict=True)
    stays = {(int(lines[line]), sequence) for line, sequence in fits}
    left = np.array([tuple(one) in stays for one in place.tolist()], bool)
    return np.asarray(over & ~left)


def _show(names: list[str], batch: Batch, made: Sampled) -> None:
    wanted = ["input_ids", "labels", "chosen_ids", "rejected_ids", "prompt_length"]
    wanted += ["step_positions", "step_labels"]
    shown = unfold(batch)
    kept = [name for name in ("line", "sequence", *wanted) if name in shown.schema.names]
    for row in shown.select(kept).slice(0, 3 - len(made.shown)).to_pylist():
        name = names[row.pop("line")]
        sequence = row.pop("sequence")
        made.shown.append((f"{name}#{sequence}" if sequence >= 0 else name, row))


def _sampled(recipe: Recipe, looks: Sequence[Look]) -> Sampled:
    # Lengths of all examples, whatever the build allows: the packing table is over many limits.
    unlimited = recipe.config.but(max_length=_NO_LIMIT, pad_to="longest", too_long="reject")
    machine = replace(recipe, config=unlimited)
    made = Sampled(margins=facts.Margins() if recipe.task.kind.compares else None)
    lengths, trained, chunks = [], [], []
    for look in looks:
        records = _affordable(look.glimpse.records, SAMPLE_BYTES // len(looks))
        large = [one for one in look.glimpse.records if len(one.raw) > ROW_BYTES]
        made.large += [row_name(look.name, one) for one in large]
        made.read[look.source] += len(records)
        names = [row_name(look.name, record) for record in records]
        own = recipe.of_source(look.source)
        batch, longer = _through(machine.of_source(look.source), own, look, records, made=made)
        made.long += longer
        # What is too long is refused before a filter sees it.
        batch = made.chosen.left(own.config, look.source, batch, names)
        fit = int((batch.column("length").to_numpy() <= own.config.plan.longest_example).sum())
        made.left += fit + max(batch.num_rows - fit - longer, 0)  # trimmed ones fit too
        made.of_looks.append((len(records), batch.num_rows))
        lengths.append(batch.column("length").to_numpy().astype(np.int64))
        trained.append(batch.column("trained").to_numpy().astype(np.int64))
        ids = _IDS & set(batch.schema.names)
        made.tokens += sum(len(batch.column(name).flatten()) for name in ids)
        if own.splits_turns and "messages" in batch.schema.names:
            made.split.update(loss_weights.count(batch))
            made.once += loss_weights.once(batch)
            made.count_appended(machine.of_source(look.source), look, records, batch)
        if "step_labels" in batch.schema.names:
            labels = batch.column("step_labels").flatten()
            made.unrated += labels.null_count
            made.soft |= bool(set(labels.unique().to_pylist()) - {None, 0.0, 1.0})
        chunks.append(facts.sampled(batch, names, own.model, own.config))
        if made.margins is not None:
            made.margins += facts.of_column(batch.column("margin"))
    made.failing = audits.foreseen(chunks, recipe.config.judge.tolerance)
    made.rows = made.read.total()
    made.lengths, made.trained = np.concatenate(lengths), np.concatenate(trained)
    return made


def forecast(config: Config) -> Forecast:
    """Look at the inputs, and put a sample of their rows through a build's stages.

    Raises:
        PipelineError: what a build would raise before its first row.
    """
    declared.require_model(config)
    try:
        files, seen = readings.opened(config)
    except ContainerError as error:
        raise opened_otherwise(error, config) from error
    return of_glimpses(config, files, seen)


def of_glimpses(config: Config, files: int, seen: Looks) -> Forecast:
    """The same, of inputs that were looked at before."""
    read = readings.recognise_sources(seen, config, refusals(Models(config)))
    looks = tuple(itertools.starmap(_look, read))
    files = len(looks) if files <= readings.MOST_FILES else files  # empty ones are no looks
    # A sample is encoded sooner by the reference than the fast encoder is loaded; ids are the same.
    known = [(look.source, look.detection) for look in looks]
    recipe = resolve_recipe(config, [], lambda _: "tokenizers", known)
    left_out = tuple(sources.left_out(config.data))
    return Forecast(recipe, files, looks, _sampled(recipe, looks), left_out)


def refuses_too_many(estimate: Forecast, more: int = 0) -> str:
    """Which limit on what is refused is exceeded; empty for none. ``more``: as ``foreseen``."""
    made, config = estimate.sampled, estimate.recipe.config
    return max_reject.foreseen(made.losses, config, made.read, estimate.rows_of, more)


def why_stop(estimate: Forecast) -> str:
    """Why a build would be refused, as far as one sees; empty where it would not."""
    made, config = estimate.sampled, estimate.recipe.config
    if not made.left:
        return "nothing would be left"
    told = [*filter(None, [refuses_too_many(estimate)])]
    if config.plan.trainer and estimate.recipe.task.kind.marks:
        facts = exports.ExportFacts(
            task=config.task,
            layout=config.plan.layout,
            max_length=config.plan.max_length,
            bound=None,
            soft=made.soft,
            unlabelled=made.unrated > 0,
        )
        told += filter(None, [exports.load(config.plan.trainer).reason(facts)])
    return "; ".join([*told, *map(audits.sentence, made.failing)])
