"""Examples of refused rows, from the head of ``rejects.jsonl``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson

from pipeline.drawing import visible

READ = 5000  # lines; the counts come from the manifest
SHOWN = 3  # per code
RAW = 240  # characters of a row


@dataclass(frozen=True, slots=True)
class Loss:
    """One refused row."""

    id: str
    stage: str
    detail: str
    raw: str


def _cut(text: str) -> str:
    return visible(text if len(text) <= RAW else text[: RAW - 1] + "…")


def losses(path: Path) -> dict[str, list[Loss]]:
    """The first few refused rows of each code."""
    found: dict[str, list[Loss]] = {}
    with path.open("rb") as file:
        for line in islice(file, READ):
            entry = orjson.loads(line)
            listed = found.setdefault(entry["code"], [])
            if len(listed) < SHOWN:
                texts = (visible(entry["id"]), entry["stage"], _cut(entry["detail"]))
                listed.append(Loss(*texts, _cut(entry["raw"])))
    return found
