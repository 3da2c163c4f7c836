"""The witness of a build: the case that it is given, in plain values, and what follows from it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expectations.witness.attest import Statement, attest
from pipeline.builder import origin
from pipeline.inputs.recipe import Recipe
from pipeline.inputs.scan import Input
from pipeline.manifest.counts import FilterCounts, WitnessCounts
from pipeline.options.config import Config
from pipeline.shards.measured import OURS
from stages.errors import ModelError, OwnLawError, counted
from stages.files import content
from stages.tokens import layouts

_MARKS = ("step", "good", "bad", "separator")
SHOWN = 3  # differences that an error names
EVERY = "all"
# What the user was told of how rows of a source are read.
_TOLD = (
    *("map", "ignore", "role", "where", "system", "train_on", "neutral", "prompt_separator"),
    *("step_tag", "already_templated", "stop_text", "reasoning_in", "reasoning", "delimiter"),
    *("quoting", "cells", "null_fields", "filter", "group_by", "greeting"),
)


def case_of(
    recipe: Recipe,
    inputs: Sequence[Input],
    lines: Sequence[Sequence[int]],
    folder: Path,
    shards: Sequence[str],
    how: str,
    counts: tuple[int, Mapping[str, int], int],
) -> dict[str, Any]:
    """What the witness is asked.

    Args:
        lines: of each split of each input, or of each input as a whole.
        folder: of the build, staged or published; ``shards``: paths in it.
        how: ``sample`` or ``all`` rows.
        counts: of cuts that were merged, of rows by their notes, and of tokens that were trimmed.
    """
    profile, config = recipe.model.profile, recipe.config
    model = {
        "framed": profile.pair is not None,
        "date": profile.date_string,
        "variants": [dict(variant) for variant in profile.template_variants],
        "ends": list(profile.ends),
        "appended": config.parts.history == "appended" and profile.one_example_per_turn,
        **{name: getattr(profile.step_tokens, name) for name in _MARKS},
        "limit": config.plan.longest_example,
        "positions": profile.context_length,
        "vocabulary": recipe.model.vocab_size,
        "too_long": config.parts.too_long,
        "raw": config.parts.prm_template == "raw",
    }
    named, by_rows = zip(inputs, recipe.formats, lines, strict=True), _chooses_by_rows(config)
    return {
        "folder": str(folder),
        "task": config.task,
        "shards": list(shards),
        "inputs": [_input(recipe, *one) for one in named],
        "model": model,
        # an encoder generates nothing, so its stops are not compared
        "origin": {} if profile.pair else origin.told(recipe),
        "every": how == EVERY,
        **dict(zip(("merged_cuts", "noted", "truncated"), counts, strict=True)),
        "asked": config.plan.test_size > 0
        and all(one.options.group_by is None for one in config.sources),
        "fitted": by_rows and _fits(config),
        "whole": by_rows and not config.plan.dedup,
        "keep": config.plan.dedup_keep if by_rows and config.plan.dedup else "",
        "evaluations": [(x.path, x.sha256, x.column) for x in config.plan.decontaminate],
    }


def left_out(filters: Sequence[FilterCounts]) -> Counter[str]:
    """How many examples each filter leaves out, as the witness calls it."""
    found: Counter[str] = Counter()
    for one in filters:
        found[f"filter {one.expression}"] += one.examples
        found[f"null filter {one.expression}"] += one.null
    return found


def _input(recipe: Recipe, source: Input, reading: str, lines: Sequence[int]) -> dict[str, Any]:
    own = recipe.of_source(source.source)
    told = {name: getattr(own.config.source, name) for name in _TOLD}
    parts, first = [], 0
    hashes = [split.sha256 for split in source.splits]
    for sha256, count in zip(hashes if len(lines) == len(hashes) else [""], lines, strict=True):
        parts.append({"sha256": sha256 or source.sha256, "first": first, "lines": count})
        first += count
    return {
        "name": source.name,
        "path": source.path,
        "format": reading,
        "words": {**told, "container": source.reader, "per_turn": own.splits_turns},
        "test": recipe.config.sources[source.source].test,
        "parts": parts,
    }


def _chooses_by_rows(config: Config) -> bool:
    """Whether each row is stored, refused, left out by a condition, or equal to one that stays."""
    plan, sources = config.plan, config.sources
    chosen = plan.total or plan.test or plan.decontaminate or plan.near_dedup
    return not chosen and not any(one.options.salvage or one.budget.given for one in sources)


def _fits(config: Config) -> bool:
    """Whether rows are padded no further than the longest one that is stored."""
    ours = config.plan.layout in layouts.MEMBERS
    filtered = any(one.options.filter for one in config.sources)
    return ours and config.plan.pad_to == "longest" and not filtered


def hear(case: Mapping[str, Any]) -> Statement:
    """Ask the witness."""
    return attest(dict(case))


def unchanged(statement: Statement, inputs: Sequence[Input]) -> Statement:
    """What was found of inputs whose bytes are still those that the build has read."""
    found = statement.found
    there = {one.name: not found or all(map(content.is_there, one.splits)) for one in inputs}
    if all(there.values()):
        return statement
    rows = {row for row, _ in found if not there.get(row.rpartition(":")[0], True)}
    # What was found of the build as a whole may be of these rows, too.
    left = (one for one in found if one[0] not in rows)
    statement.found = [one for one in left if one[0].rpartition(":")[0] in there]
    statement.unread["an input that has changed since"] += len(rows)
    statement.read -= len(rows)
    return statement


def _is_the_models(statement: Statement, case: Mapping[str, Any]) -> bool:
    """Whether a model's own files contradict each other: those parts of the tokenizer that its
    class loads otherwise are in the build as the model has them."""
    folder = case["origin"].get("folder")
    if folder is None or not statement.unlike:
        return False
    files = (Path(folder), Path(case["folder"]) / "tokenizer")
    theirs, ours = (json.loads((one / "tokenizer.json").read_bytes()) for one in files)
    return all(theirs.get(part) == ours.get(part) for part in statement.unlike)


def require(statement: Statement, case: Mapping[str, Any]) -> None:
    """Require that the witness has found nothing.

    Raises:
        OwnLawError: it has; ``ModelError`` where the model's files contradict each other.
    """
    if not statement.found:
        return
    if _is_the_models(statement, case):
        parts = " and ".join(statement.unlike)
        raise ModelError(
            f"{case['origin']['folder']}: transformers loads another {parts} for its "
            "tokenizer_class than its tokenizer.json has, and so gives rows other ids.",
            "Set tokenizer_class to PreTrainedTokenizerFast in its tokenizer_config.json, or save "
            "its tokenizer again with transformers.",
        )
    rows = counted(len({row for row, _ in statement.found}), "row")
    more = len(statement.found) - SHOWN
    lines = "".join(f"\n  {row}: {what}" for row, what in statement.found[:SHOWN])
    tail = f"\n  and {more} more" if more > 0 else ""
    raise OwnLawError(f"The witness reads {rows} otherwise than the build:{lines}{tail}", OURS)


def record_of(statement: Statement) -> WitnessCounts:
    """The manifest's ``witness``."""
    unread = dict(sorted(statement.unread.items()))
    return WitnessCounts(drawn=statement.rows, read=statement.read, unread=unread)
