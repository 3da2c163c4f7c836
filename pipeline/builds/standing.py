"""What a run has published stands: what goes wrong from then on is a warning, and its status is 0.

Whoever publishes says what will stand and how that is seen. ``result.of_error``, through which
every error goes, asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.builds.limits import Built

_latest: ContextVar[tuple[Built, Callable[[], bool]] | None] = ContextVar("latest", default=None)


def begin() -> None:
    """A run begins: what an earlier one of this process has published is not its own."""
    _latest.set(None)


def publishing(built: Built, there: Callable[[], bool] = lambda: True) -> Built:
    """This is being published, and stands from the moment at which it is ``there``."""
    _latest.set((built, there))
    return built


def now() -> Built | None:
    """What this run has published; None where nothing stands."""
    found = _latest.get()
    return found[0] if found is not None and found[1]() else None


def after(what: str) -> Built | None:
    """The same, with a word of what has just gone wrong."""
    built = now()
    if built is None:
        return None
    told = f"{built.build.shown()} is published all the same: {what}"
    trouble = [one for one in built.trouble if one != told]
    return publishing(replace(built, trouble=(*trouble, told)))
