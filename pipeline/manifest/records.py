"""The files beside the manifest as records: run, serving, validation, audits, rejected rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.manifest.counts import AnswerTokens
from pipeline.manifest.json_records import OPTIONAL, JsonRecord, Sealed

RUN = "run.json"
SERVING = "serving.json"
VALIDATION = "validation.json"
REPORT = "report.html"
AUDITS = "audits.json"
REJECTS = "rejects.jsonl"
TOKENIZER = "tokenizer"


@dataclass(frozen=True, slots=True)
class Change(JsonRecord):
    """A number before and after; ``change`` is relative, None where nothing was before."""

    before: float | None
    after: float | None
    change: float | None


@dataclass(frozen=True, slots=True)
class RunRecord(Sealed):
    """``run.json``: all that may differ between two equal builds.

    Attributes:
        started: UTC; ``seconds``: of the whole run.
        tokenizer_source: where the tokenizer came from; ``fetched``: what was downloaded for it.
        model: as it was given.
        inputs: addresses or paths as they were opened.
        drift: numbers that differ from the build that was replaced; None when there was none.
        files_left_out: names of files in named folders that no reader is for.
        oracle_compared: sequences that were compared with the vocabulary itself.
        native: version of the native module that was used; None without it.
    """

    started: str
    seconds: float
    peak_memory_bytes: int
    workers: int
    engine: str
    tokenizer_source: str
    tokenizer_revision: str | None
    model: str
    inputs: tuple[str, ...]
    python: str
    drift: Mapping[str, Change] | None
    files_left_out: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    oracle_compared: int = field(default=0, metadata=OPTIONAL)
    native: str | None = field(default=None, metadata=OPTIONAL)
    fetched: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class Marker(JsonRecord):
    """A custom stop marker, what it is to the tokenizers, and so how to stop at it.

    Attributes:
        ids: of the build's tokenizer.
        stock_tokenizer_sees_it: an untouched tokenizer has it; None where that cannot be known.
    """

    text: str
    ids: tuple[int, ...]
    is_one_token: bool
    stock_tokenizer_sees_it: bool | None
    use: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving(JsonRecord):
    """``serving.json``: where an answer ends, for servers and trainers.

    Attributes:
        max_new_tokens: tokens of the trained answers; None where nothing was measured.
        added_tokens: ids by text; ``needs_this_tokenizer``: how each server is given them.
        step_token, good_token, bad_token: prm only.
        engines: a snippet per engine.
        chat_template: the template's arguments for the prompts that were trained, per engine.
        repairs: a sentence each.
    """

    stop_strings: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    include_stop_str_in_output: bool
    eos_token_id: int
    end_of_turn: str
    end_of_turn_id: int
    pad_token_id: int
    max_new_tokens: AnswerTokens | None = field(default=None, metadata=OPTIONAL)
    added_tokens: Mapping[str, int]
    needs_this_tokenizer: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)
    step_token: str | None = field(default=None, metadata=OPTIONAL)
    good_token: str | None = field(default=None, metadata=OPTIONAL)
    bad_token: str | None = field(default=None, metadata=OPTIONAL)
    markers: tuple[Marker, ...]
    engines: Mapping[str, object]
    chat_template: object = field(default=None, metadata=OPTIONAL)
    repairs: tuple[str, ...] = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class CheckRecord(JsonRecord):
    """One check of an expectation, with its arguments."""

    type: str
    kwargs: Mapping[str, object]
    passed: bool
    broken: int
    observed: object = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation(JsonRecord):
    """One expectation, judged on the shards.

    Attributes:
        table: what it is about: examples, rows, shards or the dataset.
        checked, broken: rows of that table.
        rows: where the first broken ones are; ``seen``: the metrics of the very first.
    """

    name: str
    suite: str
    table: str
    severity: str
    passed: bool
    checked: int
    broken: int
    why: str | None = field(default=None, metadata=OPTIONAL)
    checks: tuple[CheckRecord, ...]
    rows: tuple[Mapping[str, object], ...]
    seen: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Validation(JsonRecord):
    """``validation.json``: the verdict that let the build be published.

    Attributes:
        failed: names of the expectations that failed, by severity.
        tables: rows of metrics by table; ``dataset``: the one row of that table.
    """

    schema_version: int
    engine: str
    passed: bool
    judged: int
    failed: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, int]
    dataset: Mapping[str, int]
    expectations: tuple[Expectation, ...]


@dataclass(frozen=True, slots=True)
class FigureRecord(JsonRecord):
    """One number of an audit.

    Attributes:
        unit: ``share`` (0 to 1), ``auc`` (0.5 to 1), ``tokens`` or ``count``.
        rows: ids of rows that show it.
        bins: labels and counts of its distribution.
    """

    name: str
    value: float
    unit: str
    detail: str
    status: str
    rows: tuple[str, ...]
    bins: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AuditRecord(JsonRecord):
    """One audit with its figures; ``status`` is that of the worst."""

    name: str
    why: str
    status: str
    tolerances: Mapping[str, float]
    figures: tuple[FigureRecord, ...]


@dataclass(frozen=True, slots=True)
class Audits(JsonRecord):
    """``audits.json``; of large builds every so many rows were measured."""

    every_nth_row: int
    audits: tuple[AuditRecord, ...]


@dataclass(frozen=True, slots=True)
class Reject(JsonRecord):
    """A line of ``rejects.jsonl``: one refused row.

    Attributes:
        id: as ``row_id`` has it; ``line`` counts from 1.
        offset: of its first byte in the file; None where rows have none.
        code: a stable word; ``detail``: what is wrong with this row.
        raw: the row as it was read.
    """

    id: str
    source: str
    line: int
    offset: int | None
    stage: str
    code: str
    detail: str
    raw: str
