"""What a refusal code means and how to fix the rows, in a few sentences."""

from __future__ import annotations

from pipeline.explain import explanations
from pipeline.explain.explanations import AUDITS, GROUPS, Explanation


def explained(code: str) -> Explanation | None:
    """What is known of a code; None of one that a package of the user's own made up."""
    groups = (explanations.group(name) for name in GROUPS if name != AUDITS)
    return next((one for group in groups for one in group.codes if one.code == code), None)
