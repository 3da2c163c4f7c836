"""Records of what a build says: their base class, and what was found in its rows.

``validation.json`` and ``audits.json`` have these; who reads a finished build gets the same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, dataclass_transform

OPTIONAL = {"optional": True}  # metadata of a key that older builds lack; they get its default
SPARSE = {"optional": True, "sparse": True}  # of one that is left out where it has its default


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True, kw_only=True)
class JsonRecord:
    """One JSON object. Every class of this kind is a frozen dataclass.

    Attributes:
        unknown: keys that this version does not know, with their values.
        order: the keys as they were read; empty for a record that was made here.
    """

    unknown: Mapping[str, Any] = field(default_factory=dict, repr=False)
    order: tuple[str, ...] = field(default=(), repr=False)

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)


SEVERITIES = ("critical", "warning", "info")


class Judged(JsonRecord):
    """One check of an expectation over one table.

    Attributes:
        kwargs: its arguments, parameters resolved.
        broken: how many rows break it; 1 where it is about the table as a whole.
        observed: the observed value, where Great Expectations reports one.
    """

    type: str
    kwargs: Mapping[str, object]
    passed: bool
    broken: int
    observed: object = field(default=None, metadata=SPARSE)


class Finding(JsonRecord, kw_only=True):
    """The result of one invariant, or of one expectation of a user's suite.

    Attributes:
        table: what it is about: examples, rows, shards or the dataset.
        checked: rows of that table; ``broken``: how many of them break any of its checks, from ten
            on at least so many.
        rows: where the first of these are (``row``, ``shard`` and ``at``); ``seen``: the metrics of
            the very first.
    """

    name: str
    suite: str
    table: str
    severity: str
    passed: bool
    checked: int
    broken: int
    why: str | None = field(default=None, metadata=OPTIONAL)
    checks: tuple[Judged, ...]
    rows: tuple[Mapping[str, object], ...] = ()
    seen: Mapping[str, object] = field(default_factory=dict)

    @property
    def fatal(self) -> bool:
        """Whether it refuses a build."""
        return not self.passed and self.severity == "critical"


SCHEMA_VERSION = 1
NAMED = 10  # rows that a finding names


class Validation(JsonRecord):
    """The verdict on a build, and ``validation.json``: without times and paths, so it is equal for
    equal builds.

    Attributes:
        passed: no critical expectation is broken, so the build may be published.
        judged: how many expectations; ``failed``: names of those that failed, by severity.
        tables: rows of metrics by table; ``dataset``: the one row of that table.
    """

    schema_version: int
    engine: str
    passed: bool
    judged: int
    failed: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, int]
    dataset: Mapping[str, int]
    expectations: tuple[Finding, ...]

    @classmethod
    def of(
        cls, findings: Sequence[Finding], tables: Mapping[str, int], dataset: Mapping[str, int]
    ) -> "Validation":
        """The verdict that follows from all findings."""
        broken = [one for one in findings if not one.passed]
        return cls(
            SCHEMA_VERSION,
            "great_expectations",
            passed=not any(one.fatal for one in broken),
            judged=len(findings),
            failed={s: tuple(f.name for f in broken if f.severity == s) for s in SEVERITIES},
            tables=tables,
            dataset=dataset,
            expectations=tuple(findings),
        )


class Figure(JsonRecord):
    """One number of an audit and what it means.

    Attributes:
        unit: ``share`` (0 to 1), ``auc`` (0.5 to 1), ``tokens`` or ``count``.
        rows: ids of some rows that it is about.
        bins: labels and counts of its distribution.
    """

    name: str
    value: float
    unit: str
    detail: str
    status: str = "pass"
    rows: tuple[str, ...] = ()
    bins: tuple[tuple[str, int], ...] = ()


class AuditResult(JsonRecord):
    """One audit's figures; ``status`` is the worst status of a figure."""

    name: str
    why: str
    status: str
    tolerances: Mapping[str, float]
    figures: tuple[Figure, ...]

    @property
    def worst(self) -> Figure | None:
        """The first figure that has the audit's status."""
        return next((f for f in self.figures if f.status == self.status), None)


class Audits(JsonRecord):
    """``audits.json``; of large builds every so many rows were measured."""

    every_nth_row: int
    audits: tuple[AuditResult, ...]
