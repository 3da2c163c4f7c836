"""Keeps freed memory inside the process, the cycle collector out of the way, and pandas out.

A build frees and takes arrays of megabytes thousands of times. By default the C library gives
them back to the kernel each time, which then clears and maps fresh pages: on virtual machines that
was up to a fifth of a build's time.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stages import catalog

_M_TRIM_THRESHOLD = -1  # mallopt(3)
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 1 << 30
_COLLECT_EVERY = 400_000  # more than a start makes; rows are objects too, and have no cycles


def keep_freed() -> None:
    """Call this before pyarrow is imported. Without glibc only the collector is set."""
    gc.set_threshold(_COLLECT_EVERY, 50, 100)
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def without_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes half a second.

    pyarrow looks for it at its first array, in case the values are a Series; it is told here that
    there is none. Only for processes of ours: elsewhere, and in the code that other packages add,
    somebody may want ``to_pandas``.
    """
    with pandas_hidden() as hidden:
        if hidden:
            import pyarrow as pa

            pa.array([0])


@contextmanager
def pandas_hidden() -> Iterator[bool]:
    """Hide pandas from what may make pyarrow's first array, or none; gives whether it is hidden."""
    if "pandas" in sys.modules or catalog.extended():
        yield False
        return
    hidden: Any = _Hidden
    sys.meta_path.insert(0, hidden)
    try:
        yield True
    finally:
        sys.meta_path.remove(hidden)


class _Hidden:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
