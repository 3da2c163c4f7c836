"""Results that are computed once per process, whichever of its threads asks first."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def once(results: int) -> Callable[[Function], Function]:
    """Keep so many results of a function; who asks for one that is being computed waits for it.

    ``functools.lru_cache`` alone would let two threads compute the same.
    """

    def decorate(function: Function) -> Function:
        kept, lock = functools.lru_cache(results)(function), threading.RLock()

        @functools.wraps(function)
        def found(*arguments: object) -> object:
            with lock:
                return kept(*arguments)

        return found  # type: ignore[return-value]

    return decorate
