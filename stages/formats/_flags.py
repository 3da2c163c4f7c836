"""What a turn says of its own training: whether it is trained, and with which weight."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from stages.errors import RowError
from stages.rows.unread import FLAGS, NUMERIC


def trained(turn: Mapping[str, Any], where: str) -> tuple[bool | None, float | None]:
    """Whether a turn is trained, and its weight where that is neither 0 nor 1.

    Raises:
        RowError: ``bad_weight``; also where one flag trains the turn and another does not.
    """
    given = {key: turn[key] for key in FLAGS if turn.get(key) is not None}
    weights = [_weight(key, flag, where) for key, flag in given.items()]
    if not weights:
        return None, None
    if len({weight > 0 for weight in weights}) > 1:
        said = " and ".join(f"{key} is {flag!r}" for key, flag in given.items())
        raise RowError("bad_weight", f"{where}: {said}, so it is not clear whether it is trained")
    told = {weight for key, weight in zip(given, weights, strict=True) if key in NUMERIC}
    if len(told) > 1:
        raise RowError("bad_weight", f"{where}: {' and '.join(NUMERIC)} differ")
    weight = weights[0]  # a number, where there is one
    return weight > 0, None if weight in (0, 1) else weight


def _weight(key: str, flag: Any, where: str) -> float:
    """What a flag weighs a turn with; only a weight may be anything but 0 and 1."""
    if flag in (0, 1):  # True and False included
        return float(flag)
    if key not in NUMERIC:
        raise RowError("bad_weight", f"{where}: {key} is {flag!r}; it must be 0 or 1")
    weight = _as_stored(flag)
    if not (weight > 0 and math.isfinite(weight)):
        detail = f"{where}: {key} is {flag!r}; it must be a finite number from 0 up"
        raise RowError("bad_weight", detail)
    return weight


def _as_stored(value: Any) -> float:
    """A number as float32 has it; NaN for what is none, or beyond its range."""
    if not isinstance(value, int | float):
        return math.nan
    try:
        (stored,) = struct.unpack("<f", struct.pack("<f", value))
    except (OverflowError, struct.error):
        return math.nan
    return float(stored)
