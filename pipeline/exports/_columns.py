"""Columns that several trainers share: ids with labels or classes, masks of ones, labels from a
mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.exports import ExportFacts, Projection
from stages.columns import IGNORED, list_parts, make_list, numbers, whole


def list_of(table: pa.Table, name: str) -> pa.ListArray:
    """A list column in one piece."""
    return whole(table.column(name))


def ones(ids: pa.ListArray) -> pa.ListArray:
    """An attention mask of ones, int8, for unpadded rows."""
    offsets, values = list_parts(ids)
    return make_list(offsets, pa.array(np.ones(len(values), np.int8)))


def like(ids: pa.ListArray, values: npt.NDArray[np.generic]) -> pa.ListArray:
    """Flat values in lists as long as those of ``ids``."""
    return make_list(list_parts(ids)[0], pa.array(values))


def trained(labels: pa.ListArray) -> npt.NDArray[np.bool_]:
    """Which of all the flat labels are trained."""
    return np.asarray(numbers(labels)[1] != IGNORED)


def labels_where(ids: pa.ListArray, mask: npt.NDArray[np.bool_]) -> pa.ListArray:
    """Labels equal to the ids where the flat mask is true, -100 elsewhere."""
    values = numbers(ids)[1]
    return like(ids, np.where(mask, values, np.int32(IGNORED)).astype(np.int32))


def _renamed(labels: pa.ListArray, names: Mapping[int, int]) -> pa.ListArray:
    """Labels with another number for each of some; the others are ignored."""
    values = numbers(labels)[1]
    found = np.full(len(values), IGNORED, np.int32)
    for old, new in names.items():
        found[values == old] = new
    return like(labels, found)


def class_labels(labels: pa.ListArray, good: int, bad: int) -> pa.ListArray:
    """Token-classification labels: 1 where the label is the good token, 0 where it is the bad."""
    return _renamed(labels, {good: 1, bad: 0})


def token_labels(classes: pa.ListArray, good: int, bad: int) -> pa.ListArray:
    """The inverse of ``class_labels``: the good or the bad token where there is a class."""
    return _renamed(classes, {1: good, 0: bad})


def nulls(count: int) -> pa.Array:
    """A column of so many nulls."""
    return pa.nulls(count)


def rows_of_ids(facts: ExportFacts, *, masked: bool) -> Projection:
    """Ids and labels; at step tokens these become classes, 1 for the good token, 0 for the bad.

    Args:
        masked: with an attention mask of ones.
    """
    good, bad = facts.model.good_token_id, facts.model.bad_token_id

    def changed(labels: pa.ListArray, change: Callable[..., pa.ListArray]) -> pa.ListArray:
        known = facts.kind.marks and good is not None and bad is not None
        return change(labels, good, bad) if known else labels

    def forward(table: pa.Table) -> pa.Table:
        ids, labels = list_of(table, "input_ids"), list_of(table, "labels")
        mask = {"attention_mask": ones(ids)} if masked else {}
        return pa.table({"input_ids": ids, **mask, "labels": changed(labels, class_labels)})

    def back(table: pa.Table) -> pa.Table:
        labels = changed(list_of(table, "labels"), token_labels)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    return Projection(("input_ids", "labels"), forward, back)
