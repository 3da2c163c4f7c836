"""The numbers of a build whose change ``--drift`` limits."""

from __future__ import annotations

DRIFTS = ("rows", "trained_tokens", "source_share")
