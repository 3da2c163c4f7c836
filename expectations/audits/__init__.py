"""Figures about the data as a whole, with tolerances that can fail a build, by what is measured.

One row breaks an invariant; an audit finds that rows which are all well-formed would together train
something unwanted. It measures the written shards in chunks and judges the totals. A file provides
a TABLE of audits.
"""

import functools
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from expectations.contract import Context
from expectations.stored_rows import Chunk
from stages import catalog
from stages.columns import Ints
from stages.errors import ExpectationError, GateError, UsageError
from stages.findings import AuditResult
from stages.findings import Figure as Figure  # which audits make

TABLES = ("counts", "language", "shortcuts")

PASS, FEW, WARN, FAIL = "pass", "few", "warn", "fail"
_RANK = (PASS, FEW, WARN, FAIL)
_UNJUDGED = (ArithmeticError, LookupError, TypeError, ValueError)

Counts: TypeAlias = dict[str, npt.NDArray[Any]]
Tolerances: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """What one input file contributed."""

    name: str
    rows: int
    examples: int
    tokens: int


@dataclass(frozen=True, slots=True)
class BuildCounts:
    """What became of all examples and tokens, as the manifest counts them.

    Attributes:
        made: examples of all rows; each was kept, refused or removed as a duplicate.
        removed: duplicates that ``--dedup`` took out; ``left_after``: examples that were not equal
            to another, and were left out later, as near-duplicates or by the budget of a source.
        equal: examples with the ids and labels of an earlier one, removed or not.
        too_long: examples refused for their length.
        tokens: of all kept examples, copies included; ``trained`` of them have a label.
        truncated: tokens of whole turns or steps that were left out.
        test: examples of the test split; None without one.
        max_length: tokens that ``--max-length`` allows.
    """

    made: int
    kept: int
    removed: int
    left_after: int
    equal: int
    too_long: int
    tokens: int
    trained: int
    truncated: int
    test: int | None
    max_length: int


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """What is known about all examples without reading them.

    Attributes:
        lengths: the lengths in tokens that kept examples have, ascending, and how many have each.
        leaked: test examples equal to a train example.
        everything: reads the shards, all of them.
        spelled: rows with a call whose null or boolean the template prints as Python spells it, of
            how many.
        lost: sampled rows whose text the tokenizer loses, of how many, and what the first loses.
    """

    context: Context
    ledger: BuildCounts
    lengths: tuple[Ints, Ints]
    leaked: int
    sources: tuple[SourceCounts, ...]
    everything: Callable[[], Iterable[Chunk]] = tuple
    lost: tuple[int, int, str] = (0, 0, "")
    spelled: tuple[int, int] = (0, 0)


class Totals:
    """The measures of all chunks, by name."""

    def __init__(self) -> None:
        self._chunks: dict[str, list[npt.NDArray[Any]]] = {}

    def add(self, counts: Counts) -> None:
        """Add the measures of one chunk."""
        for name, values in counts.items():
            self._chunks.setdefault(name, []).append(values)

    def joined(self, name: str) -> npt.NDArray[Any]:
        """All values, one after another; empty when nothing was measured."""
        chunks = self._chunks.get(name)
        return np.concatenate(chunks) if chunks else np.zeros(0, np.int64)

    def named(self, name: str) -> tuple[str, ...]:
        """The first row ids of a measure that gives row ids."""
        return tuple(self.joined(name)[:5].tolist())

    def summed(self, name: str) -> Ints:
        """Sums by place; shorter arrays count as ending in zeros."""
        chunks = self._chunks.get(name, [])
        total = np.zeros(max((len(values) for values in chunks), default=0), np.int64)
        for values in chunks:
            total[: len(values)] += values
        return total


Judging: TypeAlias = Callable[[AuditFacts, Totals, Tolerances], list[Figure]]
Measuring: TypeAlias = Callable[[Chunk], Counts]


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit.

    Attributes:
        name: as other packages name theirs; ``about``: what it looks at, in a sentence.
        why: what goes wrong in training.
        judge: figures from facts, totals and tolerances.
        measure: what it needs from each chunk.
        tolerances: a figure above ``warn`` or ``fail`` warns or fails; with fewer cases than
            ``least`` it does neither. Without ``fail`` the audit never fails.
        needs: traits of rows, as ``contract.Scope.needs``; empty means any rows.
        whole: in a build with a test split it measures every row, not a sample.
        instead: what to do about data that fails it, as a clause.
    """

    name: str
    about: str
    why: str
    judge: Judging
    measure: Measuring | None = None
    tolerances: Tolerances = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    whole: bool = False
    instead: str = "Change the data"


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("audits.toml").read_text("utf-8"))


def declared(name: str, judge: Judging, measure: Measuring | None = None) -> Audit:
    """An audit of ours, as ``audits.toml`` declares it."""
    said = _table()[name]
    return Audit(
        name, judge=judge, measure=measure, **{**said, "needs": tuple(said.get("needs", ()))}
    )


def level(value: float, tolerances: Tolerances, cases: int) -> str:
    """The status of a figure by its tolerances; with too few cases it neither warns nor fails."""
    warn, fail = tolerances.get("warn", np.inf), tolerances.get("fail", np.inf)
    if value <= min(warn, fail):
        return PASS
    if cases < tolerances.get("least", 0):
        return FEW
    return FAIL if value > fail else WARN


def share(part: float, whole: float) -> float:
    """A rounded share; 0 where the whole is 0."""
    return round(float(part) / float(whole), 6) if whole else 0.0


def portion(
    name: str,
    part: float,
    whole: float,
    detail: str,
    tolerances: Tolerances | None = None,
    *,
    cases: int | None = None,
    rows: tuple[str, ...] = (),
    bins: tuple[tuple[str, int], ...] = (),
) -> Figure:
    """The share of a part in a whole as a figure.

    Args:
        tolerances: those that it is judged by; None where it only reports.
        cases: how many there are to judge by; the whole by default.
        rows, bins: as in ``Figure``.
    """
    value = share(part, whole)
    status = PASS
    if tolerances is not None:
        status = level(value, tolerances, int(whole) if cases is None else cases)
    return Figure(name, value, "share", detail, status=status, rows=rows, bins=bins)


def audits() -> list[Audit]:
    """Every audit, by name."""
    names = catalog.names(__name__)
    return [catalog.load(__name__, name, "AUDIT") for name in names]


def with_tolerances(overrides: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Each audit's tolerances: its own, or those of ``--tolerance AUDIT.LIMIT=VALUE``.

    Raises:
        UsageError: there is no such audit, or it has no such limit.
    """
    tolerances = {audit.name: dict(audit.tolerances) for audit in audits()}
    for key, value in overrides.items():
        name, _, limit = key.partition(".")
        if name not in tolerances:
            raise catalog.unknown("audit", name, sorted(tolerances))
        if not tolerances[name]:
            raise UsageError(f"Audit {name} has no tolerance; it only reports.", "Leave it out.")
        if limit not in ("warn", "fail", "least"):
            raise UsageError(
                f"--tolerance {key}: {limit or 'nothing'} is not a limit.",
                f"For example --tolerance {name}.warn=0.9; the limits are warn, fail and least.",
            )
        tolerances[name][limit] = value
    return tolerances


