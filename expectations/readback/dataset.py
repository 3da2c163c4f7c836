"""A whole build: its tables of metrics by side, and the numbers that it declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from expectations.contract import Context

SIDES = ("train", "test")

Read = Callable[[str, str, list[str]], pl.DataFrame]  # side, table, columns


@dataclass(frozen=True, slots=True)
class Dataset:
    """Input of metrics of the dataset.

    Attributes:
        read: some columns of a table of metrics (``examples`` or ``rows``) of one side.
        declared: numbers of ledger, plan and manifest: ``rows_in``, ``rows_accounted``,
            ``examples_made``, ``examples_accounted``, ``examples_kept``, ``tokens_kept``,
            ``trained_kept``, ``duplicates_declared``; ``packed_apart_train`` and ``_test`` where
            packs hold examples of one part each: how many parts were packed.
    """

    read: Read
    declared: Mapping[str, int]
    context: Context

    def everything(self, table: str, columns: list[str]) -> pl.DataFrame:
        """Some columns of a table of metrics, of both sides."""
        return pl.concat([self.read(side, table, columns) for side in SIDES])
