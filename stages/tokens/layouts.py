"""How examples become training rows: one layout a file, each with its inverse.

A layout plans which examples share a row (from their lengths alone), makes the rows, and gets the
examples back from rows. The checks of a build do not use this inverse but one of their own
(``expectations/undo_layout.py``), so that an error here cannot hide itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from stages import catalog

if TYPE_CHECKING:  # options list the layouts, and import nothing heavy for it
    import pyarrow as pa

    from stages.columns import Ints

PACKED, INDEXED = "packed", "indexed"  # the second has packs of the first, as an index
MEMBERS = {
    INDEXED: "stages.tokens.indexed:LAYOUT",
    PACKED: "stages.tokens.packed:LAYOUT",
    "padded": "stages.tokens.padded:LAYOUT",
    "ragged": "stages.tokens.ragged:LAYOUT",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows of a build have in common.

    Attributes:
        width: tokens of a padded row; 0 in other layouts.
        padding_side: ``left`` or ``right``; ``pad_id``: the id of the padding.
        token_types: whether pairs of texts get token types, which some encoders read.
    """

    width: int = 0
    padding_side: str = "left"
    pad_id: int = 0
    token_types: bool = False


class Layout(Protocol):
    """One way to store examples.

    Attributes:
        stage: the name under which ``pipeline stage`` makes such rows.
        packs: whether a row holds several examples; ``pads``: whether rows are filled to a width.
        indexed: whether packs lie in a file beside the rows, as numbers of examples.
    """

    name: str
    stage: str
    packs: bool
    pads: bool
    indexed: bool

    def plan(self, lengths: Ints, capacity: int) -> tuple[Ints, Ints]:
        """Which examples share a row.

        Args:
            lengths: tokens of each example; ``capacity``: tokens that a row may have.

        Returns:
            The examples in the order in which they are stored, and how many of them each row holds.
        """
        ...

    def width(self, pad_to: str, longest: int, max_length: int) -> int:
        """Tokens of every row of a build; 0 where rows differ.

        Args:
            pad_to: ``longest`` (rounded up to a multiple of 8, never above ``max_length``),
                ``max-length``, or a number.
        """
        ...

    def room(self, pad_to: str, max_length: int) -> int:
        """Tokens that an example may have: ``max_length``, or a fixed width below it."""
        ...

    def rows(self, examples: pa.Table, sizes: Ints, shape: Shape) -> pa.Table:
        """Training rows of examples in stored order.

        Args:
            examples: ``row_id`` and the columns of their kind, one chunk a column; step positions
                count from the example's start.
            sizes: how many of them each row holds.

        Raises:
            UsageError: an example is longer than the rows are wide.
        """
        ...

    def examples(self, rows: pa.Table) -> pa.Table:
        """The examples in training rows, one a row and unpadded, in stored order."""
        ...

    def sizes(self, rows: pa.Table) -> Ints:
        """How many examples each training row holds."""
        ...


def names() -> list[str]:
    """Every layout that may be asked for by its name."""
    return [name for name in catalog.names(__name__) if name != INDEXED]


def load(name: str) -> Layout:
    """The layout of this name.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    layout: Layout = catalog.load(__name__, name, "LAYOUT")
    return layout
