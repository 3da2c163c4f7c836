"""Describes an outcome: what a manifest will say of a build that is being made.

The record that it fills is ``pipeline.manifest.manifest.Manifest``. No clock, no host, no absolute
path: equal builds have equal manifests.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline import __version__
from pipeline.builder import rejects
from pipeline.inputs import equal_build, scan
from pipeline.inputs.recipe import Recipe, repaired
from pipeline.manifest import counts as tallies
from pipeline.manifest import manifest as records
from pipeline.manifest.records import Decontamination, Likeness
from pipeline.serving import serving
from pipeline.shards import budgets, chain, examples, facts, filters, gather, pack_index, train_test
from pipeline.shards.choose import Chosen
from pipeline.shards.collect import PartSource
from pipeline.shards.part import FIRST_NOTED, PartReport
from stages import encoders, findings, formats
from stages.chat_template import loss_weights, spelling
from stages.errors import PipelineError
from stages.tokens import layouts


class Outcome(NamedTuple):
    """All that a finished build knows about itself.

    Attributes:
        chosen: every example, where the choice was made in one memory; None elsewhere.
    """

    recipe: Recipe
    inputs: list[scan.Input]
    parts: list[PartReport]
    sources: list[PartSource]  # of the parts
    outline: facts.Outline
    chosen: Chosen | None
    shards: list[gather.ShardReport]
    ledger: rejects.Ledger
    decontamination: Decontamination | None = None
    near_duplicates: Likeness | None = None
    indexes: tuple[pack_index.MeasuredIndex, ...] = ()  # of packs, by side


def splits_of(outcome: Outcome) -> dict[str, records.SplitRecord]:
    """The sides that have rows, with their shards."""
    splits = {}
    for side in outcome.outline.sides:
        own = [s for s in outcome.shards if s.split == side]
        each = [records.ShardRecord(s.path, s.rows, s.tokens, s.bytes, s.sha256) for s in own]
        rows, tokens = sum(s.rows for s in own), sum(s.tokens for s in own)
        splits[side] = records.SplitRecord(rows, sum(s.examples for s in own), tokens, tuple(each))
    return splits


def _sides(outcome: Outcome) -> tallies.SidesRecord | None:
    config, rule = outcome.recipe.config, outcome.outline.rule
    if rule is None:
        return None
    (column, *others) = dict.fromkeys(one.options.group_by for one in config.sources)
    by = "question" if column is None else "column"
    if others:  # the options of each source say by what
        by, column = "source", None
    if config.plan.test:
        by, column = "files", None
    return tallies.SidesRecord(by=by, column=column, asked=config.plan.test_size, **asdict(rule))


def _packing(outcome: Outcome) -> tallies.PackingCounts | None:
    config = outcome.recipe.config
    rows = sum(s.rows for s in outcome.shards)
    tokens = sum(s.tokens for s in outcome.shards)
    if outcome.indexes:
        rows, tokens = pack_index.packs_and_tokens(outcome.indexes)
    elif not layouts.load(config.plan.layout).packs:
        return None
    efficiency = round(tokens / (rows * config.plan.max_length), 6)
    return tallies.PackingCounts(rows, efficiency, outcome.outline.counts.lower_bound)


def _padding(outcome: Outcome) -> tallies.PaddingCounts | None:
    if not layouts.load(outcome.recipe.config.plan.layout).pads:
        return None
    tokens = sum(s.tokens for s in outcome.shards)
    padding = sum(s.padding for s in outcome.shards)
    return tallies.PaddingCounts(outcome.outline.width, round(padding / (tokens + padding), 6))


def _rows(outcome: Outcome) -> tallies.RowCounts:
    ledger, counts = outcome.ledger, outcome.outline.counts
    rows_in = sum(part.rows for part in outcome.parts)
    others: dict[str, Any] = dict(counts.rows_left_out)
    others["filtered"] += sum(part.filtered for part in outcome.parts)
    salvaged = sum(part.rows for part in outcome.parts if part.damage)
    notes = _tallied(outcome.parts, "note") + Counter(salvaged_before_damage=salvaged)
    return tallies.RowCounts(
        in_=rows_in,
        used=counts.rows_used,
        used_in_part=counts.rows_in_part,
        rejected=ledger.rejected_rows,
        **others,
        duplicates_found=counts.found,
        rejected_by_code=dict(sorted(ledger.rows_by_code.items())),
        notes=dict(sorted(notes.items())),
        lacking=dict(sorted(_tallied(outcome.parts, "lacking").items())),
        first_noted=dict(sorted(_first_noted(outcome).items())),
    )


def _first_noted(outcome: Outcome) -> dict[str, str]:
    """The id of the first row with each note, in the order of the inputs."""
    first: dict[str, str] = {}
    for part, source in zip(outcome.parts, outcome.sources, strict=True):
        for note, line in part.counts.get(FIRST_NOTED, {}).items():
            first.setdefault(note, f"{source.name}:{source.first_line + line + 1}")
    return first


def spelled_of(outcome: Outcome) -> tuple[int, int]:
    """Rows with a value in a call that stands there as Python spells it, and all rows in use."""
    return _tallied(outcome.parts, "note")[spelling.NOTE], outcome.outline.counts.rows_used


def examples_of(outcome: Outcome) -> tallies.ExampleCounts:
    """What became of every example."""
    ledger, counts = outcome.ledger, outcome.outline.counts
    others: dict[str, Any] = dict(counts.left_out)
    lost = sum((chain.losses_of_part(part.counts) for part in outcome.parts), chain.Losses())
    turns = tallies.TurnCounts(lost.turns, lost.turns_refused) if lost.turns else None
    made = sum(part.made for part in outcome.parts)
    return tallies.ExampleCounts(
        made=made,
        rejected=ledger.examples_by_code.total(),
        kept=counts.kept,
        rejected_by_code=dict(sorted(ledger.examples_by_code.items())),
        copies=counts.copies,
        rejected_in_part=dict(sorted(ledger.in_part.counts.items())),
        turns=turns if lost.turns != lost.examples else None,
        **others,
    )


def ledger(outcome: Outcome) -> dict[str, int]:
    """What became of every row and every example, as the gate's dataset table has it."""
    rows, made, outline = _rows(outcome), examples_of(outcome), outcome.outline
    counts = outline.counts
    # Packs of one part, or of one window, hold no examples of another.
    within = outcome.recipe.config.plan.pack_within == "part" or outline.windows > 1
    copies = {"copies_declared": made.copies} if made.copies else {}
    sides = outline.sides if within else {}
    stored = {
        "examples_kept": made.kept + made.copies,
        "tokens_kept": counts.tokens,
        "trained_kept": counts.trained,
        "duplicates_declared": counts.equal + made.copies,  # copies are equal, too
        **copies,
    }
    return {
        "rows_in": rows.in_,
        "rows_accounted": sum(getattr(rows, fate) for fate in tallies.FATES),
        "examples_made": made.made,
        "examples_accounted": made.accounted,
        **(pack_index.held(counts, stored) if outcome.indexes else stored),
        **{f"packed_apart_{side}": count for side, count in sides.items()},
    }


