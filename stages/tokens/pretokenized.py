"""Rows that are token ids already: counted and checked, but neither rendered nor encoded.

The invariants hold for these examples too, so a trained stretch must end in the model's end-of-turn
token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stages import columns
from stages.chat_template import loss_weights
from stages.columns import IGNORED, count_per_row, make_list, numbers
from stages.contract import Batch
from stages.profile import TargetModel
from stages.tokens.digest import digests
from stages.tokens.folded_labels import folded_ids


@dataclass
class Accept:
    """Keeps ``input_ids`` and ``labels`` of the row; adds its counts and its digest."""

    model: TargetModel
    max_length: int
    name: str = "accept"
    reads: tuple[str, ...] = ("input_ids", "labels")
    writes: tuple[str, ...] = (
        "labels",
        "loss_weights",
        "length",
        "trained",
        "controls",
        "truncated",
        "merged_cuts",
        "digest",
    )

    def __call__(self, batch: Batch) -> Batch:
        offsets, ids = numbers(batch.column("input_ids"))
        labels = numbers(batch.column("labels"))[1].copy()
        lengths = np.diff(offsets)
        # No trainer predicts a row's first token; see ``encode``.
        labels[offsets[:-1][lengths > 0]] = IGNORED
        batch = columns.put(batch, "labels", make_list(offsets, pa.array(labels)))
        batch = columns.put(batch, "loss_weights", loss_weights.lists({}, batch.num_rows))
        controls = np.isin(ids, np.fromiter(self.model.controls.values(), np.int32))
        counts = {
            "length": lengths,
            "trained": count_per_row(offsets, labels != IGNORED),
            "controls": count_per_row(offsets, controls),
            "truncated": np.zeros(len(lengths), np.int64),
            "merged_cuts": np.zeros(len(lengths), np.int64),
        }
        for name, values in counts.items():
            batch = columns.put(batch, name, pa.array(values))
        # ``folded_ids`` would hide a label that is neither the id nor -100. The lowest int32, to
        # which no id of a vocabulary folds, gives such a row another digest.
        wrong = (labels != IGNORED) & (labels != ids)
        folded = np.where(wrong, np.int32(np.iinfo(np.int32).min), folded_ids(ids, labels))
        batch = columns.put(batch, "digest", digests((offsets, folded)))
        unknown = count_per_row(offsets, ids >= self.model.vocab_size)
        details = [
            f"{count} ids are not in the vocabulary of {self.model.vocab_size}"
            for count in unknown[unknown > 0]
        ]
        batch = columns.refuse(batch, unknown > 0, "id_outside_vocabulary", details)
        over = lengths > self.max_length
        details = [f"{n} tokens; --max-length is {self.max_length}" for n in lengths[over]]
        return columns.refuse(batch, over, "too_long", details)
