"""One split through the stages: a part, content-addressed, written whole or not at all.

A part's name is the hash of its split, the recipe and the code. So a build that died finds its
parts again, a rebuild does only what changed, and any number of workers makes the same bytes.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from pipeline import executors, ranges, remote
from pipeline.inputs import equal_build
from pipeline.inputs.recipe import Recipe
from pipeline.options import overlaps
from pipeline.shards import chain, storage, values
from pipeline.shards.chain import Refusal
from stages import columns, contract, readers
from stages.chat_template import loss_weights
from stages.files import content
from stages.normalize.stage import Normalize
from stages.rows import carried, groups
from stages.tokenizers.survival import Sample
from stages.tokens.folded_labels import fold

# Normalize, the stages after it, and what samples texts.
Machinery: TypeAlias = tuple[Normalize, tuple[contract.Stage, ...], Sample]

PLAN_COLUMNS = ("line", "sequence", "length", "trained", "digest", chain.PARTIAL)
# Of these a plan is made, as far as a part has them: 33 to 45 bytes an example.
_PLANNED = ("line", *PLAN_COLUMNS[2:], groups.NAME, groups.ASKED, "margin")


def columns_of(recipe: Recipe) -> list[str]:
    """The columns of a part: what plans are made from, and what is stored of an example."""
    grouped = groups.columns_of(recipe.config.groups)
    asked = (*recipe.config.carried.columns, *overlaps.columns_of(recipe.config.plan))
    return [*PLAN_COLUMNS, *grouped, *asked, *recipe.task.stored]


FIRST_NOTED = "first_noted"  # among a part's counts: the first line with each note


@dataclass(slots=True)
class PartReport:
    """What happened in a part; the part's ``.json`` holds it, with the part's key, under a seal.

    Attributes:
        lines: lines of the split, blank ones included.
        rows: rows read.
        made: sequences that rows became, those refused beside others of their row included.
        filtered: rows that ``--where`` left out.
        sampled: rows whose texts were encoded by the reference, too.
        lost: those whose texts the tokenizer loses; ``loss``: what it loses of the first.
        counts: sums and tallies by name.
        damage: what ended the input too early, where only the rows before it were kept.
        weighted: some row has a loss weight other than 0 and 1; ``examples``: kept.
        sha256: of the part's Arrow file; ``plan_sha256``: of the numbers that plans need;
            ``rejects_sha256``: of its refused rows.
        input_sha256: of the split.
        tokens: of the examples that are kept; ``refused``: sequences that were refused.
        kept: the part was there already. It is not written down.
    """

    lines: int = 0
    rows: int = 0
    made: int = 0
    filtered: int = 0
    sampled: int = 0
    lost: int = 0
    loss: str = ""
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    damage: str = ""
    weighted: bool = False
    examples: int = 0
    sha256: str = ""
    plan_sha256: str = ""
    rejects_sha256: str = ""
    input_sha256: str = ""
    tokens: int = 0
    refused: int = 0
    kept: bool = field(default=False, compare=False)

    @property
    def amount(self) -> executors.Amount:
        """What progress says of it; the bytes of its split are known to whoever asks."""
        return executors.Amount(rows=self.rows, tokens=self.tokens, refused=self.refused)

    @staticmethod
    def lost_of(reports: "Iterable[PartReport]") -> tuple[int, int, str]:
        """Rows of all parts whose text is lost, of how many sampled; what the first loses."""
        every = list(reports)
        sampled = sum(one.sampled for one in every)
        first = next((one.loss for one in every if one.loss), "")
        return sum(one.lost for one in every), sampled, first

    def tally(self, name: str, values: dict[str, int]) -> None:
        """Add to the counts of one kind."""
        kind = Counter(self.counts.get(name, {}))
        kind.update(values)
        self.counts[name] = {key: int(kind[key]) for key in sorted(kind)}


@dataclass(frozen=True, slots=True)
class Work:
    """One part to make: a split, its format, and where the part goes.

    Attributes:
        key: the part's name; empty until the split is hashed.
        first_line: of the split, from 0; None where the lines before it were not counted.
        source: the number of the build's source that it belongs to.
        maker: hash of all else that the part depends on; ``made_with``: in words.
    """

    split: contract.Split
    format: str
    folder: str
    key: str
    first_line: int | None = 0
    source: int = 0
    maker: str = ""
    made_with: Mapping[str, str] = field(default_factory=dict)

    def of(self, split: contract.Split) -> "Work":
        """The same of a split of which more is known."""
        return replace(self, split=split, key=_key_of(self.maker, split))

    def __str__(self) -> str:
        name = Path(self.split.path).name
        if self.first_line is None or not self.split.lines:
            return f"{name} from {self.split.start} on" if self.split.start else name
        return f"{name}, lines {self.first_line + 1} to {self.first_line + self.split.lines},"

    def place(self, line: int) -> str:
        """What a message calls a line of the split, 0-based: ``data.jsonl:1042``."""
        first = self.first_line
        first = content.lines_before(self.split) if first is None else first
        if first is None:
            return f"{self}:{line + 1}"
        return f"{Path(self.split.path).name}:{first + line + 1}"

    @property
    def files(self) -> storage.PartFiles:
        return storage.PartFiles(self.folder, self.key, self.made_with)

    @property
    def path(self) -> Path:
        return self.files.path


def plan_parts(recipe: Recipe, splits: list[tuple[contract.Split, int, str]]) -> list[Work]:
    """Name the part of every split that is hashed, given with its source and its format."""
    run = recipe.config.run
    storage.share(Path(folder := str(run.cache / "parts")), run.shared)
    prints = {
        (number, name): (own.part_fingerprint(name), own.made_with(name))
        for number, name in set(recipe.readings)
        for own in (recipe.of_source(number),)
    }
    works: list[Work] = []
    for split, number, name in splits:
        line, made = _first_line(split, works), prints[number, name]
        works += [Work(split, name, folder, "", line, number, *made).of(split)]
    return works


def _key_of(maker: str, split: contract.Split) -> str:
    """The bytes of the split, which piece of its file it is, and who reads it: the file's name and
    place are left out, so the same rows elsewhere are the same part."""
    if not split.sha256:
        return ""
    source = f"{maker}\0{split.sha256}\0{split.place}\0{split.reader}"
    return hashlib.sha256(source.encode()).hexdigest()


def _first_line(split: contract.Split, before: list[Work]) -> int | None:
    """The line of its file at which a split starts, from the splits of the same file before it."""
    last = before[-1] if before else None
    if last is None or last.split.path != split.path:
        return 0
    if last.first_line is None or last.split.lines is None:
        return None
    return last.first_line + last.split.lines


def finished(
    work: Work, known: Callable[[Path], str | None] | None = None, examples: bool = True
) -> PartReport | None:
    """The report of a part that is already there; None where any byte of it is not as written.

    Args:
        known: gives the hash of a file, or None; by default every file is read.
        examples: the file of examples is read, too; else it only has to be there.
    """
    told = storage.read(work.files, known, examples)
    try:
        report = PartReport(**{**told, "kept": True}) if told is not None else None
        if report is None or not chain.counts_lines(work, report):
            return None
        storage.use(work.files)
    except (OSError, TypeError):
        return None
    return report


def _stored(recipe: Recipe, batch: contract.Batch) -> contract.Batch:
    folded = fold(batch, recipe.marker) if "folded" in recipe.task.stored else batch
    return folded.select(columns_of(recipe))


def _count(recipe: Recipe, report: PartReport, batch: contract.Batch) -> None:
    for name in ("truncated", "merged_cuts"):
        total = pa.compute.sum(batch.column(name)).as_py() or 0
        report.tally("sums", {name: total})
    for name in ("rendered", "encoded"):
        if name in batch.schema.names:
            pairs = batch.column(name).drop_null().value_counts().to_pylist()
            report.tally(name, {pair["values"]: pair["counts"] for pair in pairs})
    if "note" in batch.schema.names:
        noted = carried.noted(batch)
        report.tally("note", {name: len(lines) for name, lines in noted.items()})
        first = {name: lines[0] for name, lines in noted.items()}
        report.counts[FIRST_NOTED] = first | report.counts.get(FIRST_NOTED, {})
    if recipe.splits_turns and "messages" in batch.schema.names:
        report.tally("turn_split", loss_weights.count(batch))


def _write(work: Work, report: PartReport, table: pa.Table, gone: Sequence[Refusal]) -> PartReport:
    """Write the part's files; its report with their hashes."""
    planned = [name for name in _PLANNED if name in table.schema.names]
    told = asdict(report)
    del told["kept"]  # which is said of a part that is found
    hashes = storage.write(work.files, table, planned, [one.text for one in gone], told)
    return replace(report, **hashes)


