"""Which of equal examples stays: the first, or the one with the best number in a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.choice.values import NOTHING, NUMBER, WORDS, Piece, at_path, over
from pipeline.options.config import Config
from pipeline.options.keeping import Keep
from stages.errors import DataError, UsageError
from stages.rows.carried import VALUES

Scores = npt.NDArray[np.float64]
_OPTION = "--dedup-keep"


def over_parts(config: Config, pieces: Sequence[Piece]) -> Scores | None:
    """What each example is worth among its equals, more is better, NaN without a value; None where
    the first stays.

    Raises:
        DataError: the column holds something else than numbers.
        UsageError: no row has it.
    """
    keep = Keep.of(config.plan.dedup_keep)
    if not keep.column:
        return None
    found: list[Scores] = [np.zeros(0)] * len(pieces)
    types = set()
    for number in range(len(config.sources)):
        paths = config.only(number).carried.paths
        mine = [at for at, piece in enumerate(pieces) if piece.source == number]
        seen = over([pieces[at] for at in mine], paths)
        type_ = seen.type_of(keep.column, _OPTION)
        if type_ not in (NUMBER, NOTHING):
            row = next(iter(seen.first[keep.column].values()))
            raise DataError(
                f"{_OPTION} compares {keep.column}, which is {WORDS[type_]} in {row}.",
                "Name a column of numbers, or leave it out to keep the first of equal examples.",
            )
        types.update([type_] if seen.rows else [])
        for at in mine:
            values = at_path(pieces[at].read((VALUES,)), paths, keep.column)
            whole = values.field("whole").cast(pa.float64())
            number_ = pc.fill_null(pc.coalesce(whole, values.field("number")), float("nan"))
            found[at] = number_.to_numpy() * (1 if keep.highest else -1)
    if types == {NOTHING}:
        raise UsageError(
            f"{_OPTION} compares {keep.column}, and no row has a number in it.",
            "Name a column of the rows, with dots for what is inside (meta.score).",
        )
    return np.concatenate([np.zeros(0), *found])
