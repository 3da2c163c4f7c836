"""The manifest's ``sources``: what was asked of each source of a recipe, and what it gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.manifest.json_records import JsonRecord

TOLERATED = 0.01  # between a share that was asked for and what is given


@dataclass(frozen=True, slots=True)
class Portion(JsonRecord):
    """Examples with their tokens (of pairs, those of the longer side) and their trained tokens."""

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
        wanted_share: that share as its share or weight says; None where it has neither.
        scarcest: all that it may give is used, and so sets the size of the mixture.
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
    wanted_share: float | None
    scarcest: bool

    @property
    def coarse(self) -> bool:
        """Whether its share is not met, though it has enough: examples are not divided."""
        wanted = self.wanted_share
        return not self.short and wanted is not None and abs(self.share - wanted) > TOLERATED
