"""Megatron-Bridge: packed Parquet with document starts and a mask moved one token forward."""

import numpy as np
import pyarrow as pa

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._script import labels_where, list_of, script, scripts, trained
from stages.columns import list_parts, make_list, numbers, offsets_of
from stages.errors import UsageError
from stages.kinds import CONVERSATION, PAIR, STEPS


def _detail(facts: ExportFacts) -> str:
    return (
        "packed Parquet; answer_only_loss must stay true; its collator leaves out the last token "
        "of each document as an input, and the loss wherever the input is the eos token"
    )


def _projection(facts: ExportFacts) -> Projection:
    eos = int(facts.model.eos_token_id)

    def forward(table: pa.Table) -> pa.Table:
        ids, labels = list_of(table, "input_ids"), list_of(table, "labels")
        first, lengths = numbers(list_of(table, "seq_lengths"))
        mask, values = trained(labels), numbers(ids)[1]
        starts = offsets_of(lengths)[:-1]
        # Its loss leaves out positions whose input is eos. A document's first token has none.
        lost = np.flatnonzero(mask[1:] & (values[:-1] == eos)) + 1
        lost = lost[~np.isin(lost, starts)]
        if len(lost):
            row = int(np.searchsorted(list_parts(ids)[0], lost[0], side="right")) - 1
            raise UsageError(
                f"megatron leaves out the loss after an eos token, and row {row} of a shard "
                "trains a token there.",
                "Export for another trainer.",
            )
        if not np.array_equal(numbers(labels)[1][mask], values[mask]):
            raise UsageError("megatron trains on the ids only; this build has other labels.")
        moved = np.append(mask[1:], False)  # to the token that predicts the trained one
        ends = starts + lengths - 1
        moved[ends] = False
        before = np.repeat(list_parts(ids)[0][:-1], np.diff(first))
        return pa.table(
            {
                "input_ids": ids,
                "seq_start_id": make_list(first, pa.array((starts - before).astype(np.int32))),
                "loss_mask": make_list(list_parts(ids)[0], pa.array(moved.astype(np.int8))),
            }
        )

    def back(table: pa.Table) -> pa.Table:
        ids = list_of(table, "input_ids")
        offsets, moved = list_parts(list_of(table, "loss_mask"))
        mask = np.append(False, moved.to_numpy()[:-1] != 0)
        first, starts = numbers(list_of(table, "seq_start_id"))
        absolute = starts + np.repeat(offsets[:-1], np.diff(first))
        lengths = np.diff(np.append(absolute, offsets[-1])).astype(np.int32)
        return pa.table(
            {
                "input_ids": ids,
                "labels": labels_where(ids, mask),
                "seq_lengths": make_list(first, pa.array(lengths)),
            }
        )

    return Projection(("input_ids", "labels", "seq_lengths"), forward, back)


EXPORT = Export(
    name="megatron",
    versions="megatron-bridge after 0.3.1 (packed Parquet)",
    takes={CONVERSATION: ("packed",)},
    why_not={
        PAIR: "its packed Parquet holds no pairs",
        STEPS: "its labels are always the next token, and these are read at the step token",
    },
    detail=_detail,
    launch=script("megatron.sh"),
    files=scripts("train_megatron.py"),
    projection=_projection,
    container="parquet",
)
