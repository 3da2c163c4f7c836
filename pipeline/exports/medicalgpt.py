"""MedicalGPT: its scripts read conversations as text and tokenize them on the way to training."""

from __future__ import annotations

from pipeline.exports import Export, Facts

_WHY = (
    "its scripts read JSON conversations and tokenize them themselves, without a path for ids; "
    "what an overlay mends there is the missing pad token: pipeline overlay"
)


def _never(facts: Facts) -> str:
    return _WHY


EXPORT = Export(
    name="medicalgpt",
    versions="MedicalGPT of 2026-04",
    takes={},
    why_not={"sft": _WHY, "rm": _WHY, "prm": "it has no process reward trainer"},
    detail=_never,
    launch=_never,
)
