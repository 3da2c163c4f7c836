"""Rows that are token ids already: counted and checked, but neither rendered nor encoded.

The invariants hold for these examples too, so a trained stretch must end in the model's end-of-turn
token.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stages import columns, contract, profile
from stages.chat_template import loss_weights
from stages.columns import IGNORED, count_per_row, make_list, numbers
from stages.tokens import encode, segment_encoder
from stages.tokens.folded_labels import folded_ids


@dataclass
class Accept:
    """Keeps ``input_ids`` and ``labels`` of the row; adds its counts and its digest."""

    model: profile.TargetModel
    max_length: int
    name: str = "accept"
    reads: tuple[str, ...] = ("input_ids", "labels")
    writes: tuple[str, ...] = ("labels", "loss_weights", *encode.COUNTS)

    def __call__(self, batch: contract.Batch) -> contract.Batch:
        offsets, ids = numbers(batch.column("input_ids"))
        labels = numbers(batch.column("labels"))[1].copy()
        lengths = np.diff(offsets)
        # No trainer predicts a row's first token; see ``encode``.
        labels[offsets[:-1][lengths > 0]] = IGNORED
        controls = np.isin(ids, np.fromiter(self.model.controls.values(), np.int32))
        none = np.zeros(len(lengths), np.int64)
        batch = columns.put_all(
            batch,
            labels=make_list(offsets, pa.array(labels)),
            loss_weights=loss_weights.lists({}, batch.num_rows),
            length=lengths,
            trained=count_per_row(offsets, labels != IGNORED),
            controls=count_per_row(offsets, controls),
            truncated=none,
            longer=none,
            merged_cuts=none,
        )
        # ``folded_ids`` would hide a label that is neither the id nor -100. The lowest int32, to
        # which no id of a vocabulary folds, gives such a row another digest.
        wrong = (labels != IGNORED) & (labels != ids)
        folded = np.where(wrong, np.int32(np.iinfo(np.int32).min), folded_ids(ids, labels))
        batch = columns.put(batch, "digest", segment_encoder.digests((offsets, folded)))
        unknown = count_per_row(offsets, ids >= self.model.vocab_size)
        details = [
            f"{count} ids are not in the vocabulary of {self.model.vocab_size}"
            for count in unknown[unknown > 0]
        ]
        batch = columns.refuse(batch, unknown > 0, "id_outside_vocabulary", details)
        return segment_encoder.too_long(batch, lengths, self.max_length)
