"""How much a build may differ from the one whose place it takes, before somebody has to agree.

``--replace`` agrees. Nothing of a build depends on these comparisons but whether it is published.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from pipeline.builds.build import Build
from pipeline.manifest import counts, records
from pipeline.manifest.manifest import Manifest
from stages.errors import DataError, PipelineError, UsageError

# Compares a build with the one that it replaces; for the terminal and ``run.json`` only.
#
# No other file depends on the replaced build, so equal builds stay equal.


MOST = 8  # lines on the terminal
NOTABLE = 0.1  # relative change that is worth a line on the terminal


_NUMBERS = (
    "rows.in_ rows.used rows.used_in_part rows.rejected examples.rejected rows.duplicates_found "
    "tokens.total tokens.trained tokens.padding tokens.truncated"
).split()


def _numbers(build: Build) -> dict[str, float]:
    found = {name.rstrip("_"): attrgetter(name)(build.manifest) for name in _NUMBERS}
    return {**found, **figures(build)}


def figures(build: Build) -> dict[str, float]:
    """What the audits measured, but for the sources, by audit and figure.

    Raises:
        DataError: the file is damaged, or the build is an export, which has none.
    """
    audits = [one for one in build.audits.audits if one.name != "sources"]
    return {f"{one.name}.{figure.name}": figure.value for one in audits for figure in one.figures}


def _relative(before: float, after: float) -> float | None:
    return round(after / before - 1, 6) if before else None


def drift(target: Path, staged: Build) -> dict[str, records.Change] | None:
    """Every number that differs from the build in ``target``; None if no build can be read there.

    Args:
        staged: the build that replaces it, with its audits.
    """
    try:
        return between(Build.open(target), staged)
    except PipelineError:
        return None


def between(one: Build, other: Build) -> dict[str, records.Change]:
    """Every number that differs from one build to another.

    Raises:
        DataError: a file of one is damaged, or it is an export, which has no audits.
    """
    before, after = _numbers(one), _numbers(other)
    return {
        name: records.Change(
            before.get(name), after.get(name), _relative(before.get(name, 0), after.get(name, 0))
        )
        for name in (*after, *(name for name in before if name not in after))
        if before.get(name) != after.get(name)
    }


def lines(changes: Mapping[str, records.Change] | None) -> list[str]:
    """The notable changes, one line each."""
    if changes is None:
        return []
    notable = [
        f"drift     {name}: {_text(entry.before)} -> {_text(entry.after)}"
        + (f" ({entry.change:+.1%})" if entry.change is not None else "")
        for name, entry in changes.items()
        if entry.change is None or abs(entry.change) >= NOTABLE
    ]
    more = len(notable) - MOST
    return notable[:MOST] + ([f"drift     {more} more in run.json"] if more > 0 else [])


def _text(value: float | None) -> str:
    return "none" if value is None else f"{value:g}" if value < 1e5 else f"{value:.0f}"


ROWS, TRAINED, SHARE = counts.DRIFTS
SHRINK = 0.5  # of the rows may be lost without a limit of the user's
FEW = 100  # rows; less is never too much of a loss
_AGREE = "If this is meant, publish it with --replace"


def require_same_kind(before: Manifest, task: str, model: str, shown: object) -> None:
    """A build of the same task and model is replaced.

    Args:
        before: of the build that would be replaced; ``shown``: where it lies.

    Raises:
        UsageError: it is another task's or model's.
    """
    if (before.task, before.model.name) != (task, model):
        raise UsageError(
            f"{shown} is a build of {before.task} for {before.model.name}; this one would be "
            f"{task} for {model}.",
            f"Give another directory with -o. {_AGREE}.",
        )


def _shares(one: Build, other: Build) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """What two builds are made of: the share of each source in the trained tokens of the train
    split, where both have sources; else of each input in all tokens, of those that both list."""
    first, second = one.manifest.sources, other.manifest.sources
    if first and second:
        return {s.name: s.share for s in first}, {s.name: s.share for s in second}
    old, new = _of_inputs(one), _of_inputs(other)
    left_out = _unlisted(one.manifest, old) | _unlisted(other.manifest, new)
    listed = {*old, *new} - left_out
    return {n: old.get(n, 0.0) for n in listed}, {n: new.get(n, 0.0) for n in listed}


def _of_inputs(build: Build) -> dict[str, float]:
    """The share of each input in the tokens of all examples; only of the largest of many."""
    try:
        audits = build.audits.audits
    except PipelineError:
        return {}
    found = (figure for audit in audits if audit.name == "sources" for figure in audit.figures)
    return {figure.name: figure.value for figure in found if figure.unit == "share"}


def _unlisted(manifest: Manifest, shares: Mapping[str, float]) -> set[str]:
    """Inputs of a build that are too small to be among the shares that it lists."""
    return {one.path for one in manifest.inputs if one.path not in shares}


def _change(before: float, after: float) -> float:
    return after / before - 1 if before else math.inf if after else 0.0


def exceeded(before: Build, after: Build, limits: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """The numbers that changed more than allowed: before, after, change, limit.

    Changes of rows and tokens are relative; those of shares are differences.
    """
    one, two = before.manifest, after.manifest
    over: dict[str, dict[str, Any]] = {}

    def compare(name: str, old: float, new: float, change: float, limit: float) -> None:
        if abs(change) > limit:
            exact = change if math.isfinite(change) else None
            over[name] = {"before": old, "after": new, "change": exact, "limit": limit}

    rows = (one.rows.used, two.rows.used)
    if ROWS in limits:
        compare(ROWS, *rows, _change(*rows), limits[ROWS])
    elif rows[0] - rows[1] >= FEW:
        compare(ROWS, *rows, min(_change(*rows), 0.0), SHRINK)
    if TRAINED in limits:
        tokens = (one.tokens.trained, two.tokens.trained)
        compare(TRAINED, *tokens, _change(*tokens), limits[TRAINED])
    if SHARE in limits:
        old, new = _shares(before, after)
        for name in sorted({*old, *new}):
            pair = (old.get(name, 0.0), new.get(name, 0.0))
            compare(f"{SHARE} of {name}", *pair, pair[1] - pair[0], limits[SHARE])
    return over


def require_within(before: Build, after: Build, limits: Mapping[str, float]) -> None:
    """The build changed no more than allowed against the one before.

    Raises:
        DataError: it did, with the numbers.
    """
    over = exceeded(before, after, limits)
    if not over:
        return
    lines = "\n".join(
        f"  {name}: {one['before']:g} -> {one['after']:g} "
        f"({'from nothing' if one['change'] is None else format(one['change'], '+.1%')}; "
        f"the limit is {one['limit']:.1%})"
        for name, one in over.items()
    )
    allowed = allowing(over, limits)
    flags = f", or allow it with {allowed}" if allowed else ""
    raise DataError(
        f"The build differs from the previous one by more than the limits allow:\n{lines}",
        f"{_AGREE}{flags}.",
        {
            "drift": {
                name: {**one, "change": one["change"] and round(one["change"], 6)}
                for name, one in over.items()
            }
        },
    )


def allowing(over: Mapping[str, Mapping[str, Any]], limits: Mapping[str, float]) -> str:
    """The flags with which the build passes, those of the other limits too, since flags take the
    place of a recipe's table; empty where no share is enough."""
    raised = dict(limits)
    for name, one in over.items():
        if one["change"] is None:  # from nothing
            return ""
        limit = name.partition(" ")[0]
        change = abs(one["change"])
        least = math.ceil(100 * change - 1e-9) / 100
        raised[limit] = max(raised.get(limit, 0.0), least if change <= least else least + 0.01)
    return " ".join(f"--drift {name}={limit:.12g}" for name, limit in raised.items())


def opened(folder: Any) -> Build | None:
    """The build that would be replaced; None where there is none that can be read."""
    try:
        return Build.open(folder)
    except PipelineError:
        return None


# The result of a build.


@dataclass(frozen=True, slots=True)
class Built:
    """A build that is on disk.

    Attributes:
        fresh: False when an equal build was there already.
        drift: what changed against the build before; None when there was none.
        left_out: files of named folders that no reader is for.
        left_by_tools: files of other programs, in this build or in the one that it replaced.
        current: the link to the current version, where there are versions.
        removed: ids of versions that were removed.
        notes: sentences about versions, for the terminal and for programs.
        trouble: what went wrong when it stood already; each was told at once.
    """

    build: Build
    fresh: bool
    drift: Mapping[str, records.Change] | None = None
    left_out: tuple[str, ...] = ()
    left_by_tools: tuple[str, ...] = ()
    current: Path | None = None
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
