"""The manifest's ``sources``: what was asked of each source of a recipe, and what it gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.manifest.json_records import JsonRecord


@dataclass(frozen=True, slots=True)
class Portion(JsonRecord):
    """Examples with their tokens and their trained tokens."""

    examples: int
    tokens: int
    trained: int


@dataclass(frozen=True, slots=True)
class SourceRecord(JsonRecord):
    """One source.

    Attributes:
        asked: its budget, by the keys of the recipe; empty where it is used once, whole.
        unit: what the budget came to: ``rows`` (examples), ``tokens``, ``trained_tokens`` or
            ``epochs``; ``amount``: how many, ``given``: how many of these.
        short: it has less than the amount, in as many passes as are allowed.
        has: what could be trained on, each once.
        splits: what is stored, by split, copies included.
        share: of the build's trained tokens, of the train split.
    """

    name: str
    asked: Mapping[str, float]
    unit: str
    amount: float
    given: float
    short: bool
    has: Portion
    splits: Mapping[str, Portion]
    share: float
