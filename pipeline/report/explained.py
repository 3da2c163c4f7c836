"""What a refusal code means and how to fix the rows, in two sentences."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explained:
    """A code in words."""

    means: str
    fix: str


def explained(code: str) -> Explained | None:
    """What is known of a code; None of one that a package of the user's own made up."""
    return None
