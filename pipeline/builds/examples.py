"""Training rows back to single examples, whatever layout they are stored in."""

from __future__ import annotations

import pyarrow as pa

from stages import columns
from stages.errors import UsageError
from stages.tokens import layouts


def examples(table: pa.Table, layout: str) -> pa.Table:
    """One example a row, unpadded.

    Raises:
        UsageError: it has a column of unknown meaning, which cannot be split into examples.
    """
    known = {*columns.TYPES, "row_ids"}
    unknown = [name for name in table.schema.names if name not in known]
    if unknown:
        raise UsageError(f"Columns {', '.join(unknown)} cannot be carried into another layout.")
    return layouts.load(layout).examples(table)
