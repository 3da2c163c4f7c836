"""How examples become training rows: one layout a file.

A layout plans which examples share a row (from their lengths alone), and makes the rows;
``ragged.Ragged`` says how, and the others are made from it. ``ragged.examples`` gets the examples
back by the columns beside the tokens: ``seq_lengths`` of a pack, the attention mask of a padded
row. The checks of a build do not use this inverse but one of their own
(``expectations/undo_layout.py``), so that an error here cannot hide itself.
"""

from typing import TYPE_CHECKING, NamedTuple

from stages import catalog

if TYPE_CHECKING:  # options list the layouts, and import nothing heavy for it
    from stages.tokens.ragged import Ragged

PACKED, INDEXED = "packed", "indexed"  # the second has packs of the first, as an index
MEMBERS = {
    INDEXED: "stages.tokens.ragged:INDEXED",
    PACKED: "stages.tokens.packed:LAYOUT",
    "padded": "stages.tokens.padded:LAYOUT",
    "ragged": "stages.tokens.ragged:LAYOUT",
}


class Shape(NamedTuple):
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


def names() -> list[str]:
    """Every layout that may be asked for by its name."""
    return [name for name in catalog.names(__name__) if name != INDEXED]


def load(name: str) -> "Ragged":
    """The layout of this name.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    layout: Ragged = catalog.load(__name__, name, "LAYOUT")
    return layout
