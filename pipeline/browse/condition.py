"""A condition on stored examples, in the language of ``--filter``: which of them fit."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.browse.fields import Field, Held, known_as, of_build
from pipeline.build_dir.build import Build
from pipeline.choice.values import TEXT
from stages.errors import UsageError
from stages.rows.expressions import Asked, key_of, parse

Bools = npt.NDArray[np.bool_]
OPTION = "--where"


class Condition:
    """One ``--where`` over the examples of a build.

    Raises:
        UsageError: the text is no condition, or reads what the examples do not have.
    """

    def __init__(self, text: str, build: Build) -> None:
        fields = of_build(build)
        named = f"Fields are {', '.join(fields)}; --fields says what they are."
        self._expression = parse(text, Asked(OPTION, named, named, "trained = 0"))
        names = [("column", name) for name in self._expression.columns]
        names += [("figure", name) for name in self._expression.figures]
        self._read = {key_of(*name): self._field(name[1], fields, named) for name in names}
        self._types = {key: field.type for key, field in self._read.items()}
        self.fits([])  # types that do not go together are found before any row is read

    def _field(self, name: str, fields: Mapping[str, Field], named: str) -> Field:
        field = fields.get(known_as(name))
        if field is None:
            near = difflib.get_close_matches(name, [*fields], 1, 0.6)
            way = f"Did you mean {near[0]}? " if near else ""
            text = self._expression.text
            raise UsageError(
                f"{OPTION} {text!r} reads {name}, which examples of this build do not have.",
                way + named,
            )
        return field

    def fits(self, held: Sequence[Held]) -> Bools:
        """Whether it is true for each example of some record batches.

        Raises:
            UsageError: it compares what cannot be compared.
        """
        import polars as pl

        from pipeline.choice.evaluated import evaluate

        frame: dict[str, Any] = {".": pl.Series(np.zeros(sum(len(h.row) for h in held), bool))}
        for key, field in self._read.items():
            kind = pa.string() if field.type == TEXT else pa.float64()
            chunks = [_array(field.values(one), kind) for one in held]
            frame[key] = pl.Series(pa.chunked_array(chunks, kind))
        found = evaluate(self._expression, pl.DataFrame(frame), self._types)
        return found.fill_null(False).to_numpy()


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array.cast(kind)
