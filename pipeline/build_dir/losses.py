"""What a build lost of its rows: by reason, and what to do about each; for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from pipeline.manifest.counts import ExampleCounts, RowCounts
from pipeline.manifest.manifest import Manifest
from pipeline.manifest.records import REJECTS
from stages.counted import counted

MOST = 6  # codes on the terminal
_LONG = 110  # characters of a fix that is said as a whole
_REASONS = {
    "rejected": f"refused, by the codes below; every one is in {REJECTS}",
    "duplicates": "equal to an earlier row; without --dedup they stay",
    "filtered": "left out by --where or a filter",
    "contaminated": "too much like a row of an evaluation file (--decontaminate)",
    "near_duplicates": "too much like another row (--near-dedup)",
    "left_out": "not needed for the budget of their source",
}

Fix = Callable[[str], str]  # what to do about a code; empty where nothing is known


def no_fix(code: str) -> str:
    """Nothing is known of any code."""
    return ""


def lines(manifest: Manifest, fix: Fix = no_fix) -> list[str]:
    """What became of the rows that are not used; then the codes of those that were refused."""
    rows, examples = manifest.rows, manifest.examples
    found = [(getattr(rows, name), why) for name, why in _REASONS.items() if getattr(rows, name)]
    lost = sum(count for count, _ in found)
    told = []
    if lost:
        share = f"{lost / rows.in_:.1%}" if lost >= 0.001 * rows.in_ else "less than 0.1%"
        told.append(f"lost      {lost:,} of {counted(rows.in_, 'row')} ({share})")
        told += [f"          {count:,} {why}" for count, why in found]
    return told + _codes(rows.rejected_by_code, fix) + _beside(rows, examples)


def _codes(by_code: Mapping[str, int], fix: Fix) -> list[str]:
    """The codes of refused rows, the most frequent first, each with its fix."""
    if not by_code:
        return []
    told = ["refused   by code; more about one: pipeline explain CODE"]
    for code, count in Counter(by_code).most_common(MOST):
        what = _short(fix(code))
        told.append(f"          {count:,} {code}{f': {what}' if what else ''}")
    more = len(by_code) - MOST
    return told + (
        [f"          and {counted(more, 'more code')} (see {REJECTS})"] if more > 0 else []
    )


def _short(text: str) -> str:
    """All of it, or its first sentence."""
    text = " ".join(text.split())
    return text if len(text) <= _LONG else f"{text.partition('. ')[0].rstrip('.')}."


def _beside(rows: RowCounts, examples: ExampleCounts) -> list[str]:
    """Refused examples of rows that are not refused: others of theirs are kept."""
    left = Counter(examples.rejected_by_code) - Counter(rows.rejected_by_code)
    return [
        f"          {counted(count, 'example')} refused from rows that kept others: {code}"
        for code, count in left.items()
    ]
