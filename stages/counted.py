"""How many there are of something, in words."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 row``, ``1,200 rows``.

    Args:
        noun: the singular of a regular noun, or words that end in one: ``sampled row``.
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def were(count: int) -> str:
    """The verb for that many of a larger number: ``1 of 17 rows was``, ``3 of 17 rows were``."""
    return "was" if count == 1 else "were"
