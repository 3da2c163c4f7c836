"""Builds that do too much of one thing, to see that it is counted: see ``counted.py``.

python tests/wasteful.py WASTE calls|memory CACHE TASK FILE...
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import counted

_kept: list[Any] = []
_scratch = open(os.path.join(tempfile.mkdtemp(), "scratch"), "w+b", buffering=0)  # noqa: SIM115


def _calls(row: int) -> None:
    import numpy as np

    from stages import columns

    one = np.ones(1, np.int64)
    for _ in range(20):
        columns.offsets_of(one)


def _encoded(row: int) -> None:
    from stages import encoders

    if not _kept:
        _kept.append(encoders.BACKENDS["tokenizers"](_tokenizer()))
    _kept[0].encode(["a text of some length, once more for each row"])


def _files(row: int) -> None:
    if not row % 20:
        open(os.devnull, "rb").close()


def _read(row: int) -> None:
    if not os.path.getsize(_scratch.name):
        _scratch.write(bytes(4_000))
    _scratch.seek(0)
    _scratch.read(4_000)


def _allocations(row: int) -> None:
    import pyarrow as pa

    pa.array([1])


def _allocated(row: int) -> None:
    import pyarrow as pa

    pa.allocate_buffer(20_000)


def _quadratic(row: int) -> None:
    """All that was seen before is hashed again."""
    _kept.append(row)
    hashlib.sha256(bytes(len(_kept)))


# What is done for each row of a batch.
WASTES: dict[str, Callable[[int], Any]] = {
    "calls": _calls,
    "hashed": lambda row: hashlib.sha256(bytes(1_000)),
    "encoder calls": _encoded,
    "encoded": _encoded,
    "files": _files,
    "read": _read,
    "written": lambda row: _scratch.write(bytes(4_000)),
    "allocations": _allocations,
    "allocated": _allocated,
    "peak": lambda row: _kept.append(bytearray(12_000)),
    "quadratic": _quadratic,
}


def _tokenizer() -> bytes:
    """A tokenizer of nothing, which encodes in no time."""
    from tokenizers import Tokenizer, models

    return Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).to_str().encode()


def main() -> None:
    """Waste in each batch, after it was made."""
    waste = WASTES[sys.argv.pop(1)]

    def prepare() -> None:
        from pipeline.shards import part

        made: Callable[..., Any] = part._stored

        def wasteful(recipe: Any, batch: Any) -> Any:
            for row in range(batch.num_rows):
                waste(row)
            return made(recipe, batch)

        part._stored = wasteful

    counted.main(prepare)


if __name__ == "__main__":
    main()