def make(recipe: Recipe, work: Work) -> PartReport:
    """Make the part, unless it is there already. The split is read once, and hashed as it passes.

    Raises:
        ContainerError, SurroundingsError: the input is damaged, or changed meanwhile.
        ParityError: a sampled row's ids are not the reference's.
        PipelineError: an example that was rendered here breaks a law.
        ReadingError: rows were lost, or a value that is carried is not that of its row.
    """
    storage.share(Path(work.folder), recipe.config.run.shared)
    done = finished(work) if work.key else None
    if done is not None:
        return done
    with content.held(work.split, recipe.config.run.cache / remote.FOLDER) as split:
        ranges.keep(recipe.config.run.cache, work.split, split)
        known = work.of(split)
        if not work.key:  # the file has changed, but perhaps not this piece of it
            hashes = equal_build.hashes_before(recipe.config)
            done = finished(known, hashes.sha256) or finished(known)
        return _made(recipe, known) if done is None else done


def _made(recipe: Recipe, work: Work) -> PartReport:
    """Make a part of bytes that are there."""
    owner = (recipe.fingerprint, recipe.backend)
    recipe = recipe.of_source(work.source)
    machinery = _machinery(recipe, work, owner)
    normalize, _, sample = machinery
    sample.restart()
    normalize.restart()
    report, batches = PartReport(input_sha256=work.split.sha256), []
    rejects: list[Refusal] = []
    last, read = -1, 0  # the last line that held a row; bytes of the split that were read
    version = work.split.version
    plain = version is not None and content.compression(version) is None
    for lines in readers.load(work.split.reader).read(work.split):
        records = lines.by_line
        report.lines += lines.lines
        report.damage = lines.damage or report.damage
        report.rows += len(lines.records)
        last = max(records, default=last)
        normalized, batch, gone = examples_of(machinery, lines, work.place)
        report.made += chain.made(normalized)
        report.tally("losses", asdict(chain.losses_of(normalized, batch, gone)))
        rejects += chain.rejected(gone, records)
        if batch.num_rows:
            values.check_values(batch, recipe.config.carried.paths, records, work.place)
            _count(recipe, report, batch)
            report.tokens += pa.compute.sum(batch.column("length")).as_py()
            batches.append(_stored(recipe, chain.marked(batch, gone)))
        report.refused = len(rejects)
        read += lines.size if plain else 0
        executors.tell(replace(report.amount, size=read))
    report.sampled = sample.sampled
    report.filtered = normalize.tally.filtered
    report.lost, report.loss = sample.lost, sample.loss
    report.tally("formats", normalize.tally.formats)
    report.tally("lacking", normalize.tally.lacking)
    report.tally("unread_rows", normalize.tally.rows)
    report.tally("unread_bytes", normalize.tally.bytes)
    chain.require_counted(report, work, last=last, kept=sum(map(len, batches)))
    schema = columns.schema(columns_of(recipe))
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    chain.require_counts(work, report, examples=table, refused=rejects)
    report.weighted = loss_weights.NAME in table.schema.names and loss_weights.any_in(table)
    report.examples = len(table)
    return _write(work, report, table, rejects)


