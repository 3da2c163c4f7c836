"""Modules that are imported when something of them is first used.

``pyarrow`` and ``numpy`` take longer to import than all else that a build which is up to date
needs, and it uses nothing of them. Files that are read on that way name them like this, so that
their types are checked as ever:

    from stages.late import pa
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

__all__ = ["module", "pa"]


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def module(name: str) -> ModuleType:
    """A module by its name; what is not installed is missed only where it is used."""
    return _Late(name)


if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = module("pyarrow")


# Results that are computed once per process, whichever of its threads asks first.


Given = TypeVarTuple("Given")
Result = TypeVar("Result")


def once(results: int) -> Callable[[Callable[[*Given], Result]], Callable[[*Given], Result]]:
    """Keep so many results of a function; who asks for one that is being computed waits for it.

    ``functools.lru_cache`` alone would let two threads compute the same.
    """

    def decorate(function: Callable[[*Given], Result]) -> Callable[[*Given], Result]:
        kept, lock = functools.lru_cache(results)(function), threading.RLock()

        @functools.wraps(function)
        def found(*arguments: *Given) -> Result:
            with lock:
                return kept(*arguments)

        return found

    return decorate
