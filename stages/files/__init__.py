"""Files as bytes: versions, hashes, compression, limits, counted rows, strict JSON and TOML."""

from collections.abc import Iterator

from stages import contract
from stages.errors import ContainerError

# Limits on rows and text for the size of a file, so that a small file cannot be read for ever.
#
# A file of plain lines has no more rows than bytes. A compressed file can claim a million rows in a
# kilobyte, and a table any number of rows in a few bytes, which no real text does.


FREE_ROWS = 1 << 18  # rows or lines that any file may have; larger files, one for each byte
FREE_TEXT = 1 << 30  # bytes that any file may expand to; larger files, EXPANSION times their size
EXPANSION = 1100  # more than gzip can reach
VALUE = 64  # bytes that a value of a table counts as before it is known how long it is; a null, too
# Bytes of text that a zstandard frame may refer back to: all that ``zstd --long=31`` writes. Memory
# is taken as text comes, so a file without so much of it takes less.
ZSTD_WINDOW = 1 << 31


TOO_FAR = f"expands more than {EXPANSION} times, more than any real text"


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


def counted(parts: Iterator[contract.Lines], path: str, size: int) -> Iterator[contract.Lines]:
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


def expands_too_far(bytes_in: int, bytes_out: int) -> bool:
    """Whether compressed bytes expanded to more than any real text does."""
    return bytes_out > max(FREE_TEXT, EXPANSION * bytes_in)


def require_text(size: int, text: int) -> None:
    """Check that a table, or a part of it, does not hold more text than its bytes can.

    Args:
        size: bytes of the file; ``text``: what they are to become, or have become.

    Raises:
        ContainerError: it does; the caller names the file.
    """
    if expands_too_far(size, text):
        raise ContainerError(f"It {TOO_FAR}.", "Write it again without the repeated values.")
