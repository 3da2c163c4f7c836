"""What the next batch of an Arrow stream is to become, as it says itself, before it is decoded.

A compressed buffer begins with its own length, which ``pyarrow`` allocates and shows nobody. So the
headers are read here. They are FlatBuffers: a table lies at a place, and its fields have numbers.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, Any

from stages import late

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = late.module("pyarrow")

_BATCH = "record batch"


def _at(data: Any, place: int, kind: str) -> int:
    value: int = struct.unpack_from(f"<{kind}", data, place)[0]
    return value


def _leads(data: Any, table: int, number: int) -> int:
    """Where a field of a table leads to; 0 where the table does not have it."""
    fields, at = table - _at(data, table, "i"), 4 + 2 * number
    offset = _at(data, fields + at, "H") if at < _at(data, fields, "H") else 0
    return table + offset + _at(data, table + offset, "I") if offset else 0


def _decoded(message: Any) -> int:
    """Bytes of a message's buffers when they are not compressed any more."""
    data, body = message.metadata, message.body
    table = _leads(data, _at(data, 0, "I"), 2)
    if message.type != _BATCH:  # the batch of a dictionary
        table = _leads(data, table, 1)
    buffers, total = _leads(data, table, 2), 0
    packed = _leads(data, table, 3)
    for number in range(_at(data, buffers, "I") if buffers else 0):
        start, length = struct.unpack_from("<qq", data, buffers + 4 + 16 * number)
        total += max(length, _at(body, start, "q")) if packed and length else length
    return total


def next_bytes(file: IO[bytes]) -> int:
    """Bytes of the next batch, and of the dictionaries before it, once they are decoded. The file
    stays where it is.

    Raises:
        ArrowException: there is no Arrow stream.
    """
    begin, total = file.tell(), 0
    try:
        while True:
            message = pa.ipc.read_message(file)
            if message.type in (_BATCH, "dictionary"):
                total += _decoded(message)
            if message.type == _BATCH:
                return total
    except EOFError:
        return total
    except (struct.error, IndexError) as error:
        raise pa.ArrowInvalid("the header of a batch is broken") from error
    finally:
        file.seek(begin)
