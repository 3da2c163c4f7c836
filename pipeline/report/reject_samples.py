"""Picks the refused rows that the report shows, the first few of each code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from pipeline.manifest.records import Reject
from pipeline.view.drawing import visible

READ = 5000  # refused rows; the counts come from the manifest
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


def losses(rejects: Iterable[Reject]) -> dict[str, list[Loss]]:
    """The first few refused rows of each code."""
    by_code: dict[str, list[Loss]] = {}
    for one in islice(rejects, READ):
        listed = by_code.setdefault(one.code, [])
        if len(listed) < SHOWN:
            listed.append(
                Loss(
                    id=visible(one.id), stage=one.stage, detail=_cut(one.detail), raw=_cut(one.raw)
                )
            )
    return by_code
