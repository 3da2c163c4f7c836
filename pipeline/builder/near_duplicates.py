"""Writes ``near_duplicates.jsonl``: each example that was left out, and the one that is like it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.inputs.recipe import Recipe
from pipeline.manifest.json_records import one_line
from pipeline.manifest.overlap_records import NEAR_DUPLICATES, Likeness, NearDuplicate
from pipeline.shards.collect import Collector, PartSource
from pipeline.shards.plan import Chosen
from stages import encoders
from stages.overlap import signatures
from stages.tokens.folded_labels import unfolded

_BLOCK = 4096  # examples that are written at once
_BEFORE, _SHOWN = 40, 160  # tokens before the first that differs, and in all
_Ids = npt.NDArray[np.int32]


class _Texts:
    """Texts of examples, from their token ids: parts have no others."""

    def __init__(self, recipe: Recipe) -> None:
        stored = recipe.task.stored
        self._folded, self._marker = "folded" in stored, recipe.marker
        self.column = "folded" if self._folded else next(n for n in stored if n.endswith("_ids"))
        self._tokenizer = encoders.parsed(recipe.model.tokenizer_json)

    def both(self, one: list[int], other: list[int]) -> tuple[str, str]:
        """Two texts around the first token that differs."""
        first, second = self._ids(one), self._ids(other)
        shorter = min(len(first), len(second))
        differs = np.flatnonzero(first[:shorter] != second[:shorter])
        at = int(differs[0]) if len(differs) else shorter
        start = max(0, at - _BEFORE)
        return self._text(first, start), self._text(second, start)

    def _ids(self, stored: list[int]) -> _Ids:
        ids = np.array(stored, np.int32)
        return unfolded(ids, self._marker)[0] if self._folded else ids

    def _text(self, ids: _Ids, start: int) -> str:
        shown = ids[start : start + _SHOWN].tolist()
        text = self._tokenizer.decode(shown, skip_special_tokens=False)
        return f"{'…' if start else ''}{text}{'…' if start + _SHOWN < len(ids) else ''}"


def write(
    folder: Path, recipe: Recipe, plan: Chosen | None, sources: Sequence[PartSource]
) -> Likeness | None:
    """Write the file, in input order; what is counted of it. None where rows are not compared.

    Args:
        sources: of the parts.
    """
    found, config = None if plan is None else plan.choice.near, recipe.config
    if plan is None or found is None:
        return None
    texts = _Texts(recipe)
    collect = Collector(sources, plan.examples.starts)
    with (folder / NEAR_DUPLICATES).open("w", encoding="utf-8") as file:
        for start in range(0, len(found.dropped), _BLOCK):
            some = slice(start, start + _BLOCK)
            both = (found.dropped[some], found.kept[some])
            pairs = [collect.named(each, texts.column) for each in both]
            for one, other, likeness in zip(*pairs, found.likeness[some].tolist(), strict=True):
                said, kept_said = texts.both(one[1], other[1])
                entry = NearDuplicate(one[0], other[0], round(likeness, 6), said, kept_said)
                file.write(one_line(entry) + "\n")
    used = plan.choice.used
    with_dropped = used.copy()
    with_dropped[found.dropped] = True
    return Likeness(
        likeness=config.plan.near_dedup,
        words=config.plan.near_words,
        compared=config.plan.near_in,
        signatures=signatures.version(),
        clusters=found.clusters,
        rows=plan.examples.rows(with_dropped) - plan.examples.rows(used),
        examples=len(found.dropped),
    )
