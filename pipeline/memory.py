"""Keeps freed memory inside the process, and the cycle collector out of the way.

A build frees and takes arrays of megabytes thousands of times. By default the C library gives
them back to the kernel each time, which then clears and maps fresh pages: on virtual machines that
was up to a fifth of a build's time.
"""

import ctypes
import gc
import os
import sys

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
