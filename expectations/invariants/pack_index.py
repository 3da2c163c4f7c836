"""An index of packs: numbers of stored examples, and how many tokens each pack has."""

from __future__ import annotations

from functools import partial

import numpy as np

from expectations.checks import Equal, none
from expectations.contract import (
    DATASET,
    INDEXED,
    PLANNED,
    ROW,
    Columns,
    Invariant,
    Metrics,
    Subject,
)
from expectations.dataset import Dataset
from expectations.pack_index import IndexRows
from stages.columns import Ints, count_per_row, offsets_of, sum_per_row


def _index(rows: IndexRows) -> Columns:
    at, examples = rows.packs
    there = (examples >= 0) & (examples < len(rows.lengths))
    inside = np.where(there, examples, 0)
    lengths = np.where(there, rows.lengths[inside], 0) if len(rows.lengths) else 0 * examples
    return {
        "n_tokens": rows.tokens,
        "n_in_examples": sum_per_row(at, lengths.astype(np.int64)),
        "n_examples": np.diff(at),
        "n_first": count_per_row(at, _first(examples, there, len(rows.lengths))),
        "n_absent": count_per_row(at, ~there),
        "half_empty": rows.tokens * 2 <= rows.context.max_length,
    }


def _first(examples: Ints, there: np.ndarray, count: int) -> np.ndarray:
    """Which entries of an index are the first that name their example."""
    places = np.flatnonzero(there)[::-1]
    first = np.full(count, -1, np.int64)
    first[examples[places]] = places  # from the last to the first, which stays
    found = np.zeros(len(examples), bool)
    found[first[first >= 0]] = True
    return found


def _misplaced(rows: IndexRows) -> Columns:
    """Entries of each pack that are not those of the plan; all, where its size is another."""
    assert rows.planned is not None
    (at, examples), (order, sizes) = rows.packs, rows.planned
    if len(at) - 1 != len(sizes) or len(examples) != len(order):
        return {"n_misplaced": np.diff(at) + 1}
    bounds = offsets_of(sizes)
    moved = (at[1:] != bounds[1:]) | (at[:-1] != bounds[:-1])
    return {"n_misplaced": count_per_row(at, examples != order) + moved}


def _entries(dataset: Dataset) -> Columns:
    return {
        "examples_in_packs": [dataset.total(ROW, "n_examples")],
        "examples_in_packs_once": [dataset.total(ROW, "n_first")],
        "tokens_in_packs": [dataset.total(ROW, "n_tokens")],
    }


_of_packs = partial(Invariant, level=ROW, needs=(INDEXED,))


SUBJECT = Subject(
    metrics=(
        Metrics(measure=_index, level=ROW, needs=(INDEXED,)),
        Metrics(measure=_misplaced, level=ROW, needs=(INDEXED,), evidence=PLANNED),
        Metrics(measure=_entries, level=DATASET, needs=(INDEXED,)),
    ),
    invariants=(
        _of_packs(
            name="index_names_stored_examples",
            why="a pack that names an example that is not stored cannot be read",
            checks=(none("n_absent"),),
            breaks={"n_absent": 1},
        ),
        _of_packs(
            name="index_tokens_match",  # what the index says of a pack is what the shards have
            why="a pack of another length is cut off, or does not fit the memory planned for it",
            checks=(Equal("n_tokens", "n_in_examples"),),
            breaks={"n_in_examples": 0},
        ),
        _of_packs(
            name="packs_as_planned",
            why="examples in another pack or order are not what was planned and recorded",
            checks=(none("n_misplaced"),),
            breaks={"n_misplaced": 1},
            evidence=PLANNED,
        ),
        Invariant(
            name="index_complete",  # every used example is in a pack, as often as it is used
            why="an example that no pack names is not trained; one named twice is trained twice",
            checks=(
                Equal("examples_in_packs", "indexed_declared"),
                Equal("examples_in_packs_once", "indexed_once_declared"),
                Equal("tokens_in_packs", "indexed_tokens_declared"),
            ),
            breaks={"examples_in_packs": -1},
            needs=(INDEXED,),
            level=DATASET,
        ),
    ),
)
