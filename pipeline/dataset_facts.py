"""The dataset table: one row of facts that only all shards together tell.

What must be counted over everything (what is unique, what is on both sides) is counted here, so
that the gate compares two numbers of one row and never depends on how a table was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from expectations.contract import EXAMPLE, ROW, Context
from stages.pack import GLOBAL_EXAMPLES

SIDES = ("train", "test")
MANY_PACKS = 10  # fewer say nothing about how well packing did
MANY_RATINGS = 1000
MILLION = 1_000_000

Read = Callable[[str, str, list[str]], pl.DataFrame]  # side, table, columns


def _names(read: Read) -> dict[str, int]:
    place = ["source", "line", "sequence"]
    sides = {side: read(side, EXAMPLE, place) for side in SIDES}
    every = pl.concat(sides.values())
    rows = [frame.select("source", "line").unique() for frame in sides.values()]
    return {
        "n_names_repeated": len(every) - every.n_unique(),
        "n_rows_on_both_sides": len(rows[0].join(rows[1], on=["source", "line"], how="semi")),
    }


def _stored(read: Read, context: Context) -> dict[str, int]:
    pairs = context.task == "rm"
    sizes = ["chosen_n_tokens", "rejected_n_tokens"] if pairs else ["n_tokens", "n_trained"]
    names = ["digest_a", "digest_b", *sizes]
    every = pl.concat([read(side, EXAMPLE, names) for side in SIDES])
    longest = every.select(pl.max_horizontal(sizes if pairs else ["n_tokens"]).sum()).item()
    found = {
        "examples_stored": len(every),
        "tokens_stored": longest,
        "duplicates_stored": len(every) - every.select("digest_a", "digest_b").n_unique(),
    }
    if not pairs:
        found["trained_stored"] = every["n_trained"].sum()
    return found


def _packing(read: Read, context: Context) -> dict[str, int]:
    """Best fit opens a pack only for what no other has room for: at most one is half empty."""
    packs = tokens = mergeable = 0
    for side in SIDES:
        frame = read(side, ROW, ["n_tokens", "n_examples"])
        half = int((frame["n_tokens"] * 2 <= context.max_length).sum())
        planned_apart = max(1, -(-int(frame["n_examples"].sum()) // GLOBAL_EXAMPLES))
        mergeable += max(0, half - planned_apart)
        packs, tokens = packs + len(frame), tokens + int(frame["n_tokens"].sum())
    full = tokens * MILLION // (packs * context.max_length) if packs >= MANY_PACKS else MILLION
    return {"n_packs": packs, "n_packs_mergeable": mergeable, "efficiency_ppm": full}


def _ratings(read: Read) -> dict[str, int]:
    every = pl.concat([read(side, EXAMPLE, ["n_labels", "n_good"]) for side in SIDES])
    labels, good = (int(every[name].sum()) for name in ("n_labels", "n_good"))
    share = good * MILLION // labels if labels >= MANY_RATINGS else MILLION // 2
    return {"ratings": labels, "ratings_good": good, "positives_ppm": share}


def table(read: Read, declared: Mapping[str, int], context: Context) -> pl.DataFrame:
    """The one row: what is stored, beside what is declared.

    Args:
        declared: ``rows_in``, ``rows_accounted``, ``examples_made``, ``examples_accounted``,
            ``examples_kept``, ``tokens_kept``, ``trained_kept``, ``duplicates_declared``.
    """
    facts = dict(declared) | _names(read) | _stored(read, context)
    if context.layout == "packed":
        facts |= _packing(read, context)
    if context.task == "prm":
        facts |= _ratings(read)
    return pl.DataFrame({name: [int(value)] for name, value in facts.items()})
