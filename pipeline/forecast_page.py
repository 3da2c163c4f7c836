"""A forecast as JSON, and as a page for people: rows coloured by what they are trained as."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import click
import numpy as np

from pipeline.build_dir.json_records import as_json as of_record
from pipeline.drawing import Drawer
from pipeline.forecast import Forecast, packing_table, would_stop
from pipeline.manifest import model_of
from pipeline.margins import Margins
from pipeline.sources.local import in_words
from stages import encoders, notes, turn_split
from stages.columns import IGNORED

Piece = tuple[str, str]  # what it is trained as, and its text

_COLOURS = {"context": "bright_black", "trained": "green", "marker": "magenta"}
_AS_TEXT = " as text"  # behind the kind of what only looks like a control token
_QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
_MOST_TEXT = 600  # characters of a piece that are printed


def _runs(kinds: list[str]) -> Iterator[tuple[str, int, int]]:
    start = 0
    for at in range(1, len(kinds) + 1):
        if at == len(kinds) or kinds[at] != kinds[start] or kinds[start] == "marker":
            yield kinds[start], start, at
            start = at


def _pieces(found: Forecast, ids: list[int], kinds: list[str]) -> list[Piece]:
    model = found.recipe.model
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
    """Markers with their rating behind them."""
    left = iter(ratings)
    words = {None: "unlabelled", 0.0: "bad", 1.0: "good"}
    return [
        (kind, f"{text} {words.get(rate := next(left), str(rate))}" if kind == "marker" else text)
        for kind, text in pieces
    ]


def _stored_row(found: Forecast, row: dict[str, Any]) -> dict[str, list[Piece]]:
    """The pieces of a row's sequences, from its ids and labels alone."""
    if "chosen_ids" in row:
        shared = row["prompt_length"]
        sides = {side: row[f"{side}_ids"] for side in ("chosen", "rejected")}
        return {
            side: _pieces(found, ids, ["context"] * shared + ["trained"] * (len(ids) - shared))
            for side, ids in sides.items()
        }
    ids, labels = row["input_ids"], row["labels"]
    step = found.recipe.model.step_id
    if row.get("step_labels") is not None:
        kinds = ["marker" if token == step else "context" for token in ids]
        return {"": _rated(_pieces(found, ids, kinds), row["step_labels"])}
    kinds = ["context" if label == IGNORED else "trained" for label in labels]
    return {"": _pieces(found, ids, kinds)}


def _tokens(found: Forecast) -> dict[str, Any]:
    model = found.recipe.model
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


def _lengths(found: Forecast) -> dict[str, Any]:
    lengths = found.sampled.lengths
    if not len(lengths):
        return {"examples": 0}
    known = {name: int(np.quantile(lengths, q, method="higher")) for name, q in _QUANTILES.items()}
    trained = int(found.sampled.trained.sum()) / max(found.sampled.tokens, 1)
    return {
        "examples": len(lengths),
        "mean": round(float(lengths.mean()), 1),
        **known,
        "trained_share": round(trained, 4),
    }


def _inputs(found: Forecast) -> list[dict[str, Any]]:
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
            "left_out_by_where": found.sampled.filtered[look.name],
            "unread": dict(found.sampled.unread[look.name].most_common()),
        }
        for look in found.looks
    ]


def _margins(made: Margins | None) -> dict[str, Any] | None:
    return {**of_record(made.recorded()), "negative": made.negative} if made else None


