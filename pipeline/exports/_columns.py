"""Columns that several trainers share: masks of ones, class labels, labels from a mask."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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


def class_labels(labels: pa.ListArray, good: int, bad: int) -> pa.ListArray:
    """Token-classification labels: 1 where the label is the good token, 0 where it is the bad."""
    values = numbers(labels)[1]
    classes = np.full(len(values), IGNORED, np.int32)
    classes[values == good] = 1
    classes[values == bad] = 0
    return like(labels, classes)


def token_labels(classes: pa.ListArray, good: int, bad: int) -> pa.ListArray:
    """The inverse of ``class_labels``: the good or the bad token where there is a class."""
    values = numbers(classes)[1]
    labels = np.full(len(values), IGNORED, np.int32)
    labels[values == 1] = good
    labels[values == 0] = bad
    return like(classes, labels)


def nulls(count: int) -> pa.Array:
    """A column of so many nulls."""
    return pa.nulls(count)
