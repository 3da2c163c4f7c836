"""Prints a forecast (``pipeline plan``): as JSON, or as text with trained tokens in colour."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click
import numpy as np

from pipeline.builder import alike
from pipeline.builder.forecast import Forecast, would_stop
from pipeline.builder.population import packing_table, sources
from pipeline.inputs.recipe import Recipe, model_of
from pipeline.lines import fit
from pipeline.manifest import in_words
from pipeline.manifest.counts import SourceRecord
from pipeline.manifest.json_records import as_json as of_record
from pipeline.manifest.json_records import from_json
from pipeline.report.drawing import Drawer
from pipeline.shards.facts import Margins
from pipeline.stores import local
from stages import encoders
from stages.chat_template import loss_weights
from stages.columns import IGNORED
from stages.errors import counted
from stages.rows import carried

Piece = tuple[str, str]  # its kind (context, trained, marker), and its text

_COLOURS = {"context": "bright_black", "trained": "green", "marker": "magenta"}
_AS_TEXT = " as text"  # after the kind of text that only looks like a control token
_QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
_MOST_TEXT = 600  # characters of a piece that are printed


def _runs(kinds: list[str]) -> Iterator[tuple[str, int, int]]:
    """Runs of tokens of one kind: kind, start, stop; each marker is a run of its own."""
    start = 0
    for at in range(1, len(kinds) + 1):
        if at == len(kinds) or kinds[at] != kinds[start] or kinds[start] == "marker":
            yield kinds[start], start, at
            start = at


def _pieces(forecast: Forecast, ids: list[int], kinds: list[str]) -> list[Piece]:
    model = forecast.recipe.model
    tokenizer = encoders.parsed(model.tokenizer_json)
    drawer = Drawer(tokenizer, model_of(model))
    pieces: list[Piece] = []
    for kind, start, stop in _runs(kinds):
        drawn = list(drawer.pieces(ids[start:stop], kinds[start:stop]))
        if not any(piece.spelled for piece in drawn):
            text = tokenizer.decode(ids[start:stop], skip_special_tokens=False)
            pieces.append((kind, text))
            continue
        for spelled, run in groupby(drawn, key=lambda piece: piece.spelled):
            text = "".join(piece.text for piece in run)
            pieces.append((kind + _AS_TEXT * spelled, text))
    return pieces


def _rated(pieces: list[Piece], ratings: list[float | None]) -> list[Piece]:
    """The same pieces, with its rating after the text of each marker."""
    left = iter(ratings)
    words = {None: "unlabelled", 0.0: "bad", 1.0: "good"}
    return [
        (kind, f"{text} {words.get(rate := next(left), str(rate))}" if kind == "marker" else text)
        for kind, text in pieces
    ]


def _stored_row(forecast: Forecast, row: dict[str, Any]) -> dict[str, list[Piece]]:
    """The pieces of each sequence of a row (a pair has two), from its ids and labels alone."""
    if "chosen_ids" in row:
        shared = row["prompt_length"]
        sides = {side: row[f"{side}_ids"] for side in ("chosen", "rejected")}
        return {
            side: _pieces(forecast, ids, ["context"] * shared + ["trained"] * (len(ids) - shared))
            for side, ids in sides.items()
        }
    ids, labels = row["input_ids"], row["labels"]
    step = forecast.recipe.model.step_id
    if row.get("step_labels") is not None:
        kinds = ["marker" if token == step else "context" for token in ids]
        return {"": _rated(_pieces(forecast, ids, kinds), row["step_labels"])}
    kinds = ["context" if label == IGNORED else "trained" for label in labels]
    return {"": _pieces(forecast, ids, kinds)}


def _tokens(forecast: Forecast) -> dict[str, Any]:
    model = forecast.recipe.model
    profile = model.profile
    tokens: dict[str, Any] = {
        "end_of_turn": [profile.end_of_turn, model.end_of_turn_id],
        "eos": [profile.eos_token, model.eos_id],
        "pad": [profile.pad_token, model.pad_id],
    }
    if model.step_id >= 0:
        steps = profile.step_tokens
        tokens["step"] = [steps.step, model.step_id]
        tokens["good"] = [steps.good, model.good_id]
        tokens["bad"] = [steps.bad, model.bad_id]
    return tokens


def _lengths(forecast: Forecast) -> dict[str, Any]:
    lengths = forecast.sampled.lengths
    if not len(lengths):
        return {"examples": 0}
    known = {name: int(np.quantile(lengths, q, method="higher")) for name, q in _QUANTILES.items()}
    trained = int(forecast.sampled.trained.sum()) / max(forecast.sampled.tokens, 1)
    return {
        "examples": len(lengths),
        "mean": round(float(lengths.mean()), 1),
        **known,
        "trained_share": round(trained, 4),
    }


def _inputs(forecast: Forecast) -> list[dict[str, Any]]:
    return [
        {
            "path": look.name,
            "origin": look.origin,
            "bytes": look.bytes,
            "reader": look.reader,
            "format": look.detection.reading,
            "evidence": look.detection.evidence,
            "rows": look.glimpse.rows,
            "rows_exact": look.glimpse.exact,
            "looked_at": look.glimpse.where,
            "left_out_by_where": forecast.sampled.filtered[look.name],
            "unread": dict(forecast.sampled.unread[look.name].most_common()),
        }
        for look in forecast.looks
    ]


def _margins(margins: Margins | None) -> dict[str, Any] | None:
    return {**of_record(margins.recorded()), "negative": margins.negative} if margins else None


def _rejects(forecast: Forecast) -> dict[str, Any]:
    sample = forecast.sampled
    refused = sample.refused.total()
    return {
        "sampled": sample.rows,
        "too_large_to_sample": sample.large,
        "refused": refused,
        "share": round(refused / max(sample.rows, 1), 6),
        "too_long": sample.long,
        "build_would_stop": would_stop(forecast),
        "by_code": {
            code: {"rows": count, "first": sample.first[code][:3], "detail": sample.details[code]}
            for code, count in sample.refused.most_common()
        },
    }


def _stages(recipe: Recipe) -> dict[str, list[str]]:
    """The columns that each stage writes."""
    written = {"normalize": list(recipe.normalize(recipe.formats[0]).writes)}
    stages = recipe.stages(recipe.formats[0])
    return written | {stage.name: list(stage.writes) for stage in stages}


def as_json(forecast: Forecast) -> dict[str, Any]:
    """The forecast as ``--json`` prints it; the page is made from the same dictionary."""
    recipe, sample = forecast.recipe.of_source(forecast.looks[0].source), forecast.sampled
    return {
        "task": recipe.config.task,
        "layout": recipe.config.plan.layout,
        "max_length": recipe.config.plan.max_length,
        "too_long": recipe.config.parts.too_long,
        "output": recipe.config.run.shown,
        "model": {
            "name": recipe.model.profile.name,
            "tokenizer_source": recipe.tokenizer_source,
            "tokens": _tokens(forecast),
            "probes": dict(recipe.model.probes),
            "repairs": [repair.sentence for repair in recipe.repairs],
        },
        "files": forecast.files,
        "files_left_out": list(forecast.left_out),
        "inputs": _inputs(forecast),
        "rows": forecast.rows,
        "first_rows": [
            {"id": name, "sequences": _stored_row(forecast, row)} for name, row in sample.shown
        ],
        "rejects": _rejects(forecast),
        "filters": [asdict(one) for one in sample.chosen.tallies.values()],
        "sources": [of_record(one) for one in sources(forecast)],
        **sample.alike.as_json(recipe.config),
        "notes": dict(sorted(sample.notes.items())),
        "margins": _margins(sample.margins),
        "lengths": _lengths(forecast),
        "turn_split": loss_weights.figures(sample.split),
        "packing": packing_table(forecast),
        "stages": _stages(recipe),
    }


def _piece_lines(pieces: list[Piece]) -> Iterator[str]:
    for kind, text in pieces:
        if len(text) > _MOST_TEXT:
            half = _MOST_TEXT // 2
            text = f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"
        lines = text.split("\n") if text.strip() else [repr(text)[1:-1]]
        for number, line in enumerate(lines):
            if line or number == 0:
                label = "as text" if kind.endswith(_AS_TEXT) else kind
                label = label if number == 0 else ""
                yield f"  {label:<8} {click.style(line, fg=_COLOURS.get(kind, 'yellow'))}"


def _input_lines(plan: dict[str, Any]) -> Iterator[str]:
    for look in plan["inputs"]:
        about = "" if look["rows_exact"] else "about "
        yield (
            f"input     {look['path']}: {look['format']} ({look['evidence']}), "
            f"{look['bytes']:,} bytes, {about}{counted(look['rows'], 'row')}; "
            f"sampled: {look['looked_at']}"
        )
        if look["left_out_by_where"]:
            yield (
                f"          {counted(look['left_out_by_where'], 'sampled row')} left out by --where"
            )
        if look["unread"]:
            columns = ", ".join(
                f"{name} ({counted(n, 'row')})" for name, n in look["unread"].items()
            )
            yield f"          not read: {columns}"
    if plan["files"] > len(plan["inputs"]):
        yield f"          {len(plan['inputs']):,} of {counted(plan['files'], 'file')} sampled"
    if plan["files_left_out"]:
        yield f"not read  {local.in_words(plan['files_left_out'])}"


def _reject_lines(plan: dict[str, Any]) -> Iterator[str]:
    rejects = plan["rejects"]
    yield (
        f"rejects   {rejects['refused']:,} of {counted(rejects['sampled'], 'sampled row')} refused"
    )
    for code, entry in rejects["by_code"].items():
        yield f"          {entry['rows']:>6} {code}: {', '.join(entry['first'])}"
        yield f"                 {entry['detail']}"
    if rejects["too_long"]:
        trimmed = "" if plan["too_long"] == "reject" else ", and cannot be trimmed to that"
        examples = f"{rejects['too_long']} of {plan['lengths']['examples']} sampled examples"
        yield f"          {examples} are longer than --max-length{trimmed}; they are refused too"
    if rejects["build_would_stop"]:
        yield (
            "          a build would stop: more refused rows than --max-reject allows, nothing "
            "left, or most margins below zero"
        )
        first = next(iter(rejects["by_code"]), None)
        if first is not None:
            yield f"          what it means, and the fix: pipeline explain {first}"
    for name, count in plan["notes"].items():
        label = "warning" if name in carried.WARNINGS else "note"
        of = f"{count:,} of {counted(rejects['sampled'], 'sampled row')}"
        yield f"{label:<9} {of}: {name} ({carried.of(name)})"
    if rejects["too_large_to_sample"]:
        yield f"          {rejects['too_large_to_sample']} more rows are too large for a sample"


def _filter_lines(plan: dict[str, Any]) -> Iterator[str]:
    for number, one in enumerate(plan["filters"]):
        null = f", {one['null']} of them because it is null" if one["null"] else ""
        name = f"{one['source']}: " if one["source"] else ""
        yield (
            f"{'' if number else 'filters':<9} {name}{one['expression']} leaves out "
            f"{one['examples']:,} of {counted(one['of'], 'sampled example')}{null}"
        )


def _margin_lines(plan: dict[str, Any]) -> Iterator[str]:
    margins = plan["margins"]
    if margins and margins["present"]:
        total = margins["present"] + margins["absent"]
        below = f"{margins['negative']:,} below zero: the rejected answer is rated higher"
        yield f"margins   of {counted(total, 'sampled pair')}, {margins['absent']:,} without one"
        yield from [f"          {below}"] if margins["negative"] else []


def _length_lines(plan: dict[str, Any]) -> Iterator[str]:
    lengths = plan["lengths"]
    if not lengths["examples"]:
        return
    words = "  ".join(f"{name} {lengths[name]:,}" for name in ("mean", *_QUANTILES))
    yield f"tokens    {words}  ({lengths['trained_share']:.1%} trained)"
    if plan["turn_split"]:
        yield f"turns     of the sample, {loss_weights.sentence(plan['turn_split'])}"
    yield f"{'length':>12} {'too long':>9} {'packs':>10} {'full':>8}"
    for entry in plan["packing"]:
        packs = "-" if entry["packs"] is None else f"{entry['packs']:,}"
        full = "-" if entry["efficiency"] is None else f"{entry['efficiency']:.2%}"
        mark = "  <- --max-length" if entry["max_length"] == plan["max_length"] else ""
        yield (f"{entry['max_length']:>12,} {entry['too_long']:>9.2%} {packs:>10} {full:>8}{mark}")
    yield "          packs and fill are estimated from the sample's lengths"


def as_text(forecast: Forecast) -> str:
    """The forecast as text for the terminal."""
    plan = as_json(forecast)
    model = plan["model"]
    tokens = ", ".join(f"{name} {text} = {i}" for name, (text, i) in model["tokens"].items())
    lines = [
        f"task      {plan['task']}, {plan['layout']}, at most {plan['max_length']} tokens",
        f"model     {model['name']} (tokenizer: {model['tokenizer_source']})",
        f"tokens    {tokens}",
        *(f"repaired  {sentence}" for sentence in model["repairs"]),
        *_input_lines(plan),
        f"stages    {' -> '.join(plan['stages'])}",
        *_reject_lines(plan),
        *_filter_lines(plan),
        *in_words.sources([from_json(SourceRecord, one) for one in plan["sources"]], "about "),
        *alike.lines(plan),
        *_margin_lines(plan),
        *_length_lines(plan),
    ]
    for row in plan["first_rows"]:
        for side, pieces in row["sequences"].items():
            lines.append(f"row       {row['id']}{f' {side}' if side else ''}")
            lines += _piece_lines(pieces)
    page = [*lines, f"output    {plan['output']} (nothing was written)"]
    return fit("\n".join(page))
