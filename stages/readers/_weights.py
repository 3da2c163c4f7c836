"""How large the values of a table will be as Python objects, before any of them becomes one.

A table names a value once and means it a million times: by a dictionary, by lists that view the
same items, by runs. What it takes in the file says nothing about what it will take in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stages import late
from stages.files import bounds

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from stages.columns import Ints
else:
    np = late.module("numpy")
    pa = late.module("pyarrow")
    pc = late.module("pyarrow.compute")

_SCALAR = 8


def of(array: Any, size: int) -> Ints:
    """Bytes of each value of an Arrow array. Nothing is decoded to find them.

    Args:
        size: bytes of the file.

    Raises:
        ContainerError: there are more values than such a file has; see ``bounds.require_text``.
    """
    bounds.require_text(size, bounds.VALUE * len(array))
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return of(array.storage, size)
    if types.is_dictionary(kind):
        return of(array.dictionary, size).take(np.asarray(array.indices.fill_null(0)))
    if types.is_run_end_encoded(kind):
        ends = np.clip(array.run_ends, array.offset, array.offset + len(array))
        return np.repeat(of(array.values, size), np.diff(ends, prepend=array.offset))
    if types.is_struct(kind):
        fields = [of(array.field(at), size) for at in range(kind.num_fields)]
        return sum(fields, np.full(len(array), _SCALAR, np.int64))
    if types.is_union(kind):  # of each the largest that it may be
        fields = [of(array.field(at), size) for at in range(kind.num_fields)]
        return np.full(len(array), _SCALAR + max(each.max(initial=0) for each in fields))
    if types.is_nested(kind):  # lists of all kinds, and maps
        return _of_lists(array, size)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        lengths = np.frombuffer(array.buffers()[1], np.int32)[array.offset * 4 :: 4]
        return _SCALAR + lengths[: len(array)].astype(np.int64)
    try:
        return _SCALAR + np.asarray(pc.binary_length(array).fill_null(0), np.int64)
    except pa.ArrowNotImplementedError:  # a number or the like
        return np.full(len(array), _SCALAR, np.int64)


def _of_lists(lists: Any, size: int) -> Ints:
    if isinstance(lists, pa.FixedSizeListArray):
        width = lists.type.list_size
        begins = (lists.offset + np.arange(len(lists))) * width
        ends = begins + width
    elif hasattr(lists, "sizes"):  # lists that view their items
        begins = np.asarray(lists.offsets)
        ends = begins + np.asarray(lists.sizes)
    else:
        offsets = np.asarray(lists.offsets)
        begins, ends = offsets[:-1], offsets[1:]
    sums = np.append(0, np.cumsum(of(lists.values, size)))
    weights: Ints = sums.take(ends) - sums.take(begins) + _SCALAR
    return weights
