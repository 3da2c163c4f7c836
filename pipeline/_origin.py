"""Refuses to run when another package stands in the place of one of ours.

``stages`` and ``expectations`` are ordinary words: a folder of that name beside the user's data,
or another distribution, can shadow ours. Every process checks, before any of them is used, that
all three packages lie in one folder and carry our mark.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

_MARK = 'DISTRIBUTION = "posttrain-pipeline"'
_PACKAGES = ("pipeline", "stages", "expectations")


def problem() -> str | None:
    """What is wrong, in a sentence; None when all three packages are ours."""
    parent = Path(__file__).resolve().parent.parent
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parent.parent != parent:
            place = origin or (spec and list(spec.submodule_search_locations or [])) or "nowhere"
            return f"package {name!r} is taken from {place}, not from {parent / name}."
        if _MARK not in origin.read_text("utf-8"):
            return (
                f"{origin} was overwritten by another distribution; reinstall posttrain-pipeline."
            )
    return None
