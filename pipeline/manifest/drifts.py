"""The numbers of a build whose change ``--drift`` limits."""

from __future__ import annotations

from collections.abc import Mapping

from stages.errors import UsageError

DRIFTS = ("rows", "trained_tokens", "source_share")


def require_limits(limits: Mapping[str, float]) -> None:
    """Each is a limit of one of these numbers.

    Raises:
        UsageError: one is not.
    """
    for name, limit in limits.items():
        if name not in DRIFTS or not 0 <= limit < float("inf"):
            raise UsageError(
                f"--drift {name}={limit:g} is not a limit.",
                f"Name {', '.join(DRIFTS)} and a share, as in --drift rows=0.2.",
            )
