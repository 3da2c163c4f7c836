"""verl: a custom dataset class that reads our shards, one document an item."""

from __future__ import annotations

from pipeline.exports import Export, ExportFacts
from pipeline.exports._script import script
from stages.kinds import CONVERSATION, PAIR, STEPS


def _detail(facts: ExportFacts) -> str:
    details = ["data.custom_cls pipeline.torch_data.verl.ShardSFT, pad_mode no_padding"]
    if facts.stored.packs:
        details.append("packs are split into documents, and the trainer packs them again")
    if "loss_weights" in facts.columns:
        details.append("loss weights are its loss mask, and the loss is divided by their sum")
    return "; ".join(details)


EXPORT = Export(
    name="verl",
    versions="verl 0.9.1",
    takes={CONVERSATION: ("packed", "ragged")},
    why_not={
        PAIR: "its reward models are trained from text",
        STEPS: "it has no process reward trainer",
    },
    detail=_detail,
    launch=script("verl.sh"),
    takes_weights=True,
)
