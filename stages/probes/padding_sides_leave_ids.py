"""Padding, on either side, leaves a sequence's ids and labels as they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages.columns import IDS
from stages.counted import counted
from stages.layouts.padded import pad
from stages.probes import BrokenError, Probe, ProbeSubject
from stages.probes._rendering import QUESTION, dialogue, examples, ids_of, rendered, row_of


def _check(subject: ProbeSubject) -> str:
    rows = [row_of(QUESTION), *(row for row, _ in examples(subject, dialogue(subject)))]
    sequences = [ids_of(subject, rendered(subject, row))[0] for row in rows]
    pad_id = subject.model.pad_id
    if any(pad_id in ids for ids in sequences):
        raise BrokenError(detail=f"the pad id {pad_id} occurs inside a sequence")
    names = [str(i) for i in range(len(rows))]
    ids = pa.array(sequences, IDS)
    table = pa.table({"row_id": names, "input_ids": ids, "labels": ids})
    size = max(map(len, sequences)) + 3
    for side in ("left", "right"):
        padded = pad(table, size=size, side=side, pad_id=pad_id).to_pydict()
        for ours, row, mask in zip(
            sequences, padded["input_ids"], padded["attention_mask"], strict=True
        ):
            kept = np.array(row)[np.array(mask) == 1].tolist()
            if kept != ours or set(
                row[: size - len(ours)] if side == "left" else row[len(ours) :]
            ) != {pad_id}:
                raise BrokenError(detail=f"padding on the {side} changes ids")
    return f"{counted(len(rows), 'sequence')} padded with {pad_id} on both sides"


PROBE = Probe(
    name="padding_sides_leave_ids",
    proves="padding, on either side, leaves a sequence's ids as they are",
    fails="padding cannot be separated from the sequence: {detail}",
    remedy="Name another token as pad_token of the profile: one that its template never prints.",
    check=_check,
    needs=("end_of_turn_is_trained",),
)
