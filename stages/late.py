"""Modules that are imported when something of them is first used.

``pyarrow`` and ``numpy`` take longer to import than all else that a build which is up to date
needs, and it uses nothing of them. Files that are read on that way name them like this, so that
their types are checked as ever:

    from stages.late import np, pa
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["module", "np", "pa", "pc"]


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def module(name: str) -> ModuleType:
    """A module by its name; what is not installed is missed only where it is used."""
    return _Late(name)


if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    np, pa, pc = map(module, ("numpy", "pyarrow", "pyarrow.compute"))
