"""Exports for trainers that tokenize texts themselves: rows of text that give the same ids again.

Every row is decoded, encoded again as the trainer encodes it, and compared; if one row differs, the
export is refused with the reason. Ids and labels are stored beside the text, so nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.exports import ExportFacts, Projection
from stages.columns import IGNORED
from stages.counted import counted
from stages.encoders import parsed
from stages.errors import UsageError

Row = Mapping[str, Any]
Texts = dict[str, Any]


class Exact:
    """Decodes ids with a build's tokenizer, and encodes text as a trainer would."""

    def __init__(self, facts: ExportFacts) -> None:
        self._tokenizer = parsed(facts.tokenizer_json)
        self.eos: str = facts.model.eos_token
        self.eos_id: int = facts.model.eos_token_id

    def text(self, ids: list[int]) -> str:
        """The text of ids, control tokens included."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text; with ``special``, also the tokens that the tokenizer adds (bos)."""
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    @cached_property
    def added(self) -> list[int]:
        """The ids that the tokenizer puts before every text."""
        return self.ids("", special=True)


def stretch(row: Row) -> tuple[int, int] | None:
    """Where the trained tokens of an SFT row begin and end; None if they are not contiguous."""
    trained = np.flatnonzero(np.asarray(row["labels"]) != IGNORED)
    start, stop = int(trained[0]), int(trained[-1]) + 1
    return (start, stop) if stop - start == len(trained) else None


def projection(
    name: str, instead: str, one: Callable[[Row, Exact], tuple[Texts, str | None]]
) -> Callable[[ExportFacts], Projection]:
    """The projection of an export whose rows are texts.

    Args:
        name: of the export.
        instead: what its user should do if a row cannot be exported as text.
        one: a row's texts, and why they would not give the row's ids; None if they would.
    """

    def forward(table: pa.Table, exact: Exact) -> pa.Table:
        rows: list[Texts] = []
        problems: Counter[str] = Counter()
        first: dict[str, str] = {}
        for row in table.to_pylist():
            texts, why = one(row, exact)
            if why is not None:
                problems[why] += 1
                first.setdefault(why, str(row["row_id"]))
            rows.append(texts)
        if problems:
            reasons = "; ".join(
                f"{counted(n, 'row')}: {why} ({first[why]})" for why, n in problems.most_common()
            )
            raise UsageError(f"{name} would not train on this build's tokens. {reasons}.", instead)
        return pa.Table.from_pylist(rows)

    def of_facts(facts: ExportFacts) -> Projection:
        exact = Exact(facts)
        return Projection((), lambda table: forward(table, exact), lambda table: pa.table({}))

    return of_facts