def as_json(found: Forecast) -> dict[str, Any]:
    """Everything that the page says, and the whole of the first rows."""
    recipe, made = found.recipe, found.sampled
    refused = made.refused.total()
    door = recipe.normalize(recipe.formats[0])
    stages = {"normalize": list(door.writes)}
    stages.update({stage.name: list(stage.writes) for stage in recipe.stages(recipe.formats[0])})
    return {
        "task": recipe.config.task,
        "layout": recipe.config.plan.layout,
        "max_length": recipe.config.plan.max_length,
        "too_long": recipe.config.parts.too_long,
        "output": str(recipe.config.run.output),
        "model": {
            "name": recipe.model.profile.name,
            "tokenizer_source": recipe.tokenizer_source,
            "tokens": _tokens(found),
            "probes": dict(recipe.model.probes),
            "repairs": [repair.sentence for repair in recipe.repairs],
        },
        "files": found.files,
        "files_left_out": list(found.left_out),
        "inputs": _inputs(found),
        "rows": found.rows,
        "first_rows": [
            {"id": name, "sequences": _stored_row(found, row)} for name, row in made.shown
        ],
        "rejects": {
            "sampled": made.rows,
            "too_large_to_sample": made.large,
            "refused": refused,
            "share": round(refused / max(made.rows, 1), 6),
            "too_long": made.long,
            "build_would_stop": would_stop(found),
            "by_code": {
                code: {
                    "rows": count,
                    "first": made.first[code][:3],
                    "detail": made.details[code],
                }
                for code, count in made.refused.most_common()
            },
        },
        "notes": dict(sorted(made.notes.items())),
        "margins": _margins(made.margins),
        "lengths": _lengths(found),
        "turn_split": turn_split.figures(made.split),
        "packing": packing_table(found),
        "stages": stages,
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


def _input_lines(said: dict[str, Any]) -> Iterator[str]:
    for look in said["inputs"]:
        about = "" if look["rows_exact"] else "about "
        yield (
            f"input     {look['path']}: {look['format']} ({look['evidence']}), "
            f"{look['bytes']:,} bytes, {about}{look['rows']:,} rows; sampled: {look['looked_at']}"
        )
        if look["left_out_by_where"]:
            yield f"          {look['left_out_by_where']} sampled rows are left out by --where"
        if look["unread"]:
            columns = ", ".join(f"{name} ({n} rows)" for name, n in look["unread"].items())
            yield f"          not read: {columns}"
    if said["files"] > len(said["inputs"]):
        yield f"          {len(said['inputs'])} of {said['files']} files were sampled"
    if said["files_left_out"]:
        yield f"not read  {in_words(said['files_left_out'])}"


def _reject_lines(said: dict[str, Any]) -> Iterator[str]:
    rejects = said["rejects"]
    yield f"rejects   {rejects['refused']} of {rejects['sampled']} sampled rows are refused"
    for code, entry in rejects["by_code"].items():
        yield f"          {entry['rows']:>6} {code}: {', '.join(entry['first'])}"
        yield f"                 {entry['detail']}"
    if rejects["too_long"]:
        trimmed = "" if said["too_long"] == "reject" else ", and cannot be trimmed to that"
        examples = f"{rejects['too_long']} of {said['lengths']['examples']} sampled examples"
        yield f"          {examples} are longer than --max-length{trimmed}; they are refused too"
    if rejects["build_would_stop"]:
        yield (
            "          a build would stop: more rows than --max-reject allows, nothing left, "
            "or most margins below zero"
        )
    for name, count in said["notes"].items():
        label = "warning" if name in notes.WARNINGS else "note"
        of = f"{count} of {rejects['sampled']} sampled rows"
        yield f"{label:<9} {of}: {name} ({notes.of(name)})"
    if rejects["too_large_to_sample"]:
        yield f"          {rejects['too_large_to_sample']} more rows are too large for a sample"


def _margin_lines(said: dict[str, Any]) -> Iterator[str]:
    found = said["margins"]
    if found and found["present"]:
        total = found["present"] + found["absent"]
        below = f"{found['negative']} are below zero: the rejected answer is rated higher"
        yield f"margins   {found['absent']} of {total} sampled pairs have none"
        yield from [f"          {below}"] if found["negative"] else []


def _length_lines(said: dict[str, Any]) -> Iterator[str]:
    lengths = said["lengths"]
    if not lengths["examples"]:
        return
    words = "  ".join(f"{name} {lengths[name]:,}" for name in ("mean", *_QUANTILES))
    yield f"tokens    {words}  ({lengths['trained_share']:.1%} trained)"
    if said["turn_split"]:
        yield f"turns     of the sample, {turn_split.sentence(said['turn_split'])}"
    yield f"{'length':>16} {'too long':>9} {'packs':>12} {'full':>8}"
    for entry in said["packing"]:
        packs = "-" if entry["packs"] is None else f"{entry['packs']:,}"
        full = "-" if entry["efficiency"] is None else f"{entry['efficiency']:.2%}"
        mark = "  <- --max-length" if entry["max_length"] == said["max_length"] else ""
        yield (f"{entry['max_length']:>16,} {entry['too_long']:>9.2%} {packs:>12} {full:>8}{mark}")
    yield "          packs and fill are estimated from the sample's lengths"


def as_text(found: Forecast) -> str:
    """The page."""
    said = as_json(found)
    model = said["model"]
    tokens = ", ".join(f"{name} {text} = {i}" for name, (text, i) in model["tokens"].items())
    lines = [
        f"task      {said['task']}, {said['layout']}, at most {said['max_length']} tokens",
        f"model     {model['name']} (tokenizer: {model['tokenizer_source']})",
        f"tokens    {tokens}",
        *(f"repaired  {sentence}" for sentence in model["repairs"]),
        *_input_lines(said),
        f"stages    {' -> '.join(said['stages'])}",
        *_reject_lines(said),
        *_margin_lines(said),
        *_length_lines(said),
    ]
    for row in said["first_rows"]:
        for side, pieces in row["sequences"].items():
            lines.append(f"row       {row['id']}{f' {side}' if side else ''}")
            lines += _piece_lines(pieces)
    return "\n".join([*lines, f"output    {said['output']} (nothing was written)"])
