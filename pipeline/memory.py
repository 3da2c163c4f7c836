"""Keeps freed memory inside the process.

A build frees and takes arrays of megabytes thousands of times. By default the C library gives
them back to the kernel each time, which then clears and maps fresh pages: on virtual machines that
was up to a fifth of a build's time.
"""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD = -1  # mallopt(3)
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 1 << 30


def keep_freed() -> None:
    """Call before pyarrow is imported; does nothing where the C library is not glibc."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
