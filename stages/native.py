"""The optional native module: C for what is done per row and per token, with the same results.

It is a distribution of its own, ``posttrain-pipeline-native``. Everything works without it, and
builds have the same bytes; whoever calls it has the same in Python beside it. The variable
``POSTTRAIN_NATIVE=0`` of the environment turns it off.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any, Protocol

INTERFACE = 1  # of the functions below; a module with another one is not used
SWITCH = "POSTTRAIN_NATIVE"
_NAME = "posttrain_pipeline_native"


class Native(Protocol):
    """The module's functions. Arguments are buffers (numpy arrays), those written to come last."""

    INTERFACE: int
    __version__: str

    def read_rows(self, *arguments: Any) -> tuple[int, int, int, int]:
        """Flat rows of JSON lines; see ``stages.normalize.native_rows``."""
        ...

    def assemble(self, *arguments: Any) -> None:
        """Runs of ids one behind the other; see ``stages.tokens.outline_tokens``."""
        ...

    def unfold(self, folded: Any, ignored: int, ids: Any, labels: Any) -> None:
        """Ids and labels of folded ids; see ``stages.tokens.folded_labels``."""
        ...


@functools.cache
def _found() -> tuple[Native | None, str]:
    """The module, and a sentence about it."""
    if os.environ.get(SWITCH) == "0":
        return None, f"The native module is turned off by {SWITCH}=0."
    try:
        module: Any = importlib.import_module(_NAME)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == _NAME:
            return None, "The native module is not installed."
        return None, f"The native module cannot be imported, and Python does its work: {error}."
    has = getattr(module, "INTERFACE", None)
    if has != INTERFACE:
        return None, (
            f"The native module has interface {has} and this version needs {INTERFACE}, so Python "
            "does its work; install posttrain-pipeline[native] again to get the right one."
        )
    return module, f"The native module {module.__version__} is used."


def module() -> Native | None:
    """The native module; None where it is not installed, does not fit, or is turned off."""
    return _found()[0]


def version() -> str | None:
    """Its version; None where it is not used."""
    found = module()
    return found.__version__ if found else None


def described() -> str:
    """One sentence: whether the native module is used, or why it is not."""
    return _found()[1]
