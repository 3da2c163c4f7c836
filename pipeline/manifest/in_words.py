"""Sentences about a manifest, for the summary of a build."""

from __future__ import annotations

from pipeline.manifest.counts import MarginCounts, SidesRecord
from pipeline.manifest.manifest import Manifest
from pipeline.manifest.model_record import RepairRecord

LARGE = 0.1  # share of the examples that should not all be on one side


def margins(counts: MarginCounts | None) -> str | None:
    """The summary's line for the manifest's ``rm.margins``; None if all pairs have a margin or
    none has."""
    if not counts or not counts.present or not counts.absent:
        return None
    total = counts.present + counts.absent
    return f"margins   {counts.absent} of {total} pairs have none: null in the column margin"


def sides(record: SidesRecord | None) -> list[str]:
    """Lines for the summary of a build with a test split."""
    if record is None:
        return []
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


def inference(manifest: Manifest) -> list[str]:
    """Lines for the summary of a build."""
    summary: list[str] = []
    limits = manifest.max_new_tokens
    if limits:
        summary.append(
            f"answers   at most {limits.max} tokens, 99.9 % of them at most {limits.p999} "
            "(max_new_tokens in serving.json)"
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
        summary.append(f"repaired  {_sentence(repair)}")
    return summary


def _sentence(repair: RepairRecord) -> str:
    from stages.tokenizers.repairs import Repair

    return Repair(
        file=repair.file, key=repair.key, declared=repair.declared, used=repair.used, why=repair.why
    ).sentence
