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
_SCRATCH = os.path.join(tempfile.mkdtemp(), "scratch")


def _rows(batch: Any) -> range:
    return range(batch.num_rows)


def _calls(batch: Any) -> None:
    import numpy as np

    from stages import columns

    one = np.ones(1, np.int64)
    for _ in _rows(batch):
        for _ in range(20):
            columns.offsets_of(one)


def _hashed(batch: Any) -> None:
    for _ in _rows(batch):
        hashlib.sha256(bytes(1_000))


def _encoded(batch: Any) -> None:
    from stages import encoders

    backend = encoders.BACKENDS["tokenizers"]
    model = _SMALL.setdefault("one", backend(_tokenizer()))
    for _ in _rows(batch):
        model.encode(["a text of some length, once more for each row"])


def _files(batch: Any) -> None:
    for number in _rows(batch):
        if not number % 20:
            open(os.devnull, "rb").close()


def _read(batch: Any) -> None:
    with open(_SCRATCH, "wb") as out:
        out.write(bytes(4_000))
    with open(_SCRATCH, "rb", buffering=0) as file:
        for _ in _rows(batch):
            file.seek(0)
            file.read(4_000)


def _written(batch: Any) -> None:
    with open(_SCRATCH, "wb", buffering=0) as out:
        for _ in _rows(batch):
            out.write(bytes(4_000))


def _allocations(batch: Any) -> None:
    import pyarrow as pa

    for _ in _rows(batch):
        pa.array([1])


def _allocated(batch: Any) -> None:
    import pyarrow as pa

    for _ in _rows(batch):
        pa.allocate_buffer(20_000)


def _peak(batch: Any) -> None:
    """Everything that was seen so far, once more for every batch."""
    _kept.append([bytearray(12_000) for _ in _rows(batch)])


def _quadratic(batch: Any) -> None:
    """All that was seen before is hashed again, row by row of the new ones."""
    _kept.extend(_rows(batch))
    for _ in _rows(batch):
        hashlib.sha256(bytes(len(_kept)))


_SMALL: dict[str, Any] = {}
WASTES: dict[str, Callable[[Any], None]] = {
    "calls": _calls,
    "hashed": _hashed,
    "encoder calls": _encoded,
    "encoded": _encoded,
    "files": _files,
    "read": _read,
    "written": _written,
    "allocations": _allocations,
    "allocated": _allocated,
    "peak": _peak,
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
            waste(batch)
            return made(recipe, batch)

        part._stored = wasteful

    counted.main(prepare)


if __name__ == "__main__":
    main()
