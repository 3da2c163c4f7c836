"""Which examples of two builds belong together.

An example that has the same row id and the same content in both is the *same*. Of the rest, equal
content under another row id has *moved* (rows were inserted before it, or its file was renamed), as
often as it stands in both. What then has the same row id has *changed*; all others were *removed*
or *added*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.diff.numbers import Numbers
from stages.columns import Ints


@dataclass(frozen=True)
class Pairs:
    """Places of examples of two builds, ascending; those of a pair stand at the same index."""

    one: Ints
    other: Ints

    def __len__(self) -> int:
        return len(self.one)


@dataclass(frozen=True)
class Matched:
    """Every example of the first build is in one of same, moved, changed and removed; every one of
    the second in one of same, moved, changed and added."""

    same: Pairs
    moved: Pairs
    changed: Pairs
    removed: Ints
    added: Ints


def _by_key(
    one: npt.NDArray[Any], other: npt.NDArray[Any], left: tuple[Ints, Ints]
) -> tuple[Ints, Ints]:
    """Places whose keys are equal; keys are unique on each side.

    Args:
        left: the places that the keys belong to.
    """
    _, first, second = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    order = np.argsort(left[0][first], kind="stable")
    return left[0][first][order], left[1][second][order]


def _rest(count: int, *taken: Ints) -> Ints:
    mask = np.ones(count, bool)
    for places in taken:
        mask[places] = False
    return np.flatnonzero(mask)


def _counted(one: Any, other: Any) -> tuple[Ints, Ints]:
    """Keys of contents that are unique on each side: the content, and its how manieth it is."""
    both = np.concatenate([one, other])
    order = np.lexsort((both["b"], both["a"]))
    ordered = both[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (ordered["a"][1:] != ordered["a"][:-1]) | (ordered["b"][1:] != ordered["b"][:-1])
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(begins) - 1
    return _with_rank(group[: len(one)], len(both)), _with_rank(group[len(one) :], len(both))


def _with_rank(group: Ints, most: int) -> Ints:
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    begins = np.searchsorted(ordered, ordered)  # of the group in the sorted order
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - begins
    return group * (most + 1) + rank


def match(one: Numbers, other: Numbers) -> Matched:
    """Match the examples of two builds by their row ids and contents."""
    every = (np.arange(len(one)), np.arange(len(other)))
    first, second = _by_key(one.who, other.who, every)
    equal = one.what[first] == other.what[second]
    same = Pairs(first[equal], second[equal])
    left = (_rest(len(one), same.one), _rest(len(other), same.other))
    keys = _counted(one.what[left[0]], other.what[left[1]])
    moved = Pairs(*_by_key(*keys, left))
    left = (_rest(len(one), same.one, moved.one), _rest(len(other), same.other, moved.other))
    changed = Pairs(*_by_key(one.who[left[0]], other.who[left[1]], left))
    return Matched(
        same=same,
        moved=moved,
        changed=changed,
        removed=_rest(len(one), same.one, moved.one, changed.one),
        added=_rest(len(other), same.other, moved.other, changed.other),
    )
