"""Insert the step token right after every step.

Older trainers assert that the text with step tokens and the same text with the ratings' tokens in
their place have the same number of tokens. A probe checks that for the model, and the second
reading of sampled rows (``expectations/second_ids.py``) for the build's own texts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stages import columns
from stages.chat_template import outline
from stages.chat_template.segments import CONTROL, MARKER, STEP
from stages.columns import list_parts, make_list, offsets_of
from stages.contract import Batch
from stages.profile import TargetModel


@dataclass
class Mark:
    """Insert a marker after every step."""

    model: TargetModel
    name: str = "mark"
    reads: tuple[str, ...] = ("segments", "step_labels")
    writes: tuple[str, ...] = ("segments",)

    def __call__(self, batch: Batch) -> Batch:
        offsets, segments = list_parts(batch.column("segments"))
        texts = segments.field(0).to_pylist()
        kinds = segments.field(1).to_numpy()
        step = self.model.profile.step_tokens.step
        is_step = (kinds & STEP) > 0
        width = 1 + is_step.astype(np.int64)  # a step becomes itself and its marker
        place = np.cumsum(width) - width  # where each segment goes: the widths before it, summed
        # Fill all places with the marker, then put the segments in: what is left are the markers.
        marked_kinds = np.full(int(width.sum()), CONTROL | MARKER, np.uint8)
        marked_kinds[place] = kinds
        marked = [step] * len(marked_kinds)
        for at, text in zip(place.tolist(), texts, strict=True):
            marked[at] = text
        bounds = offsets_of(width)[offsets]
        flat = pa.StructArray.from_arrays(
            [pa.array(marked, pa.string()), pa.array(marked_kinds)],
            fields=list(columns.SEGMENTS.value_type),
        )
        batch = columns.put(batch, "segments", make_list(bounds, flat))
        return self._outlines(batch) if "outline" in batch.schema.names else batch

    def _outlines(self, batch: Batch) -> Batch:
        """The same for outlines, of which a batch has few."""
        column = batch.column("outline")
        marker = (self.model.profile.step_tokens.step, CONTROL | MARKER)
        spelled = []
        for text in column.dictionary.to_pylist():
            segments = [(one, marker) if one[1] & STEP else (one,) for one in outline.parsed(text)]
            spelled.append(outline.spelled(itertools.chain.from_iterable(segments)))
        made = pa.DictionaryArray.from_arrays(column.indices, pa.array(spelled, pa.string()))
        return columns.put(batch, "outline", made)
