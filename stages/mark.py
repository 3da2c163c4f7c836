"""Step ratings to marker tokens: the step token goes right after every step.

What older trainers assert is proved here as well: the row's text with step tokens, and the same
text with the ratings' tokens in their place, are encoded as whole texts, and must have the same
number of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stages import columns
from stages.columns import list_parts, make_list, offsets_of
from stages.contract import Batch
from stages.encoders import Encoder
from stages.profile import TargetModel
from stages.segments import CONTROL, MARKER, STEP


def rating_token(model: TargetModel, label: float | None) -> str:
    """The token that stands for a rating: the step token itself while there is none."""
    tokens = model.profile.step_tokens
    if label is None:
        return tokens.step
    return tokens.good if label >= 0.5 else tokens.bad


@dataclass
class Mark:
    """Insert a marker after every step."""

    model: TargetModel
    encoder: Encoder
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
        place = np.cumsum(width) - width
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
        return self._prove_alignment(batch, bounds, marked, marked_kinds)

    def _prove_alignment(
        self, batch: Batch, bounds: columns.Ints, texts: list[str], kinds: np.ndarray
    ) -> Batch:
        """Refuse rows whose two aligned texts differ in their number of tokens."""
        inputs, rated = [], []
        markers = ((kinds & MARKER) > 0).tolist()
        for row, labels in enumerate(batch.column("step_labels").to_pylist()):
            span = range(int(bounds[row]), int(bounds[row + 1]))
            tokens = iter([rating_token(self.model, label) for label in labels])
            inputs.append("".join(texts[i] for i in span))
            rated.append("".join(next(tokens, "") if markers[i] else texts[i] for i in span))
        counts = [np.diff(self.encoder.encode_whole(side)[1]) for side in (inputs, rated)]
        differ = counts[0] != counts[1]
        details = [
            f"{a} tokens with step tokens, {b} with their ratings"
            for a, b in zip(counts[0][differ], counts[1][differ], strict=True)
        ]
        return columns.refuse(batch, differ, "misaligned_tokens", details)
