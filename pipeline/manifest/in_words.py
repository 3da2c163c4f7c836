"""Sentences about a manifest, for the summary of a build."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.manifest.counts import MarginCounts, SidesRecord, SourceRecord
from pipeline.manifest.manifest import Manifest
from stages.counted import counted

LARGE = 0.1  # share of the examples that should not all be on one side


def margins(counts: MarginCounts | None) -> str | None:
    """The summary's line for the manifest's ``rm.margins``; None if all pairs have a margin or
    none has."""
    if not counts or not counts.present or not counts.absent:
        return None
    total = counts.present + counts.absent
    return (
        f"margins   of {counted(total, 'pair')}, {counts.absent:,} without one: "
        "null in the column margin"
    )


def sides(record: SidesRecord | None) -> list[str]:
    """Lines for the summary of a build with a test split."""
    if record is None:
        return []
    if record.by == "files":
        return [f"test      {record.share:.2%} of the examples: those of the named files"]
    named = {"question": "questions", "column": f"values of {record.column}"}
    what = named.get(record.by, "questions or values of columns")
    lines = [
        (
            f"test      {record.share:.2%} of the examples ({record.asked:.2%} asked, give or take "
            f"{record.deviation:.2%}): {record.groups_in_test} of {record.groups} {what}"
        )
    ]
    if record.largest > LARGE:
        way = "--group-by another column" if record.by == "column" else "--group-by COLUMN"
        lines.append(f"warning   {record.largest:.0%} of the examples are one of the {what}: {way}")
    return lines


def choice(manifest: Manifest) -> list[str]:
    """Lines for the summary of a build that filters, or that drops doubles of named sources."""
    lines = []
    for number, one in enumerate(manifest.filters):
        null = f", {one.null} of them because it is null" if one.null else ""
        name = f"{one.source}: " if one.source else ""
        rows = (
            f", and nothing of {counted(one.rows, 'row')} is left"
            if one.rows != one.examples
            else ""
        )
        label = "" if number else "filters"
        lines.append(
            f"{label:<9} {name}{one.expression} leaves out "
            f"{counted(one.examples, 'example')}{null}{rows}"
        )
    for number, pair in enumerate(manifest.doubles):
        label = "" if number else "doubles"
        others = "others of it" if pair.source == pair.kept_in else f"examples of {pair.kept_in}"
        lines.append(
            f"{label:<9} {counted(pair.examples, 'example')} of {pair.source}, equal to {others}"
        )
    return lines


def sources(records: Sequence[SourceRecord], about: str = "") -> list[str]:
    """Lines for the summary of a build of named sources; ``about`` stands before numbers that are
    not exact."""
    lines: list[str] = []
    for one in records:
        train = one.splits["train"]
        if not one.has.examples and "test" in one.splits:
            lines.append(
                f"{'' if lines else 'sources':<9} {one.name}: {one.splits['test'].examples} "
                "examples of the test split"
            )
            continue
        has = f" from {one.has.examples}" if train.examples != one.has.examples else ""
        asked = ", ".join(f"{name} {value:,.10g}" for name, value in one.asked.items())
        lines.append(
            f"{'' if lines else 'sources':<9} {one.name}: "
            f"{about}{counted(train.examples, 'example')}{has}, "
            f"{about}{counted(train.trained, 'trained token')}, {one.share:.2%} of them"
            + (f" (asked: {asked})" if asked else "")
        )
    return lines + [line for one in records for line in _unmet(one, records)]


def _unmet(one: SourceRecord, records: Sequence[SourceRecord]) -> list[str]:
    """What a source does not give, and why."""
    if one.short:
        line = (
            f"warning   {one.name} gives {one.given:,.10g} of the {one.amount:,.10g} "
            f"{one.unit.replace('_', ' ')} asked for: add data, or give it more epochs"
        )
        return [line]
    found = []
    if one.coarse and not any(other.short for other in records):
        found.append(
            f"warning   {one.name} is {one.share:.2%} of the trained tokens instead of "
            f"{one.wanted_share:.2%}: its next example is too large for what is left"
        )
    if one.scarcest and any(other.given < other.has.trained for other in records if other != one):
        found.append(
            f"          all that {one.name} has is used, and sets the size of the mixture "
            "(give it more epochs, or a smaller share)"
        )
    return found


def inference(manifest: Manifest) -> list[str]:
    """Lines for the summary of a build."""
    summary: list[str] = []
    limits = manifest.max_new_tokens
    if limits:
        summary.append(
            f"answers   at most {counted(limits.max, 'token')}, 99.9 % of them at most "
            f"{limits.p999:,} (max_new_tokens in serving.json)"
        )
    found = manifest.inference
    if found:
        counts = ", ".join(f"{n} {name}" for name, n in found.trained_turns.items() if n)
        summary.append(f"prompts   trained turns, by the prompt before them: {counts}")
        if found.arguments:
            keywords = ", ".join(f"{k}={v}" for k, v in found.arguments.items())
            summary.append(f"          at inference render with {keywords} (see serving.json)")
        if found.mixed:
            summary += [
                "warning   answers with reasoning and without it are trained after different",
                "          prompts, and a server uses one of them: choose with --thinking on,",
                "          or with --reasoning strip --thinking off",
            ]
    added = manifest.model.added_tokens
    for text, index in added.items():
        summary.append(f"token     {text!r} is registered as {index}, in answers and in prompts")
    if added:
        summary.append("          every server must load this build's tokenizer (see serving.json)")
    for repair in manifest.model.repairs:
        summary.append(f"repaired  {repair.sentence}")
    return summary
