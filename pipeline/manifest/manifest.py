"""The records of ``manifest.json``: what was built, from what, and what became of every row.

Attributes are the keys of the file. ``pipeline.builder.description`` makes these records;
``json_records`` reads and writes them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from pipeline.manifest import counts, json_records, records
from stages.findings import OPTIONAL, SPARSE, JsonRecord

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1


class Header(JsonRecord):
    """The keys that are read first, from the manifest of any version."""

    schema_version: int
    version: str = field(default="", metadata=OPTIONAL)


class Listed(JsonRecord):
    """The keys about the folder, which the manifest of every version has.

    Attributes:
        files: sha256 of every file but ``manifest.json`` and ``run.json``, by path.
    """

    build_id: str
    files: Mapping[str, str]


class PrmRecord(JsonRecord):
    """What prm builds say of their steps.

    Attributes:
        template: ``chat`` or ``raw``.
        step_separator: text between two steps; None where rows keep their own.
        label_kind: ``hard`` when every rating is 0 or 1, else ``soft``.
        unlabelled: some step has no rating; ``unrated``: how many, None where none is counted.
    """

    template: str
    step_separator: str | None
    label_kind: str
    neutral: str
    unlabelled: bool = field(default=False, metadata=OPTIONAL)
    unrated: int | None = field(default=None, metadata=SPARSE)


class RmRecord(JsonRecord):
    """What rm builds say of their pairs."""

    margins: counts.MarginCounts | None = field(default=None, metadata=OPTIONAL)


class UnreadColumn(JsonRecord):
    """A column of an input that nothing read.

    Attributes:
        rows: how many have it; ``share``: of the input's rows, 0 to 1.
        bytes: of its values.
    """

    column: str
    rows: int
    share: float
    bytes: int


class InputRecord(JsonRecord):
    """One input file.

    Attributes:
        path: as ``row_id`` has it.
        evidence: why it was read as this format.
        damage: where a salvaged file breaks off.
        source: the name of the recipe's source that it belongs to; null for that of a command.
        pieces: of a file that was hashed in several, how many: ``sha256`` is then the hash of their
            hashes, as text, one after the other.
        formats: of a file with rows of several formats, how many rows each of them read.
    """

    path: str
    bytes: int
    sha256: str
    rows: int
    format: str
    evidence: str
    damage: str | None
    unread: tuple[UnreadColumn, ...] = field(default=(), metadata=OPTIONAL)
    source: str | None = field(default=None, metadata=OPTIONAL)
    pieces: int | None = field(default=None, metadata=OPTIONAL)
    formats: Mapping[str, int] | None = field(default=None, metadata=OPTIONAL)


class ShardRecord(JsonRecord):
    """One shard: its path in the build, and what it holds."""

    path: str
    rows: int
    tokens: int
    bytes: int
    sha256: str


class SplitRecord(JsonRecord):
    """``train`` or ``test``; ``rows`` are stored rows, so packs where they are packed."""

    rows: int
    examples: int
    tokens: int
    shards: tuple[ShardRecord, ...]


class ProbeRecord(JsonRecord):
    """A claim about the model, proved before any row was read."""

    passed: bool
    detail: str


class Parity(JsonRecord):
    """Rows whose texts were encoded again by the reference tokenizer."""

    sampled: int
    mismatches: int


class EncoderRecord(JsonRecord):
    """What encoded.

    Attributes:
        rendered: conversations by how their template was rendered.
        encoded: examples by how they were encoded: as columns, many at once, or by the segments of
            each row.
        merged_cuts: places where training starts inside what the tokenizer would have merged.
    """

    backend: str
    version: str
    parity: Parity
    rendered: Mapping[str, int]
    merged_cuts: int
    encoded: Mapping[str, int] | None = field(default=None, metadata=OPTIONAL)


class AuditLine(JsonRecord):
    """An audit in one sentence; ``audits.json`` has the figures."""

    status: str
    detail: str


class TrainerRecord(JsonRecord):
    """Whether a trainer can train from this build, and why."""

    supported: bool
    detail: str


class ValidationSummary(JsonRecord):
    """``validation.json`` in short: names of the expectations that failed, by severity."""

    passed: bool
    judged: int
    failed: Mapping[str, tuple[str, ...]]


class ExportRecord(JsonRecord):
    """Of an export: for which trainer, and the ``build_id`` of what it was made from."""

    trainer: str
    of: str


class PublishedRecord(JsonRecord):
    """Of a published copy.

    Attributes:
        of: ``content_sha256`` of the manifest of the build that it is a copy of.
        license, origins: as its publisher or its recipe gave them.
        with_rejects: ``rejects.jsonl`` has the text of refused rows.
    """

    of: str
    license: str | None
    origins: tuple[str, ...]
    with_rejects: bool


class IndexRecord(JsonRecord):
    """An index of packs: which stored examples of a side share one.

    Attributes:
        path: relative to the build.
        examples: that packs name, each as often as it is named; ``tokens``: of all packs.
    """

    path: str
    packs: int
    examples: int
    tokens: int
    sha256: str


class Manifest(json_records.Sealed, kw_only=True):
    """``manifest.json``.

    Attributes:
        options: the recipe, by the names of the command line, as JSON has them.
        prm, rm: None in other tasks; ``packing``, ``padding``: in other layouts.
        packs: by side, of builds with ``--index-only``, whose shards have every example once;
            empty for others.
        format: of all inputs, comma-separated.
        inference: None for models with one prompt, ``max_new_tokens``: where nothing was measured.
        columns: of the training rows, ours.
        windows: of parts that were planned apart from each other, each with its own packs; None
            where all were planned together.
        sides: None without ``--test-size``; ``sources``: empty where they have no names.
        filters: what each ``--filter`` left out, in their order; ``doubles``: what ``--dedup`` left
            out, by the sources of what it left out and of what stays.
        decontamination: None where no evaluation files are named; ``near_duplicates``: where rows
            are not compared with each other.
        for_: the trainer of ``--for``.
        export: None for builds; ``published``: but for what ``pipeline publish`` sent.
    """

    schema_version: int
    version: str
    build_id: str
    recipe_fingerprint: str
    task: str
    layout: str
    max_length: int
    seed: int
    options: Mapping[str, object]
    model: records.ModelRecord
    prm: PrmRecord | None
    rm: RmRecord | None = field(default=None, metadata=OPTIONAL)
    format: str
    inputs: tuple[InputRecord, ...]
    rows: counts.RowCounts
    examples: counts.ExampleCounts
    tokens: counts.TokenCounts
    packing: counts.PackingCounts | None
    padding: counts.PaddingCounts | None
    windows: int | None = field(default=None, metadata=OPTIONAL)
    splits: Mapping[str, SplitRecord]
    packs: Mapping[str, IndexRecord] = field(default_factory=dict, metadata=OPTIONAL)
    sides: counts.SidesRecord | None = field(default=None, metadata=OPTIONAL)
    sources: tuple[counts.SourceRecord, ...] = field(default=(), metadata=OPTIONAL)
    filters: tuple[counts.FilterCounts, ...] = field(default=(), metadata=OPTIONAL)
    doubles: tuple[counts.DoubleCounts, ...] = field(default=(), metadata=OPTIONAL)
    decontamination: records.Decontamination | None = field(default=None, metadata=OPTIONAL)
    near_duplicates: records.Likeness | None = field(default=None, metadata=OPTIONAL)
    probes: Mapping[str, ProbeRecord]
    encoder: EncoderRecord
    inference: counts.Inference | None = field(default=None, metadata=OPTIONAL)
    max_new_tokens: counts.AnswerTokens | None = field(default=None, metadata=OPTIONAL)
    audits: Mapping[str, AuditLine]
    trainers: Mapping[str, TrainerRecord]
    files: Mapping[str, str]
    validation: ValidationSummary
    witness: counts.WitnessCounts | None = field(default=None, metadata=OPTIONAL)
    columns: tuple[str, ...]
    for_: str | None = field(default=None, metadata=OPTIONAL)
    export: ExportRecord | None = field(default=None, metadata=OPTIONAL)
    published: PublishedRecord | None = field(default=None, metadata=OPTIONAL)

    @property
    def shards(self) -> tuple[ShardRecord, ...]:
        """Those of all splits, in order."""
        return tuple(shard for side in self.splits.values() for shard in side.shards)

    @property
    def tokens_in_rows(self) -> int:
        """Tokens of all rows that are trained on, of which ``tokens.trained`` have a label.

        Where packs are an index, these are of the packs, each example as often as packs name it;
        ``tokens.total`` is what is stored, each example once.
        """
        packed = sum(one.tokens for one in self.packs.values())
        return packed if self.packs else self.tokens.total

    @property
    def margins(self) -> counts.MarginCounts | None:
        """Pairs with and without a margin; None in other tasks than rm."""
        return self.rm.margins if self.rm else None


# The id of a build: a hash of its recipe and its inputs, so that equal ids mean equal shards.


Named: TypeAlias = tuple[str, str, str]  # name and sha256 of an input; its source, if it has a name


def _of_inputs(inputs: Sequence[Named]) -> str:
    digest = hashlib.sha256()
    for named in inputs:
        digest.update("".join(f"{part}\0" for part in named if part).encode())
    return digest.hexdigest()


def id_of_recipe(fingerprint: str, inputs: Sequence[Named]) -> str:
    """The id of a build to be.

    Args:
        fingerprint: of the recipe.
        inputs: in order.
    """
    return hashlib.sha256(f"{fingerprint}\0{_of_inputs(inputs)}".encode()).hexdigest()


def id_of_manifest(manifest: Manifest) -> str:
    """The same from what a manifest says: of its recipe and inputs, or of the build exported."""
    if manifest.export:
        names = (manifest.export.trainer, manifest.layout, manifest.export.of)
        return hashlib.sha256("\0".join(names).encode()).hexdigest()
    named = [(one.path, one.sha256, one.source or "") for one in manifest.inputs]
    return id_of_recipe(manifest.recipe_fingerprint, named)
