"""Results that are computed once per process, whichever of its threads asks first."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

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
