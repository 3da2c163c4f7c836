"""The page of a file's columns as people read it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MOST = 60  # columns that are listed


@dataclass(frozen=True, slots=True)
class Line:
    """One column, or one key inside of columns.

    Attributes:
        column: its path as ``--map`` and ``--ignore`` take it: ``answers[].score``.
        rows: sampled rows with a value, ``of`` so many.
        values: what the values are, in words; ``example``: the first one.
        becomes: its role; ``left out``; ``filter`` where rows are chosen by it.
        why: why leaving it out may change what is trained; empty where it does not.
    """

    column: str
    rows: int
    of: int
    values: str
    example: str
    becomes: str
    why: str = ""

    @property
    def share(self) -> str:
        """How many of the rows have it: ``all``, ``31/40``."""
        return "all" if self.rows == self.of else f"{self.rows:,}/{self.of:,}"


def as_json(page: Iterable[Line]) -> list[dict[str, Any]]:
    """The page for programs."""
    return [asdict(one) for one in page]


def as_text(page: Sequence[Mapping[str, Any]], indent: str = "  ") -> Iterator[str]:
    """The page as lines of a table."""
    cells = [("column", "rows", "values", "becomes")]
    for one in page[:MOST]:
        becomes = f"{one['becomes'] or '?'}{' (?)' if one['why'] else ''}"
        share = "all" if one["rows"] == one["of"] else f"{one['rows']:,}/{one['of']:,}"
        cells.append((one["column"], share, one["values"], becomes))
    wide = [max(len(row[at]) for row in cells) for at in range(3)]
    for row in cells:
        start = "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=False))
        yield f"{indent}{start}  {row[3]}"
    if len(page) > MOST:
        yield f"{indent}and {len(page) - MOST:,} more"