def _prm(outcome: Outcome) -> records.PrmRecord | None:
    if not outcome.recipe.task.kind.marks:
        return None
    config, step_tokens = outcome.recipe.config, outcome.recipe.model.profile.step_tokens
    return records.PrmRecord(
        template=config.parts.prm_template,
        step_separator=step_tokens.separator if config.parts.prm_template == "chat" else None,
        label_kind="soft" if any(s.measured.soft_labels for s in outcome.shards) else "hard",
        neutral=",".join(dict.fromkeys(one.options.neutral for one in config.sources)),
    )


def merged_cuts_of(outcome: Outcome) -> int:
    """Places where training starts inside what the tokenizer would have merged."""
    return _tallied(outcome.parts, "sums")["merged_cuts"]


def _encoder(outcome: Outcome) -> records.EncoderRecord:
    recipe = outcome.recipe
    return records.EncoderRecord(
        backend=recipe.backend,
        version=encoders.version_of(recipe.backend),
        parity=records.Parity(  # a build with a difference has no manifest
            sampled=sum(part.sampled for part in outcome.parts), mismatches=0
        ),
        rendered=dict(sorted(_tallied(outcome.parts, "rendered").items())),
        merged_cuts=merged_cuts_of(outcome),
        encoded=dict(sorted(_tallied(outcome.parts, "encoded").items())) or None,
    )


