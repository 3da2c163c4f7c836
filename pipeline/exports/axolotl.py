"""axolotl: rows recognised as tokenized by exactly three columns; it packs at run time itself."""

from __future__ import annotations

import pyarrow as pa

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._columns import class_labels, list_of, ones, token_labels
from pipeline.exports._script import script, scripts
from stages.kinds import CONVERSATION, PAIR, STEPS


def _detail(facts: ExportFacts) -> str:
    if facts.kind.marks:
        return "one class at each step token: 1 good, 0 bad; sample_packing off"
    return (
        "single rows, packed at run time by sample_packing, which may leave a pack out of an "
        "epoch; sdpa keeps their documents apart"
    )


def _refuses(facts: ExportFacts) -> str | None:
    if facts.soft:
        return "axolotl trains step rewards as two classes: they cannot express soft labels."
    return None


def _projection(facts: ExportFacts) -> Projection:
    good, bad = facts.model.good_token_id, facts.model.bad_token_id
    classes = facts.kind.marks

    def forward(table: pa.Table) -> pa.Table:
        ids, labels = list_of(table, "input_ids"), list_of(table, "labels")
        if classes and good is not None and bad is not None:
            labels = class_labels(labels, good, bad)
        return pa.table({"input_ids": ids, "attention_mask": ones(ids), "labels": labels})

    def back(table: pa.Table) -> pa.Table:
        labels = list_of(table, "labels")
        if classes and good is not None and bad is not None:
            labels = token_labels(labels, good, bad)
        return pa.table({"input_ids": list_of(table, "input_ids"), "labels": labels})

    return Projection(("input_ids", "labels"), forward, back)


EXPORT = Export(
    name="axolotl",
    versions="axolotl 0.19.0",
    takes={CONVERSATION: ("ragged",), STEPS: ("ragged",)},
    why_not={PAIR: "its reward trainer tokenizes text itself"},
    detail=_detail,
    launch=script("axolotl.sh"),
    files=scripts("axolotl.yaml"),
    refuses=_refuses,
    projection=_projection,
)