def examples_of(
    machinery: Machinery, lines: contract.Lines, place: Callable[[int], str]
) -> tuple[contract.Batch, contract.Batch, list[chain.Gone]]:
    """Rows through normalize and all stages, by the laws on every row.

    Args:
        place: gives a line its name in messages.

    Returns:
        What normalize wrote, the examples that stay, and those that a stage refused.

    Raises:
        ParityError, PipelineError: see ``make``.
    """
    normalize, stages, sample = machinery
    normalized = normalize(lines.records)
    batch, gone = chain.through(normalized, stages)
    if not normalize.example_kind.given:  # token ids of users may break invariants
        chain.require_theirs(gone, place)
    if batch.num_rows:
        sample(batch, place)
    return normalized, batch, gone


_Owner = tuple[str, str]
# Of one recipe and encoder; a process works for one build.
_cache: dict[tuple[_Owner, int, str], Machinery] = {}


def _machinery(recipe: Recipe, work: Work, owner: _Owner) -> Machinery:
    """Normalize, stages and sample of a source's format, once per process and recipe.

    They keep what they have compiled, and inputs of several formats take turns.
    """
    if any(kept != owner for kept, *_ in _cache):
        _cache.clear()
    key = (owner, work.source, work.format)
    if key not in _cache:
        _cache[key] = (recipe.normalize(work.format), recipe.stages(work.format), recipe.sample())
    return _cache[key]
