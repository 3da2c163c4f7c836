"""Limits on rows and text for the size of a file, so that a small file cannot be read for ever.

A file of plain lines has no more rows than bytes. A compressed file can claim a million rows in a
kilobyte, and a table any number of rows in a few bytes, which no real text does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stages.contract import Lines
from stages.errors import ContainerError

if TYPE_CHECKING:
    import pyarrow as pa

FREE_ROWS = 1 << 18  # rows or lines that any file may have; larger files, one for each byte
FREE_TEXT = 1 << 30  # bytes that any file may expand to; larger files, EXPANSION times their size
EXPANSION = 1100  # more than gzip can reach
# Bytes of text that a zstandard frame may refer back to: all that ``zstd --long=31`` writes. Memory
# is taken as text comes, so a file without so much of it takes less.
ZSTD_WINDOW = 1 << 31


def require_rows(path: str, rows: int, size: int) -> None:
    """Check that a file does not have many more rows than bytes.

    Raises:
        ContainerError: it has.
    """
    if rows > max(FREE_ROWS, size):
        raise ContainerError(
            f"{path} holds more than {max(FREE_ROWS, size)} rows or blank lines in {size} bytes; "
            f"the limit is one for each byte, and {FREE_ROWS} for a small file.",
            "Write it again without the repeated lines.",
        )


def counted(parts: Iterator[Lines], path: str, size: int) -> Iterator[Lines]:
    """The same batches of lines, counted.

    Args:
        size: bytes of the file.

    Raises:
        ContainerError: see ``require_rows``.
    """
    rows = 0
    for part in parts:
        rows += part.lines
        require_rows(path, rows, size)
        yield part


def counted_batches(
    batches: Iterator[pa.RecordBatch], path: str, size: int
) -> Iterator[pa.RecordBatch]:
    """The same for a table, before any row of it becomes a Python object."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        require_rows(path, rows, size)
        yield batch


def expands_too_far(bytes_in: int, bytes_out: int) -> bool:
    """Whether compressed bytes expanded to more than any real text does."""
    return bytes_out > max(FREE_TEXT, EXPANSION * bytes_in)