def _measure(audits: list[Audit], chunks: Iterable[Chunk], totals: dict[str, Totals]) -> None:
    for chunk in chunks:
        for audit in audits:
            if audit.measure is not None:
                totals[audit.name].add(audit.measure(chunk))


def run_audits(
    sample: Callable[[], Iterable[Chunk]], facts: AuditFacts, overrides: Mapping[str, float]
) -> list[AuditResult]:
    """Every audit that applies to the task.

    Args:
        sample: reads evenly spaced rows of the shards.

    Raises:
        GateError: an audit could not be computed.
    """
    applying = [a for a in audits() if facts.context.traits.issuperset(a.needs)]
    return _judged(applying, sample, facts, with_tolerances(overrides))


_UNCOUNTED = BuildCounts(
    made=0, kept=0, removed=0, left_after=0, equal=0, too_long=0, tokens=0, trained=0, truncated=0,
    test=None, max_length=0,
)  # fmt: skip


def foreseen(chunks: list[Chunk], overrides: Mapping[str, float]) -> list[AuditResult]:
    """The audits that some rows of a build fail already, of those that are judged by rows alone.

    Raises:
        GateError: an audit could not be computed.
    """
    tolerances = with_tolerances(overrides)
    context = chunks[0].context
    alone = (a for a in audits() if a.measure and not a.whole and "fail" in tolerances[a.name])
    applying = [a for a in alone if context.traits.issuperset(a.needs)]
    none = np.zeros(0, np.int64)
    facts = AuditFacts(context, _UNCOUNTED, lengths=(none, none), leaked=0, sources=())
    filled = [chunk for chunk in chunks if len(chunk)]
    results = _judged(applying if filled else [], lambda: filled, facts, tolerances)
    return [result for result in results if result.status == FAIL]


def _judged(
    applying: list[Audit],
    sample: Callable[[], Iterable[Chunk]],
    facts: AuditFacts,
    tolerances: Mapping[str, dict[str, float]],
) -> list[AuditResult]:
    totals = {audit.name: Totals() for audit in applying}
    results = []
    try:
        _measure([audit for audit in applying if not audit.whole], sample(), totals)
        if facts.ledger.test is not None:
            _measure([audit for audit in applying if audit.whole], facts.everything(), totals)
        for audit in applying:
            allowed = tolerances[audit.name]
            figures = audit.judge(facts, totals[audit.name], allowed)
            status = max((f.status for f in figures), key=_RANK.index, default=PASS)
            result = AuditResult(
                audit.name, audit.why, status=status, tolerances=allowed, figures=tuple(figures)
            )
            results.append(result)
    except _UNJUDGED as error:
        raise GateError(
            f"The written shards cannot be audited: {type(error).__name__}: {error}.",
            "Nothing was published; please report it with the recipe.",
        ) from error
    return results


def _above(result: AuditResult) -> list[str]:
    """The figures that fail an audit, as sentences."""
    limit = result.tolerances.get("fail", np.inf)
    return [
        f"{figure.name}: {figure.value:g} is above {limit:g} ({figure.detail})"
        for figure in result.figures
        if figure.status == FAIL
    ]


def sentence(result: AuditResult) -> str:
    """Why a failed audit fails a build."""
    return f"the audit {result.name} fails, {'; '.join(_above(result))}"


def require(results: Iterable[AuditResult]) -> None:
    """Refuse data that fails an audit.

    Raises:
        ExpectationError: naming the audit and its figures.
    """
    failed = [result for result in results if result.status == FAIL]
    if not failed:
        return
    lines = [f"  {result.name}, {figure}" for result in failed for figure in _above(result)]
    first = failed[0]
    instead = next((audit.instead for audit in audits() if audit.name == first.name), "")
    raise ExpectationError(
        f"The data fails {'an audit' if len(failed) == 1 else f'{len(failed)} audits'} "
        f"({first.why}):\n" + "\n".join(lines),
        f"{instead}, or allow it with "
        f"--tolerance {first.name}.fail={max(1.0, first.tolerances['fail']):g}. "
        f"See: pipeline explain {first.name}",
    )
