"""Prints a forecast (``pipeline plan``): as JSON, or as text with trained tokens in colour."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from pipeline import sources as inputs
from pipeline.builder import contaminated, max_reject
from pipeline.builder.forecast import Forecast, Look, Sampled, refuses_too_many, why_stop
from pipeline.builder.population import packing_table, sources
from pipeline.builds.stored_model import model_of
from pipeline.builds.summary import said
from pipeline.inputs import detection, sheet
from pipeline.inputs.recipe import Recipe
from pipeline.lines import fit, of_columns, templates
from pipeline.manifest import counts, json_records
from pipeline.manifest.json_records import as_json as of_record
from pipeline.options.config import Config
from pipeline.report import drawing, headline, painter
from pipeline.shards.facts import Margins
from stages import encoders
from stages.chat_template import loss_weights
from stages.columns import IGNORED
from stages.errors import counted, were
from stages.rows import carried
from stages.tokenizers import probes

Piece = tuple[str, str]  # its kind (context, trained, marker), and its text

_COLOURS = {"context": "bright_black", "trained": "green", "marker": "magenta"}
_AS_TEXT = " as text"  # after the kind of text that only looks like a control token
_RATED = {None: "unlabelled", 0.0: "bad", 1.0: "good"}
_QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
_MOST_TEXT = 600  # characters of a piece that are printed


def _drawer(forecast: Forecast) -> drawing.Drawer:
    model = forecast.recipe.model
    return drawing.Drawer(encoders.parsed(model.tokenizer_json), model_of(model))


def _pieces(
    forecast: Forecast, ids: list[int], kinds: list[str], ratings: Iterable[float | None] = ()
) -> list[Piece]:
    """Runs of tokens of one kind; each marker is one by itself, with its rating behind it."""
    runs: list[tuple[str, list[int]]] = []
    for piece in _drawer(forecast).pieces(ids, kinds):
        kind = piece.kind + _AS_TEXT * piece.spelled
        if kind == "marker" or not runs or runs[-1][0] != kind:
            runs.append((kind, []))
        runs[-1][1].extend(piece.ids)
    decode = encoders.parsed(forecast.recipe.model.tokenizer_json).decode
    rated = (f" {_RATED.get(rate) or f'{rate:g}'}" for rate in ratings)
    return [(k, decode(run, False) + (next(rated) if k == "marker" else "")) for k, run in runs]


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
        return {"": _pieces(forecast, ids, kinds, row["step_labels"])}
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
    if profile.end_of_call:
        tokens["end_of_call"] = [profile.end_of_call, model.end_of_call_id]
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


def _columns(look: Look, config: Config) -> list[dict[str, Any]]:
    """The reading of an input, column by column."""
    return sheet.lines(detection.rows_of(look.glimpse), look.detection.reading, config, {})


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
            "lacking": dict(sorted(forecast.sampled.lacking[look.name].items())),
            "columns": _columns(look, forecast.recipe.config.only(look.source)),
            "unread": dict(forecast.sampled.unread[look.name].most_common()),
        }
        for look in forecast.looks
    ]


def _margins(margins: Margins | None) -> dict[str, Any] | None:
    return {**of_record(margins.recorded()), "negative": margins.negative} if margins else None


def _rejects(forecast: Forecast) -> dict[str, Any]:
    sample = forecast.sampled
    ledger = sample.ledger
    refused, why = ledger.rejected_rows, why_stop(forecast)
    lost = max_reject.shares(max_reject.together(sample.losses, [*sample.losses]))
    return {
        "sampled": sample.rows,
        "too_large_to_sample": len(sample.large),
        "too_large": sample.large[:3],
        "with_too_large": refuses_too_many(forecast, len(sample.large)),
        "refused": refused,
        "share": round(refused / max(sample.rows, 1), 6),
        "too_long": sample.long,
        "lost": {f"{one.noun}s": {"total": one.total, "refused": one.refused} for one in lost},
        "build_would_stop": bool(why),
        "why": why,
        "explained": [
            *(code for code, _ in ledger.rows_by_code.most_common(1)),
            *(one.name for one in sample.failing),
        ],
        "by_code": {
            code: {
                "rows": count,
                "first": ledger.rows.first[code][:3],
                "detail": ledger.rows.details[code],
            }
            for code, count in ledger.rows_by_code.most_common()
        },
        "of_used_rows": dict(ledger.in_part.counts.most_common()),
    }


def _stages(recipe: Recipe) -> dict[str, list[str]]:
    """The columns that each stage writes."""
    written = {"normalize": list(recipe.normalize(recipe.formats[0]).writes)}
    return written | {stage.name: list(stage.writes) for stage in recipe.stages(recipe.formats[0])}


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
            "template": probes.of_template(recipe.model.probes),
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
        "first_noted": dict(sorted(sample.first_noted.items())),
        "margins": _margins(sample.margins),
        "unrated_steps": sample.unrated,
        "lengths": _lengths(forecast),
        "turn_split": loss_weights.figures(sample.split),
        "history": {"printed": recipe.config.parts.history, "cost": _history_cost(sample)},
        "packing": packing_table(forecast),
        "stages": _stages(recipe),
    }


def _history_cost(sample: Sampled) -> dict[str, float] | None:
    """What examples that repeat earlier turns cost; None where none do, or nobody knows."""
    if not sample.split["conversations"] or not sample.appended:
        return None
    appended = sample.once * sample.appended / sample.whole
    return {
        "tokens": sample.tokens,
        "tokens_if_appended": round(appended),
        "factor": round(sample.tokens / appended, 4),
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


def template() -> Any:
    """What the text of a forecast is made from."""
    made = templates(Path(__file__).parent)
    made.filters.update(
        sheet_lines=of_columns,
        noted=carried.told,
        split_told=loss_weights.sentence,
        piece_lines=_piece_lines,
    )
    return made.get_template("plan.jinja")


def as_text(forecast: Forecast) -> str:
    """The forecast as text for the terminal."""
    plan = as_json(forecast)
    tokens = plan["model"]["tokens"].items()
    left_out = plan["files_left_out"]
    sources = [json_records.from_json(counts.SourceRecord, one) for one in plan["sources"]]
    text: str = template().render(
        p=plan,
        tokens=", ".join(f"{name} {text} = {i}" for name, (text, i) in tokens),
        left_out=inputs.in_words(left_out) if left_out else "",
        warnings=carried.WARNINGS,
        sources=said("sources", sources, "about "),
        alike=contaminated.sampled_lines(plan),
    )
    return fit(text.removesuffix("\n"))


def as_html(forecast: Forecast) -> str:
    """The forecast as a notebook shows it: estimates, what the sample lost, and one row of it."""
    sample, recipe = forecast.sampled, forecast.recipe
    refused, why = sample.ledger.rejected_rows, why_stop(forecast)
    answers = [headline.Answer(headline.BAD, f"A build would stop: {why}.")] if why else []
    lost = f"{refused:,} of {counted(sample.rows, 'sampled row')} {were(refused)} refused."
    answers.append(headline.Answer(headline.WARN if refused else headline.GOOD, lost))
    name, row = sample.shown[0] if sample.shown else ("", {})
    return painter.html(
        f"{recipe.config.task} data for {recipe.model.profile.name}, estimated",
        headline.Headline("Would stop" if why else "Would be built", tuple(answers)),
        [
            ("rows", headline.number(forecast.rows), "about"),
            ("examples", headline.number(forecast.examples), "about"),
            ("tokens", headline.number(int(sample.lengths.sum())), "in the sample"),
            ("trained", headline.number(int(sample.trained.sum())), "in the sample"),
        ],
        [
            painter.Lost(code, rows, sample.ledger.rows.details[code])
            for code, rows in sample.ledger.rows_by_code.most_common()
        ],
        _drawer(forecast).strips({**row, "row_id": name}, tokens=painter.TOKENS) if row else [],
    )
