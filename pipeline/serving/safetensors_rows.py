"""Reads and writes rows of a tensor in a safetensors file, in place and without torch.

A file begins with the length of its header (8 bytes, little-endian) and the header in JSON: dtype,
shape and place of each tensor. bf16, which numpy lacks, is widened to float32 by its upper bytes
and rounded back to nearest, ties to even.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stages.errors import DataError, UsageError

INDEX = "model.safetensors.index.json"
_STORED: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
_LENGTH = struct.Struct("<Q")


def header(path: Path) -> tuple[dict[str, Any], int]:
    """Entries by tensor name, and where the data begins.

    Raises:
        DataError: the file is not a safetensors file, or cut short.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            if length > size:
                raise ValueError("its header is longer than the file")
            entries = json.loads(file.read(length))
    except (struct.error, ValueError) as error:
        raise DataError(
            f"{path} is not a safetensors file: {error}.", "Download it again."
        ) from error
    entries.pop("__metadata__", None)
    start = _LENGTH.size + length
    ends = [entry["data_offsets"][1] for entry in entries.values()]
    if start + max(ends, default=0) > size:
        raise DataError(f"{path} is cut short.", "Download it again.")
    return entries, start


def shards_of(folder: Path) -> dict[Path, list[str]]:
    """The safetensors files of a model, and the tensors in each.

    Raises:
        UsageError: there are none.
        DataError: a file that the index names is missing.
    """
    index = folder / INDEX
    if index.exists():
        named = json.loads(index.read_bytes())["weight_map"]
        files = [folder / name for name in sorted(set(named.values()))]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise DataError(f"{folder} has no {', '.join(missing)}.", "Download it again.")
    if not files:
        raise UsageError(
            f"{folder} has no safetensors files.", "Save the model with safe_serialization."
        )
    return {path: list(header(path)[0]) for path in files}


def widen(stored: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float32]:
    """Stored values as float32."""
    if dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def narrow(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """float32 as it is stored; bf16 rounds to nearest, ties to even."""
    if dtype != "BF16":
        return values.astype(_STORED[dtype])
    # bf16 is the upper half of float32. Adding 0x7fff, and 1 if the last kept bit is set, carries
    # into the upper half exactly where rounding to nearest, ties to even, must round up.
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2")


def set_means(path: Path, name: str, rows: Mapping[int, Sequence[int]]) -> None:
    """Give rows of a two-dimensional tensor the mean of other rows of it, in place.

    Args:
        rows: for each row that is written, those that are averaged; all read before any is written.

    Raises:
        UsageError: the tensor is quantized, or has too few rows.
    """
    entries, start = header(path)
    entry = entries[name]
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype not in _STORED or len(shape) != 2:
        raise UsageError(
            f"{name} in {path.name} is stored as {dtype} {shape}, which has no rows to average.",
            "Give the model in bf16, f16 or f32.",
        )
    top = max([*rows, *(index for used in rows.values() for index in used)])
    if top >= shape[0]:
        raise UsageError(
            f"{name} has {shape[0]} rows, and row {top} is needed.",
            "Give the model that the build was made for.",
        )
    kind = _STORED[dtype]
    table = np.memmap(
        path, dtype=kind, mode="r+", offset=start + entry["data_offsets"][0], shape=tuple(shape)
    )
    means = {}
    for row, used in rows.items():  # all means first: a row may be among those averaged
        mean = widen(np.array(table[list(used)]), dtype).mean(axis=0, dtype=np.float32)
        means[row] = narrow(mean, dtype)
    for row, values in means.items():
        table[row] = values
    table.flush()
