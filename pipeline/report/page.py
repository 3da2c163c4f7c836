"""The page's content, gathered from a build's files, and its rendering.

Every text is escaped by the template engine, and the page forbids itself scripts and the network,
so that a value can be nothing but text.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2
import orjson

from pipeline.audits import AUDITS
from pipeline.drawing import KINDS, Shards, visible
from pipeline.report import plots
from pipeline.report.losses import losses
from stages import notes, turn_split

SAMPLES = 4  # stored rows that are drawn
EXAMPLES = 3  # of a pack
TOKENS = 240  # of an example
_STATUS = {
    "pass": "holds",
    "few": "too few cases to judge",
    "warn": "warning",
    "fail": "failed",
}


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    return f"{value:,.2f}".replace(",", "\u202f")


def _figure(figure: dict[str, Any]) -> str:
    """A figure's value in its unit."""
    value = figure["value"]
    if figure["unit"] == "share":
        return f"{value:.1%}"
    if figure["unit"] == "auc":
        return f"AUC {value:.3f}"
    return _number(int(value) if value == int(value) else value)


def _spelled(value: object) -> str:
    """An option as JSON, the same before and after it has been through a file."""
    return orjson.dumps(value).decode()


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 4) if whole else 0.0


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, figure=_figure, visible=visible, spelled=_spelled)
    environment.filters["noted"] = notes.of
    environment.globals.update(percent=_percent, kinds=KINDS, status=_STATUS)
    environment.globals.update(split_told=turn_split.sentence)
    return environment.from_string(Path(__file__).with_name("page.jinja").read_text("utf-8"))


def _rows(count: int) -> list[int]:
    """Numbers of a few rows, evenly spaced, the first and the last among them."""
    last = count - 1
    return sorted({round(last * i / (SAMPLES - 1)) for i in range(SAMPLES)})


def _samples(shards: Shards) -> list[dict[str, Any]]:
    found = []
    for number in _rows(shards.manifest["splits"]["train"]["rows"]):
        strips = shards.strips(shards.row("train", number), EXAMPLES, TOKENS)
        found.append({"number": number, "strips": strips})
    return found


def _json(path: Path) -> Any:
    return orjson.loads(path.read_bytes())


def _warnings(audits: dict[str, Any]) -> list[dict[str, Any]]:
    return [audit for audit in audits["audits"] if audit["status"] in ("warn", "fail")]


def _ledger(manifest: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Every loss: code, rows, examples, and the first rows of it."""
    rows, made = manifest["rows"], manifest["examples"]
    examples = losses(folder / "rejects.jsonl")
    codes = {**rows["rejected_by_code"], **made["rejected_by_code"]}
    found = [
        {
            "code": code,
            "rows": rows["rejected_by_code"].get(code, 0),
            "examples": made["rejected_by_code"].get(code, 0),
            "shown": examples.get(code, []),
        }
        for code in codes
    ]
    return sorted(found, key=lambda loss: (-loss["rows"], -loss["examples"], loss["code"]))


def render(shards: Shards) -> str:
    """The page.

    Args:
        shards: the build, in whatever folder; no byte of the page depends on its name.
    """
    folder, manifest = shards.folder, shards.manifest
    audits = _json(folder / AUDITS)
    return _template().render(
        m=manifest,
        audits=audits,
        warnings=_warnings(audits),
        validation=_json(folder / "validation.json"),
        serving=_json(folder / "serving.json"),
        losses=_ledger(manifest, folder),
        lengths=plots.lengths(audits),
        packing=plots.packing(shards),
        samples=_samples(shards),
    )
