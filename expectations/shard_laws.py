"""Shards as files, and the dataset as a whole: its rows and columns are those that were planned.

What is known of a whole build only (the planned hash and number of rows of a shard, and whether
``datasets`` lists it) is added where the build is checked.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from expectations import contract, stored_rows, undo_layout
from expectations.invariants import laws
from expectations.stored_rows import Lists, Planned, StoredRows, fitted
from stages.columns import IGNORED, TYPES, Ints, numbers
from stages.errors import require_reading
from stages.profile import TargetModel


def _rows_in_polars(path: Path) -> int:
    """How many rows polars reads; -1 where it cannot.

    It reads the schema and the head of every batch, but the values of one column only.
    """
    import polars as pl  # which nothing else of a build needs

    try:
        return pl.read_ipc_stream(path, columns=[0]).height
    except (pl.exceptions.PolarsError, OSError) as error:
        require_reading(error)
        return -1


def _columns_differ(schema: pa.Schema, context: contract.Context) -> int:
    """How many columns a shard lacks, or has with a type other than the declared one."""
    traits = context.traits
    names = list(context.kind.requires)
    names += ["seq_lengths", "row_ids"] if contract.PACKS in traits else ["row_id"]
    if contract.PADS in traits:
        tails = ["chosen_attention_mask", "rejected_attention_mask"]
        names += tails if contract.COMPARES in traits else ["attention_mask"]
    missing = [name for name in names if name not in schema.names]
    other = [field for field in schema if TYPES.get(field.name) != field.type]
    return len(missing) + len(other)


def _opened(shard: stored_rows.ShardFile) -> contract.Columns:
    in_polars = _rows_in_polars(shard.path)
    table = shard.table
    differ = 0 if table is None else _columns_differ(table.schema, shard.context)
    return {
        "opens_pyarrow": [table is not None],
        "opens_polars": [in_polars >= 0],
        "n_rows": [-1 if table is None else table.num_rows],
        "n_rows_polars": [in_polars],
        "n_columns_differ": [differ],
    }


def _contents(shard: stored_rows.ShardFile) -> contract.Columns:
    """Stored ids, padding included, trained tokens, and trained runs with the tokens of the
    longest; 0 where the columns are wrong."""
    table = shard.table
    stored = trained = answers = longest = 0
    if table is not None and not _columns_differ(table.schema, shard.context):
        for name in ("input_ids", "chosen_ids", "rejected_ids"):
            if name in table.schema.names:
                stored += sum(len(numbers(chunk)[1]) for chunk in table.column(name).chunks)
        if "labels" in table.schema.names:
            chunks = (numbers(chunk)[1] for chunk in table.column("labels").chunks)
            for labels in chunks:
                trained += int((labels != IGNORED).sum())
                lengths = _answers(labels, shard.context.model)
                answers, longest = answers + len(lengths), max(longest, lengths.max(initial=0))
    return {
        "n_stored": [stored],
        "n_trained": [trained],
        "n_answers": [answers],
        "longest_answer": [longest],
    }


def _answers(labels: npt.NDArray[np.int32], model: TargetModel) -> Ints:
    """Tokens of each trained run; it ends behind an end of turn, where another may begin."""
    at = np.flatnonzero(labels != IGNORED)
    last = np.append(np.diff(at) > 1, True) | model.ends_turn(labels[at])
    return np.diff(np.flatnonzero(last), prepend=-1) if len(at) else np.zeros(0, np.int64)


SUBJECT = contract.Subject(
    metrics=(
        contract.Metrics(measure=_opened, level=contract.SHARD),
        contract.Metrics(measure=_contents, level=contract.SHARD),
    ),
    invariants=laws("shards"),
)


# How many numbers, or pairs of numbers, are different.


def as_one(*columns: Ints) -> Ints:
    """One number for each row of some columns: equal exactly where all columns are equal."""
    code = np.zeros(len(columns[0]), np.int64)
    span = 1
    for values in columns:
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        width = high - low + 1
        if width == 1:
            continue
        if span * width >= 2**63:  # too large for one number: count the different ones instead
            code, span = _ranked(code)
            values, width = _ranked(values)
            low = 0
        code = code * width + (values - low)
        span *= width
    return code


def _ranked(values: Ints) -> tuple[Ints, int]:
    distinct, ranks = np.unique(values, return_inverse=True)
    return ranks.astype(np.int64), len(distinct)


def n_distinct(*values: Ints) -> int:
    """How many different numbers there are in some arrays."""
    # Not np.unique: it puts them into a hash table, which takes ten times as long as a sort.
    ordered = np.sort(np.concatenate(values))
    return len(ordered) - int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def n_distinct_pairs(a: Ints, b: Ints) -> int:
    """How many different pairs of numbers there are; fast where few of the first repeat."""
    ordered = np.sort(a)
    again = np.isin(a, ordered[1:][ordered[1:] == ordered[:-1]])
    return len(a) - int(again.sum()) + n_distinct(as_one(a[again], b[again]))


def n_in_both(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> int:
    """How many pairs of numbers of the second are in the first, too."""
    few = np.isin(other[0], one[0])
    if not few.any():
        return 0
    known = np.isin(one[0], other[0][few])
    a = np.concatenate([one[0][known], other[0][few]])
    b = np.concatenate([one[1][known], other[1][few]])
    code, split = as_one(a, b), int(known.sum())
    return int(np.isin(code[split:], code[:split]).sum())


# The dataset as a whole: no row is missing, none is there twice, none is in both train and test.
#
# Counts over all rows are made here, so that the gate compares two numbers of one row, and its
# result does not depend on the pieces in which a table is read.


def _declared(dataset: stored_rows.Dataset) -> contract.Columns:
    declared = {"copies_declared": 0, **dataset.declared}
    return {name: [int(value)] for name, value in declared.items()}


def _names(dataset: stored_rows.Dataset) -> contract.Columns:
    """Names that several examples have, and rows with examples on both sides."""
    repeated = both = 0
    for piece in dataset.names():
        sides = [piece[side] for side in stored_rows.SIDES]
        source, line, sequence = (
            np.concatenate([side[name] for side in sides])
            for name in ("source", "line", "sequence")
        )
        # A row may become several examples: names are unique per example, sides compared by row.
        row, first = as_one(source, line), len(sides[0]["line"])
        train, test = row[:first], row[first:]
        if len(test):
            both += n_distinct(train) + n_distinct(test) - n_distinct(train, test)
        repeated += len(row) - n_distinct(as_one(source, line, sequence))
    return {"n_names_repeated": [repeated], "n_rows_on_both_sides": [both]}


def _equal(dataset: stored_rows.Dataset) -> contract.Columns:
    """Examples that equal another."""
    repeated = both = 0
    for piece in dataset.contents():
        train, test = (
            (piece[side]["digest_a"], piece[side]["digest_b"]) for side in stored_rows.SIDES
        )
        both += n_in_both(train, test)
        a, b = (np.concatenate(half) for half in zip(train, test, strict=True))
        repeated += len(a) - n_distinct_pairs(a, b)
    return {"n_examples_on_both_sides": [both], "duplicates_stored": [repeated]}


def _questions(dataset: stored_rows.Dataset) -> contract.Columns:
    """How many hashes of what is asked are on both sides."""
    both = 0
    for piece in dataset.asked():
        train, test = (pa.array(piece[side]["asked"]) for side in stored_rows.SIDES)
        asked = test.filter(pc.not_equal(test, 0)).unique()
        both += pc.sum(pc.is_in(asked, value_set=train)).as_py() or 0
    return {"n_questions_on_both_sides": [both]}


def _stored(dataset: stored_rows.Dataset) -> contract.Columns:
    longest = "n_longer_side" if dataset.context.kind.compares else "n_tokens"
    columns = {
        "examples_stored": [dataset.rows(contract.EXAMPLE)],
        "tokens_stored": [dataset.total(contract.EXAMPLE, longest)],
    }
    if not dataset.context.kind.compares:
        columns["trained_stored"] = [dataset.total(contract.EXAMPLE, "n_trained")]
    return columns


DATASET_LAWS = contract.Subject(
    metrics=(
        contract.Metrics(measure=_declared, level=contract.DATASET),
        contract.Metrics(measure=_names, level=contract.DATASET),
        contract.Metrics(measure=_equal, level=contract.DATASET),
        contract.Metrics(measure=_stored, level=contract.DATASET),
        contract.Metrics(measure=_questions, level=contract.DATASET, needs=(contract.APART,)),
    ),
    invariants=laws("dataset"),
)


# Where each example comes from, and whether it is the one that was planned for its place.
#
# Row ids and tokens are compared here, so that the metrics are numbers only.


def _bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.int32]:
    """Numbers by their bits, since NaN is not equal to itself."""
    return np.ascontiguousarray(values).view(np.int32)


def _differs(
    stored: Mapping[str, Lists], key: tuple[Ints, Ints], planned: Planned
) -> npt.NDArray[np.bool_]:
    """Which examples are not, number by number, what their parts contain, or have not the digest
    that they were encoded with."""
    differs = np.zeros(len(key[0]), bool)
    for name, wanted in planned.lists.items():
        differs |= stored_rows.differs(stored[name], wanted)
    for half, planned_half in zip(key, planned.digest, strict=True):
        differs |= half != fitted(planned_half, len(half), 0)
    return differs


def _named_otherwise(rows: StoredRows) -> npt.NDArray[np.bool_]:
    """Which examples have not the name of the source that their row id's input is of."""
    named = rows.sources.named if rows.sources is not None else ()
    stored = undo_layout.source_names(rows.table)
    if stored is None or not named:
        return np.full(len(rows), stored is not None or bool(named))
    # The number of each name, not the names: -1 for one that is no source's.
    known = list(dict.fromkeys(named))
    found = pc.index_in(stored, pa.array(known)).fill_null(-1).to_numpy()
    of_input = np.array([*(known.index(name) for name in named), -2], np.int64)  # -2: of no input
    differs: npt.NDArray[np.bool_] = fitted(found, len(rows), -1) != of_input[rows.place["source"]]
    return differs


def _origins(rows: StoredRows) -> contract.Columns:
    """Place and key of each example, and its differences from the plan, where there is one."""
    stored = stored_rows.lists(rows)
    key = stored_rows.keys(rows, stored)
    columns: dict[str, npt.NDArray[np.generic]] = {
        **rows.place,
        "digest_a": key[0],
        "digest_b": key[1],
        "source_differs": _named_otherwise(rows),
    }
    planned, count = rows.planned, len(rows)
    if planned is None:
        return columns
    renamed = [columns[name] != fitted(values, count, -2) for name, values in planned.place.items()]
    changed = np.zeros(count, np.int64)
    for name, values in planned.values.items():
        found = rows.table.column(name).to_numpy()
        changed += _bits(found) != fitted(_bits(values), count, -1)
    return {
        **columns,
        "n_tokens_planned": fitted(planned.tokens, count, -1),
        "digest_differs": _differs(stored, key, planned),
        "name_differs": np.any(renamed, axis=0),
        "n_values_differ": changed,
    }


ORIGINS = contract.Subject(
    metrics=(contract.Metrics(measure=_origins, evidence=contract.STORED),),
    invariants=laws("origins"),
)
