"""Counts the figures of a manifest again: from the shards, from the files beside them, and from the
options; by code that writes none of them.

What rows show by themselves is counted in builds that are not large.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow.compute as pc

from pipeline import tasks
from pipeline.builder import chosen_again, launch_gate, second_choice
from pipeline.builder.evidence import Evidence
from pipeline.builder.export_gate import policies
from pipeline.builds import stored
from pipeline.manifest import counts, records
from pipeline.manifest.manifest import id_of_manifest
from stages import formats
from stages.files import content

Figure: TypeAlias = tuple[str, object, object]  # what, as it is said, and as it is counted
_FEW = 4  # rows that may be refused of any input, unless none may be
_AMOUNTS = ("rows", "tokens", "trained_tokens")
_PORTION = ("examples", "tokens", "trained")
_BUDGET = ("share", "weight", *_AMOUNTS, "epochs")


def problems(evidence: Evidence) -> Iterator[str]:
    """Figures of the manifest that are not what is counted."""
    manifest = evidence.manifest
    each = (
        _of_options,
        _of_files,
        _of_inputs,
        _of_case,
        _of_shards,
        _of_rest,
        _of_examples,
        _of_sources,
    )
    for what, said, found in (
        *counts.sums(manifest),
        *chain(*(one(evidence) for one in (*each, _of_turns))),
    ):
        if said != found:
            yield f"{what}: the manifest says {said}, and the sum is {found}"
    for one in manifest.inputs:
        if any(column.share > 1 for column in one.unread):
            yield f"{one.path}: a column is unread in more rows than were read"
    yield from chosen_again.problems(evidence)
    yield from second_choice.problems(evidence)


def _of_options(evidence: Evidence) -> Iterator[Figure]:
    """What the manifest repeats of its options."""
    manifest, options = evidence.manifest, evidence.manifest.options
    built = manifest.export is None
    for name in ("task", "seed", *(("layout",) if built else ())):
        yield name, getattr(manifest, name), options[name]
    yield "build_id", manifest.build_id, id_of_manifest(manifest)
    yield "history", manifest.tokens.history, options.get("history", manifest.tokens.history)
    every = evidence.asked
    if built:
        yield "for", manifest.for_ or "", options["trainer"]
        yield "max_length", manifest.max_length, options["max_length"]
        asked = options["padding_side"] or manifest.model.padding_side
        yield "padding_side", manifest.model.padding_side, asked
        room = str(options.get("pad_to", "longest"))
        if manifest.padding and room != "longest":
            wide = str(manifest.max_length) if room == "max-length" else room
            yield "width", str(manifest.padding.width), wide
        yield "eos", options.get("eos") or manifest.model.end_of_turn, manifest.model.end_of_turn
        if {one.get("max_reject") for one in every} <= {None, options["max_reject"]}:
            limit, rows = float(str(options["max_reject"])), manifest.rows
            allowed = max(_FEW if limit else 0, int(limit * rows.in_ * (1 + 1e-9)))
            yield "refused rows", rows.rejected, min(rows.rejected, allowed)
    if manifest.prm:
        neutral = ",".join(dict.fromkeys(str(one["neutral"]) for one in every))
        yield "neutral", manifest.prm.neutral, neutral
        yield "template", manifest.prm.template, options["prm_template"]
    if options["too_long"] == "reject":
        yield "truncated", manifest.tokens.truncated, 0
    filters = [(one.expression, one.source) for one in manifest.filters]
    wanted = [(text, one.get("name")) for one in every for text in one.get("filter", ())]
    if filters:
        yield "filters", filters, wanted
    if not options["dedup"]:
        yield "duplicates", (manifest.rows.duplicates, manifest.examples.duplicates), (0, 0)
    if manifest.sides is None:
        yield "test_size", options["test_size"], 0
        return
    sides, by = manifest.sides, {one.get("group_by") for one in every}
    yield "asked of sides", sides.asked, options["test_size"]
    if not any(one.get("test") for one in every) and len(by) == 1:
        (column,) = by
        told = ("question", None) if column is None else ("column", column)
        yield "sides", (sides.by, sides.column), told


def _of_files(evidence: Evidence) -> Iterator[Figure]:
    """What the manifest repeats of files beside it."""
    manifest, here = evidence.manifest, evidence.build.here
    said = evidence.read(records.VALIDATION)
    own = manifest.validation
    failed = {severity: list(names) for severity, names in own.failed.items()}
    told = (own.passed, own.judged, failed)
    yield "validation", told, (said["passed"], said["judged"], said["failed"])
    if (here / records.AUDITS).is_file():
        for one in evidence.read(records.AUDITS)["audits"]:
            worst = next((x for x in one["figures"] if x["status"] == one["status"]), None)
            text = f"{worst['name']}: {worst['detail']}" if worst else "nothing to report"
            line = manifest.audits.get(one["name"])
            summed = line and (line.status, line.detail)
            yield f"audits.{one['name']}", summed, (one["status"], text)
            if one["name"] == "lost_text" and worst is not None:
                sampled = worst["detail"].rpartition(" of ")[2].partition(" ")[0]
                yield "sampled", f"{manifest.encoder.parity.sampled:,}", sampled
    if manifest.decontamination and (here / records.CONTAMINATED).is_file():
        hits = evidence.lines(records.CONTAMINATED)
        for about in manifest.decontamination.evaluations:
            mine = [one for one in hits if one["evaluation"] == about.name]
            found = [{one[key] for one in mine} for key in ("line", "id")]
            few = sum(one["share"] < round(manifest.decontamination.share, 6) for one in mine)
            wanted = (len(found[0]), len(found[1]), len({_row(name) for name in found[1]}), few)
            yield f"hits of {about.name}", (about.found, about.examples, about.rows, 0), wanted


def _of_inputs(evidence: Evidence) -> Iterator[Figure]:
    """What inputs are as files, and what of their rows nothing has read."""
    manifest = evidence.manifest
    asked = {name for one in evidence.asked for name in ("where", "filter") if one.get(name)}
    # Of what conditions leave out it is known how much of all inputs, and not by which of two.
    known = "where" not in asked or (asked == {"where"} and len(manifest.inputs) == 1)
    left = manifest.rows.filtered if "where" in asked else 0
    for one in manifest.inputs:
        for column in one.unread if known else ():
            share = round(column.rows / max(one.rows - left, 1), 6)
            yield f"{column.column} of {one.path}", column.share, share
        source = evidence.inputs.get(one.path)
        if source is None or not Path(source.path).is_file():
            continue
        size = Path(source.path).stat().st_size
        if size != one.bytes and all(map(content.is_there, source.splits)):
            yield f"bytes of {one.path}", one.bytes, size


def _row(name: str) -> str:
    """The row of an example."""
    path, _, rest = name.rpartition(":")
    return f"{path}:{rest.partition('#')[0]}"


def _of_case(evidence: Evidence) -> Iterator[Figure]:
    """What the witness was told, by which it has read the rows."""
    manifest, case = evidence.manifest, evidence.case
    if case is None or manifest.export is not None:
        return
    for one, told in zip(manifest.inputs, case["inputs"], strict=True):
        yield f"format of {one.path}", (one.path, one.format), (told["name"], told["format"])
    names = dict.fromkeys(formats.load(told["format"]).name for told in case["inputs"])
    yield "format", manifest.format, ",".join(names)
    yield "merged_cuts", manifest.encoder.merged_cuts, case["merged_cuts"]
    if manifest.prm:
        raw = manifest.prm.template == "raw"
        separator = None if raw else case["model"]["separator"]
        yield "step_separator", manifest.prm.step_separator, separator


def _of_shards(evidence: Evidence) -> Iterator[Figure]:
    """Totals of the manifest against what was measured of the shards."""
    manifest, dataset = evidence.manifest, evidence.dataset
    kind, export = tasks.kind_of(manifest.task), manifest.export is not None
    known = {one.path: one for one in evidence.shards}
    for name, side in manifest.splits.items():
        yield f"tokens of {name}", side.tokens, evidence.counted("n_tokens", name)
        yield f"examples of {name}", side.examples, evidence.counted("n_examples", name)
        for shard in () if export else side.shards:
            own = known[shard.path]
            yield (
                shard.path,
                (shard.rows, shard.tokens),
                (own.counts["n_rows"], own.counts["n_tokens"]),
            )
            hashes = (shard.sha256, manifest.files[shard.path])
            yield f"sha256 of {shard.path}", hashes, (own.sha256, own.sha256)
            size = (evidence.build.here / shard.path).stat().st_size
            yield f"bytes of {shard.path}", shard.bytes, size
    padding = evidence.counted("n_stored") - evidence.counted("n_tokens")
    yield "padding", manifest.tokens.padding, padding
    if manifest.padding:
        rows = sum(side.rows for side in manifest.splits.values()) * (1 + kind.compares)
        stored_ids = evidence.counted("n_stored")
        yield "padding.width", manifest.padding.width * rows, stored_ids
        yield "padding.waste", manifest.padding.waste, round(padding / max(stored_ids, 1), 6)
    if kind.labelled and not manifest.packs:
        yield "trained tokens", manifest.tokens.trained, evidence.counted("n_trained")
    elif not manifest.packs and "trained_kept" in dataset:
        yield "trained tokens", manifest.tokens.trained, dataset["trained_kept"]
    if kind.compares and not export and manifest.inference is None:
        behind, trained = evidence.total("n_behind_prompt"), manifest.tokens.trained
        # Where answers have several turns, those of the user between them are not trained.
        alone = evidence.answers_alone
        yield "trained of pairs", trained, behind if alone else min(trained, behind)
    if manifest.margins and not manifest.packs and not manifest.examples.copies:
        rated = evidence.total("has_margin")
        yield "pairs with a margin", manifest.margins.present, rated
        yield "pairs without", manifest.margins.absent, evidence.counted("n_examples") - rated
    if manifest.prm:
        tables = [stored.read_file(evidence.build.here / one.path) for one in manifest.shards]
        each = [one["step_labels"] for one in tables if "step_labels" in one.schema.names]
        soft = any(pc.any(pc.not_equal(pc.round(x), x)).as_py() for x in map(pc.list_flatten, each))
        if each:  # exports have other columns
            yield "label_kind", manifest.prm.label_kind, "soft" if soft else "hard"
        unrated = evidence.total("n_step_labels") - evidence.total("n_labelled")
        yield "unlabelled", manifest.prm.unlabelled, unrated > 0
        if manifest.prm.unrated is not None:  # older builds do not count them
            yield "unrated", manifest.prm.unrated, unrated


def _of_rest(evidence: Evidence) -> Iterator[Figure]:
    """What is counted of answers, packs and equal examples."""
    manifest, export = evidence.manifest, evidence.manifest.export is not None
    kind = tasks.kind_of(manifest.task)
    left_out = manifest.examples.made - manifest.examples.rejected - manifest.examples.kept
    if left_out == manifest.examples.duplicates and not manifest.packs and not export:
        again = evidence.dataset["duplicates_stored"] - manifest.examples.copies + left_out
        yield "duplicates_found", manifest.rows.duplicates_found, again
    if manifest.encoder.encoded is not None:
        encoded = sum(manifest.encoder.encoded.values())
        yield "encoded", encoded, manifest.examples.made - manifest.examples.rejected
    for name, one in manifest.trainers.items() if evidence.parts else ():
        takes = launch_gate.trains(name, launch_gate.facts_of(evidence.build))
        yield f"trainers.{name}", one.supported, one.supported if takes is None else takes
    # A build that fails a probe, or is encoded otherwise by the reference, has no manifest.
    yield "probes", [name for name, one in manifest.probes.items() if not one.passed], []
    yield "mismatches", manifest.encoder.parity.mismatches, 0
    yield "vocab_size", manifest.model.vocab_size, len(evidence.ids)
    yield "family", manifest.model.family, "encoder" if manifest.model.pair else "decoder"
    heard = manifest.witness
    if heard is not None and not heard.unread:
        yield "witness", heard.read, heard.drawn
    if heard is not None and manifest.options.get("witness") == "all":
        yield "drawn", min(heard.drawn, manifest.rows.used), manifest.rows.used
    # Of reasoning that is left out, and of other turns that are trained, no run is an answer.
    room = manifest.max_new_tokens
    if room and not export and all(o != "all" and k != "mask" for o, k in policies(manifest)):
        longest = max(one.counts["longest_answer"] for one in evidence.shards)
        found = (longest, evidence.counted("n_answers"))
        yield "max_new_tokens", (room.max, room.turns), found
        if len(lengths := evidence.answers):
            p999 = int(np.sort(lengths)[-(-len(lengths) * 999 // 1000) - 1])
            yield "max_new_tokens of 99.9 %", room.p999, p999
        if manifest.inference and not kind.compares:
            prompts = sum(manifest.inference.trained_turns.values())
            yield "inference", prompts, evidence.counted("n_answers")
    if manifest.packing and not manifest.packs:
        packs = sum(side.rows for side in manifest.splits.values())
        yield "packs", manifest.packing.packs, packs
        full = round(manifest.tokens.total / (packs * manifest.max_length), 6)
        yield "efficiency", manifest.packing.efficiency, full
    if not export and not manifest.published:
        names = stored.read_file(evidence.build.here / manifest.shards[0].path).schema.names
        yield "columns", manifest.columns, tuple(names)


def _of_examples(evidence: Evidence) -> Iterator[Figure]:
    """What a look at the stored rows shows."""
    manifest, sides = evidence.manifest, evidence.examples
    every = [one for side in sides.values() for one in side]
    if not every:
        return
    names = {one.name for one in every}
    yield "rows used", manifest.rows.used, len({_row(name) for name in names})
    yield "examples kept", manifest.examples.kept, len(names)
    yield "copies", manifest.examples.copies, len(every) - len(names)
    packing = manifest.packing
    if packing and packing.lower_bound is not None and manifest.windows is None:
        room, least = manifest.max_length, 0
        for side in sides.values():
            large = sum(2 * one.tokens > room for one in side)
            least += max(-(-sum(one.tokens for one in side) // room), large)
        yield "lower_bound", packing.lower_bound, least


def _of_turns(evidence: Evidence) -> Iterator[Figure]:
    """Tokens of conversations that became several examples, where nothing of these is left out, and
    no row has several conversations."""
    split = evidence.manifest.tokens.turn_split
    if split is None:
        return
    yield "factor", split.factor, round(split.tokens / max(split.tokens_if_whole, 1), 4)
    every = sorted(
        (one for side in evidence.examples.values() for one in side), key=lambda one: one.place
    )
    rows = [list(own) for _, own in groupby(every, key=lambda one: one.place[:2])]
    several = [own for own in rows if len(own) > 1]
    if (len(several), sum(map(len, several))) == (split.conversations, split.examples):
        yield "turn_split", split.tokens, sum(one.tokens for own in several for one in own)
        yield "tokens_if_whole", split.tokens_if_whole, sum(own[-1].tokens for own in several)


def _of_sources(evidence: Evidence) -> Iterator[Figure]:
    """What each source gave, of which unit, and its share."""
    manifest, options = evidence.manifest, evidence.manifest.options
    found: Counter[tuple[str | None, str, str]] = Counter()
    for split, side in evidence.examples.items():
        for x in side:
            found[x.source, split, "examples"] += 1
            found[x.source, split, "tokens"] += x.tokens
            found[x.source, split, "trained"] += x.trained
    compares = tasks.kind_of(manifest.task).compares
    exact = not compares or (manifest.inference is None and evidence.answers_alone)
    trained = sum(one.splits["train"].trained for one in manifest.sources)
    for one, asked in zip(manifest.sources, evidence.asked, strict=False):
        own = f"source {one.name}"
        share = round(one.splits["train"].trained / trained, 6) if trained else 0.0
        yield f"{own}: share", one.share, share
        budget = {name.replace("-", "_"): value for name, value in one.asked.items()}
        if asked.get("name"):
            yield f"{own}: name", one.name, asked["name"]
            given = {name: asked[name] for name in _BUDGET if asked.get(name) is not None}
            yield f"{own}: asked", budget, given
        whole = one.wanted_share is None and options.get("total") is None
        amounts = [(name, budget[name]) for name in _AMOUNTS if name in budget]
        if whole and not budget.keys() & {"share", "weight"}:
            unit, amount = (*amounts, ("epochs", budget.get("epochs", 1.0)))[0]
            yield f"{own}: unit", (one.unit, float(one.amount)), (unit, float(amount))
        if one.unit == "epochs":
            yield f"{own}: given", (one.given, one.short), (one.amount, False)
        for split, portion in one.splits.items() if evidence.examples else ():
            source = one.name if asked.get("name") else None
            names = _PORTION if exact else _PORTION[:2]
            said = tuple(getattr(portion, name) for name in names)
            yield f"{own}: {split}", said, tuple(found[source, split, name] for name in names)
    known = {one.name for one in manifest.sources}
    told = {name for one in manifest.doubles for name in (one.source, one.kept_in)}
    yield "sources of duplicates", told - known if known else set(), set()
    rated = [one for one in manifest.sources if one.wanted_share is not None]
    single = [x.name for x in manifest.sources if x.scarcest and x not in rated]
    yield "scarcest", single, []
    others = [one.splits["train"].trained for one in manifest.sources if one not in rated]
    wanted = sum(others) + sum(one.amount for one in rated)
    for one in rated:
        yield f"{one.name}: unit", one.unit, "trained_tokens"
        yield f"{one.name}: wanted_share", one.wanted_share, round(one.amount / (wanted or 1), 6)
