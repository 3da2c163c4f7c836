"""Metrics of rows as frames that tests can change, and what breaks a law in them."""

import numpy as np
import numpy.typing as npt
import polars as pl

from expectations import stored_rows, tallies
from expectations.contract import EXAMPLE, ROW, Context, Invariant, parameters


def examples(rows: stored_rows.StoredRows) -> pl.DataFrame:
    """One row of metrics per example, in stored order."""
    return pl.DataFrame(tallies.measured(rows, EXAMPLE))


def training_rows(rows: stored_rows.StoredRows) -> pl.DataFrame:
    """One row of metrics per training row: a pack, or a padded row."""
    return pl.DataFrame(tallies.measured(rows, ROW))


def broken(law: Invariant, metrics: pl.DataFrame, context: Context) -> npt.NDArray[np.bool_]:
    """Which rows of metrics break a law."""
    values = {name: metrics[name].cast(pl.Int64).to_numpy() for name in metrics.columns}
    bounds = parameters(context)
    return np.logical_or.reduce([check.broken(values, bounds) for check in law.checks_for(context)])
