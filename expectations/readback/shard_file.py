"""One shard as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from expectations.contract import Context


@dataclass(frozen=True, slots=True)
class ShardFile:
    """Input of metrics of a file.

    Attributes:
        table: what pyarrow reads; None where it does not open.
    """

    path: Path
    table: pa.Table | None
    context: Context