def _tallied(parts: Sequence[PartReport], name: str) -> Counter[str]:
    """A tally of some parts, added up; what is counted as zero stays in it."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.counts.get(name, {}))
    return total


def _unread(parts: Sequence[PartReport]) -> tuple[records.UnreadColumn, ...]:
    """Columns of one input that nothing read, the largest first."""
    rows, size = +_tallied(parts, "unread_rows"), _tallied(parts, "unread_bytes")
    total = max(sum(part.rows - part.filtered for part in parts), 1)
    return tuple(
        records.UnreadColumn(name, rows[name], round(rows[name] / total, 6), size[name])
        for name in sorted(rows, key=lambda column: (-size[column], column))
    )


def _inputs(outcome: Outcome) -> tuple[records.InputRecord, ...]:
    recipe = outcome.recipe
    reports = iter(outcome.parts)
    parts = [[next(reports) for _ in source.splits] for source in outcome.inputs]
    columns = (outcome.inputs, recipe.formats, recipe.evidence, parts)
    return tuple(
        records.InputRecord(
            path=source.name,
            bytes=source.bytes,
            sha256=source.sha256,
            rows=sum(part.rows for part in mine),
            format=name,
            evidence=why,
            damage=next((part.damage for part in mine if part.damage), None),
            unread=_unread(mine),
            source=source.source_name or None,
            pieces=source.pieces if source.pieces > 1 else None,
            formats=dict(sorted((+_tallied(mine, "formats")).items())) or None,
        )
        for source, name, why, mine in zip(*columns, strict=True)
    )


def tokens_of(outcome: Outcome) -> tallies.TokenCounts:
    """All stored tokens, by what they are for."""
    split = loss_weights.figures(_tallied(outcome.parts, "turn_split"))
    return tallies.TokenCounts(
        total=sum(s.tokens for s in outcome.shards),
        trained=outcome.outline.counts.trained,
        padding=sum(s.padding for s in outcome.shards),
        truncated=_tallied(outcome.parts, "sums")["truncated"],
        turn_split=tallies.TurnSplit(**split) if split else None,
        history=outcome.recipe.config.parts.history,
    )


def filters_of(outcome: Outcome) -> tuple[tallies.FilterCounts, ...]:
    """What each filter left out; empty without filters.

    Raises:
        PipelineError: the build does not leave out just what the filters say.
    """
    plan = outcome.chosen
    if plan is None or plan.filtered is None:
        return ()
    filtered = plan.filtered
    if not np.array_equal(plan.choice.fate == examples.Fate.FILTERED, filtered.by > 0):
        raise PipelineError("What the filters leave out is not what was left out.")
    sources, count = outcome.recipe.config.sources, len(filtered.filters) + 1
    each = (filtered.by, filtered.by[filtered.null], _of_rows(plan, filtered))
    found = np.stack([np.bincount(one, minlength=count) for one in each], axis=1).tolist()
    return tuple(
        tallies.FilterCounts(text, sources[source].name or None, *numbers)
        for (source, text), numbers in zip(filtered.filters, found[1:], strict=True)
    )


def _of_rows(plan: Chosen, filtered: filters.Filtered) -> npt.NDArray[np.uint16]:
    """Of each row whose examples are all filtered, the last filter that one of them came to."""
    row = plan.examples.row
    if not len(row):
        return filtered.by
    begin = np.flatnonzero(np.diff(row, prepend=row[0] - 1))
    every = np.logical_and.reduceat(plan.choice.fate == examples.Fate.FILTERED, begin)
    return np.asarray(np.maximum.reduceat(filtered.by, begin)[every])


def _doubles(outcome: Outcome) -> tuple[tallies.DoubleCounts, ...]:
    """What ``--dedup`` left out, by pair of sources; empty where sources have no names."""
    config, found = outcome.recipe.config, sorted(outcome.outline.counts.doubles.items())
    names = [one.name for one in config.sources]
    return tuple(
        tallies.DoubleCounts(names[gone], names[stays], count)
        for (gone, stays), count in found
        if count and config.plan.dedup
    )


def describe(outcome: Outcome, verdict: findings.Validation) -> records.Manifest:
    """The manifest, without writing it; what is read back from the shards is filled in later:
    ``audits``, ``columns``, ``trainers``, ``for_`` and ``files``."""
    recipe, outline = outcome.recipe, outcome.outline
    config = recipe.config
    sides = (train_test.TRAIN, train_test.TEST) if outline.split else (train_test.TRAIN,)
    probes = recipe.model.probes.items()
    inference, room = serving.of_build(recipe, outcome.shards)
    return records.Manifest(
        schema_version=records.SCHEMA_VERSION,
        version=__version__,
        build_id=equal_build.id_of(recipe.fingerprint, outcome.inputs),
        recipe_fingerprint=recipe.fingerprint,
        task=config.task,
        layout=config.plan.layout,
        max_length=config.plan.max_length,
        seed=config.plan.seed,
        options=config.for_build,
        model=repaired(recipe),
        prm=_prm(outcome),
        rm=records.RmRecord(rated.recorded()) if (rated := outline.counts.margins) else None,
        format=",".join(dict.fromkeys(formats.load(name).name for name in recipe.formats)),
        inputs=_inputs(outcome),
        rows=_rows(outcome),
        examples=examples_of(outcome),
        tokens=tokens_of(outcome),
        packing=_packing(outcome),
        padding=_padding(outcome),
        packs=pack_index.records(outcome.indexes),
        windows=outline.windows if outline.windows > 1 else None,
        splits=splits_of(outcome),
        sides=_sides(outcome),
        sources=budgets.records(config, outline.counts.portions, outline.asked, sides),
        filters=filters_of(outcome),
        doubles=_doubles(outcome),
        decontamination=outcome.decontamination,
        near_duplicates=outcome.near_duplicates,
        probes={name: records.ProbeRecord(True, detail) for name, detail in probes},
        encoder=_encoder(outcome),
        inference=inference,
        max_new_tokens=room,
        audits={},
        trainers={},
        files={},
        validation=records.ValidationSummary(verdict.passed, verdict.judged, verdict.failed),
        columns=(),
    )
