"""open-r1: its SFT script with a recipe; the TRL version that it pins reads a mask, not labels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._script import labels_where, like, list_of, script, scripts, trained
from stages.columns import list_parts, numbers
from stages.errors import UsageError
from stages.kinds import CONVERSATION, PAIR, STEPS


def _detail(facts: ExportFacts) -> str:
    return (
        "completion_only_loss=true, or its TRL trains every token; use_liger_kernel=false, or it "
        "drops the mask; packing=false, since its packing drops it too; trl 0.15 and 0.16, which "
        "its first recipes pinned, read no mask at all: train with trl's launch script there"
    )


def _forward(table: pa.Table) -> pa.Table:
    ids, labels = list_of(table, "input_ids"), list_of(table, "labels")
    mask = trained(labels)
    # A mask can only say which ids are trained, not that another id is the label.
    if not np.array_equal(numbers(labels)[1][mask], numbers(ids)[1][mask]):
        raise UsageError("open-r1 trains on the ids only; this build has other labels.")
    return pa.table({"input_ids": ids, "completion_mask": like(ids, mask.astype(np.int8))})


def _back(table: pa.Table) -> pa.Table:
    ids = list_of(table, "input_ids")
    mask = list_parts(list_of(table, "completion_mask"))[1].to_numpy() != 0
    return pa.table({"input_ids": ids, "labels": labels_where(ids, mask)})


def _projection(facts: ExportFacts) -> Projection:
    return Projection(("input_ids", "labels"), _forward, _back)


EXPORT = Export(
    name="open-r1",
    versions="open-r1 with trl 0.17.0 to 1.16.0",
    takes={CONVERSATION: ("ragged",)},
    why_not={
        PAIR: "it has no reward trainer",
        STEPS: "it has no process reward trainer",
    },
    detail=_detail,
    launch=script("open-r1.sh"),
    files=scripts("open-r1.yaml"),
    projection=_projection,
)
