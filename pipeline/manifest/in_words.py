"""Sentences about a manifest, for the summary of a build."""

from collections.abc import Iterable, Sequence

from pipeline.manifest import counts, records
from pipeline.manifest.manifest import Manifest
from stages.errors import counted

LARGE = 0.1  # share of the examples that should not all be on one side


def margins(counts: counts.MarginCounts | None) -> str | None:
    """The summary's line for the manifest's ``rm.margins``; None if all pairs have a margin or
    none has."""
    if not counts or not counts.present or not counts.absent:
        return None
    total = counts.present + counts.absent
    return (
        f"margins   of {counted(total, 'pair')}, {counts.absent:,} without one: "
        "null in the column margin"
    )


def sides(record: counts.SidesRecord | None) -> list[str]:
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


def _labelled(label: str, said: Iterable[str]) -> list[str]:
    """Lines of which the first has a label."""
    return [f"{'' if number else label:<9} {text}" for number, text in enumerate(said)]


def choice(manifest: Manifest) -> list[str]:
    """Lines for the summary of a build that filters, or that drops doubles of named sources."""
    return [
        *_labelled("filters", map(_filtered, manifest.filters)),
        *_labelled("doubles", map(_doubled, manifest.doubles)),
    ]


def _filtered(one: counts.FilterCounts) -> str:
    null = f", {one.null} of them because it is null" if one.null else ""
    name = f"{one.source}: " if one.source else ""
    lost = one.rows != one.examples
    rows = f", and nothing of {counted(one.rows, 'row')} is left" if lost else ""
    return f"{name}{one.expression} leaves out {counted(one.examples, 'example')}{null}{rows}"


def _doubled(pair: counts.DoubleCounts) -> str:
    others = "others of it" if pair.source == pair.kept_in else f"examples of {pair.kept_in}"
    return f"{counted(pair.examples, 'example')} of {pair.source}, equal to {others}"


def overlaps(manifest: Manifest) -> list[str]:
    """Lines for the summary of a build whose rows were compared with others or with evaluations."""
    lines, alike = [], manifest.near_duplicates
    if alike is not None:
        lines.append(
            f"alike     {counted(alike.rows, 'row')} left out as near-duplicates of "
            f"{alike.clusters} others, similarity {alike.likeness:g} or more "
            f"(see {records.NEAR_DUPLICATES})"
        )
    evaluations = manifest.decontamination.evaluations if manifest.decontamination else ()
    lines += _labelled(
        "evals",
        (
            f"{one.name}: {counted(one.rows, 'row')} left out for {one.found} of its "
            f"{counted(one.questions, 'question')} (see {records.CONTAMINATED})"
            for one in evaluations
        ),
    )
    return lines + [_not_judged(one) for one in evaluations if one.not_judged]


def _not_judged(one: records.EvaluationRecord) -> str:
    where = ", ".join(map(str, one.not_judged[:5]))
    more = f" and {len(one.not_judged) - 5} more" if len(one.not_judged) > 5 else ""
    return (
        f"warning   {one.name}: no row could be compared with its lines {where}{more}: no letter "
        f"or digit in {one.column}"
    )


def sources(records: Sequence[counts.SourceRecord], about: str = "") -> list[str]:
    """Lines for the summary of a build of named sources; ``about`` stands before numbers that are
    not exact."""
    lines = _labelled("sources", (_source(one, about) for one in records))
    return lines + [line for one in records for line in _unmet(one, records)]


def _source(one: counts.SourceRecord, about: str) -> str:
    train = one.splits["train"]
    if not one.has.examples and "test" in one.splits:
        return f"{one.name}: {one.splits['test'].examples} examples of the test split"
    has = f" from {one.has.examples}" if train.examples != one.has.examples else ""
    asked = ", ".join(f"{name} {value:,.10g}" for name, value in one.asked.items())
    return (
        f"{one.name}: {about}{counted(train.examples, 'example')}{has}, "
        f"{about}{counted(train.trained, 'trained token')}, {one.share:.2%} of them"
        + (f" (asked: {asked})" if asked else "")
    )


def _unmet(one: counts.SourceRecord, records: Sequence[counts.SourceRecord]) -> list[str]:
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
            f"          all that {one.name} has is used, which limits the size of the mixture "
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
