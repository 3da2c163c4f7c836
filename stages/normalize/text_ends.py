"""How texts of a column begin and end, without a Python object for each of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]
BLANKS = frozenset(chr(code) for code in range(0x3001) if chr(code).isspace())


def _buffers(texts: pa.StringArray) -> tuple[npt.NDArray[np.int64], _Bytes]:
    """Where each text starts, and one behind the last would; and the bytes of all of them."""
    _, offsets, content = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return starts.astype(np.int64), np.frombuffer(content or b"", np.uint8)


def begin_with(texts: pa.StringArray, chars: Iterable[str]) -> Bools:
    """Which texts begin with one of some ASCII characters."""
    starts, content = _buffers(texts)
    table = np.zeros(256, bool)
    table[[ord(char) for char in chars]] = True
    found: Bools = np.diff(starts) > 0
    found[found] = table[content[starts[:-1][found]]]
    return found


def end_with(texts: pa.StringArray, chars: Iterable[str]) -> Bools:
    """Which texts end with one of some characters, or are empty."""
    starts, content = _buffers(texts)
    spelled = [char.encode() for char in chars]
    found: Bools = np.diff(starts) == 0
    ends = starts[1:]
    last = np.zeros(len(ends), np.uint8)
    last[~found] = content[ends[~found] - 1]
    for size in {len(one) for one in spelled}:
        wanted = [int.from_bytes(one, "big") for one in spelled if len(one) == size]
        # UTF-8: a character is the end of a text where its bytes are.
        rows = np.flatnonzero((last >= 0x80) if size > 1 else ~found)
        rows = rows[ends[rows] >= size]
        code = np.zeros(len(rows), np.int64)
        for back in range(size, 0, -1):
            code = code << 8 | content[ends[rows] - back]
        found[rows[np.isin(code, wanted)]] = True
    return found


def some_hold(texts: pa.StringArray, part: str) -> bool:
    """Whether the bytes of a column may hold a text; surely so where one of its texts does."""
    content = texts.buffers()[2]
    return content is not None and part.encode() in content.to_pybytes()
