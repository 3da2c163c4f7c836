"""Options of packs go together with the layout that stores them."""

from __future__ import annotations

from stages.errors import UsageError
from stages.tokens import layouts


def require(layout: str, pack_within: str, index_only: bool) -> None:
    """Refuse options of packs for a layout that has none.

    Args:
        layout: empty where it is still to be chosen.

    Raises:
        UsageError: they do not go together.
    """
    if not layout or not (index_only or pack_within == "part"):
        return  # without a look at the layout, which imports what lays rows out
    if layouts.load(layout).packs or (index_only and layout == layouts.INDEXED):
        return
    if pack_within == "part":
        raise UsageError(f"--pack-within part is not for layout {layout}.", "Leave it out.")
    if index_only:
        raise UsageError(
            f"--index-only stores packs, and layout {layout} has none.", "Leave one of them out."
        )
