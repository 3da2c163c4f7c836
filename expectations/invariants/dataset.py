"""The dataset as a whole: no row is missing, none is there twice, none is in both train and test.

Counts over all rows are made here, so that the gate compares two numbers of one row, and its result
does not depend on the pieces in which a table is read.
"""

from __future__ import annotations

import polars as pl

from expectations.checks import Equal, none
from expectations.contract import DATASET, EXAMPLE, LABELLED, Columns, Invariant, Metrics, Subject
from expectations.readback.dataset import SIDES, Dataset


def _declared(dataset: Dataset) -> Columns:
    return {name: [int(value)] for name, value in dataset.declared.items()}


def _names(dataset: Dataset) -> Columns:
    place = ["source", "line", "sequence"]
    sides = {side: dataset.read(side, EXAMPLE, place) for side in SIDES}
    # A row may become several examples: names are unique per example, sides are compared by row.
    every = pl.concat(sides.values())
    rows = [frame.select("source", "line").unique() for frame in sides.values()]
    both = rows[0].join(rows[1], on=["source", "line"], how="semi")
    return {
        "n_names_repeated": [len(every) - every.n_unique()],
        "n_rows_on_both_sides": [len(both)],
    }


def _stored(dataset: Dataset) -> Columns:
    pairs = dataset.context.kind.compares
    sizes = ["chosen_n_tokens", "rejected_n_tokens"] if pairs else ["n_tokens", "n_trained"]
    every = dataset.everything(EXAMPLE, ["digest_a", "digest_b", *sizes])
    longest = every.select(pl.max_horizontal(sizes if pairs else ["n_tokens"]).sum()).item()
    distinct = every.select("digest_a", "digest_b").n_unique()
    columns = {
        "examples_stored": [len(every)],
        "tokens_stored": [longest],
        "duplicates_stored": [len(every) - distinct],
    }
    if not pairs:
        columns["trained_stored"] = [every["n_trained"].sum()]
    return columns


SUBJECT = Subject(
    metrics=(
        Metrics(measure=_declared, level=DATASET),
        Metrics(measure=_names, level=DATASET),
        Metrics(measure=_stored, level=DATASET),
    ),
    invariants=(
        Invariant(
            # Every row and every example is used, refused or a duplicate, exactly one of the three.
            name="ledger_balanced",
            why="rows must not disappear without a recorded reason",
            checks=(
                Equal("rows_in", "rows_accounted"),
                Equal("examples_made", "examples_accounted"),
            ),
            breaks={"rows_accounted": -1},
            level=DATASET,
        ),
        Invariant(
            name="counts_match",  # what is stored adds up to what the plan kept
            why="a missing or repeated example changes what is trained and what is reported",
            checks=(
                Equal("examples_stored", "examples_kept"),
                Equal("tokens_stored", "tokens_kept"),
                Equal("trained_stored", "trained_kept", (LABELLED,)),
            ),
            breaks={"examples_stored": -1},
            level=DATASET,
        ),
        Invariant(
            # As many examples equal an earlier one as the manifest says; none after --dedup.
            name="duplicates_as_declared",
            why="duplicates give an example more weight than it has in the data",
            checks=(Equal("duplicates_stored", "duplicates_declared"),),
            breaks={"duplicates_stored": -1},
            level=DATASET,
        ),
        Invariant(
            name="row_ids_unique",
            why="an example that is stored twice is trained twice, and its id no longer says which",
            checks=(none("n_names_repeated"),),
            breaks={"n_names_repeated": 1},
            level=DATASET,
        ),
        Invariant(
            name="sides_disjoint",  # no row has examples on both the train and the test side
            why="a row in both train and test makes the test results too good",
            checks=(none("n_rows_on_both_sides"),),
            breaks={"n_rows_on_both_sides": 1},
            level=DATASET,
        ),
    ),
)
