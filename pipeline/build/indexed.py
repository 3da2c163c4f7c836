"""What a manifest and a ledger say of a build whose packs are an index."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.manifest.manifest import IndexRecord
from pipeline.shards.facts import Counts
from pipeline.shards.pack_index import MeasuredIndex


def records(indexes: Sequence[MeasuredIndex]) -> dict[str, IndexRecord]:
    """The manifest's ``packs``."""
    return {
        one.split: IndexRecord(
            path=one.path,
            packs=one.tally.rows,
            examples=one.tally.sums["n_examples"],
            tokens=one.tally.sums["n_tokens"],
            sha256=one.sha256,
        )
        for one in indexes
    }


def packs_and_tokens(indexes: Sequence[MeasuredIndex]) -> tuple[int, int]:
    """Packs of all sides, and tokens in them."""
    every = records(indexes).values()
    return sum(one.packs for one in every), sum(one.tokens for one in every)


def held(counts: Counts, packed: dict[str, int]) -> dict[str, int]:
    """What is stored: every example once, copies in the index alone.

    Args:
        packed: what would be stored in packed rows.
    """
    return {
        "examples_kept": counts.held,
        "tokens_kept": counts.held_tokens,
        "trained_kept": counts.held_trained,
        "duplicates_declared": counts.held_equal,
        "indexed_declared": packed["examples_kept"],
        "indexed_once_declared": counts.kept,
        "indexed_tokens_declared": packed["tokens_kept"],
        "indexed_trained_declared": packed["trained_kept"],
        "indexed_duplicates_declared": packed["duplicates_declared"],
    }
