"""OpenRLHF: the launcher swaps its Dataset class for one that reads our shards, in any layout."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.exports import Export, ExportFacts
from pipeline.exports._script import script, scripts
from stages.kinds import CONVERSATION, PAIR, STEPS


def _files(facts: ExportFacts) -> Mapping[str, str]:
    return scripts("openrlhf-dpo.sh")(facts) if facts.kind.compares else {}


def _detail(facts: ExportFacts) -> str:
    if facts.kind.compares:
        return "pairs for rm and, with launch/openrlhf-dpo.sh, for dpo; padded by the trainer"
    packs = "packs are exploded and isolated by --packing_samples" if facts.stored.packs else ""
    if facts.stored.pads:
        packs = "rows and masks as stored, positions counted from the mask; without packing"
    if "loss_weights" in facts.columns:
        weighted = "loss weights are its loss mask, and the loss is divided by their sum"
        return "; ".join(x for x in (packs, weighted) if x)
    if facts.kind.marks:
        soft = "soft labels reach the loss as floats" if facts.soft else ""
        return "; ".join(x for x in ("read at the step token", packs, soft) if x)
    return packs or "one example a row; padded by the trainer"


def _refuses(facts: ExportFacts) -> str | None:
    if facts.soft and facts.unlabelled:
        return (
            "openrlhf cannot train from soft labels with unlabelled steps among them: its loss "
            "ignores -100 in hard labels only, and would read it as a probability."
        )
    return None


EXPORT = Export(
    name="openrlhf",
    versions="openrlhf 0.7.1 to 0.11.2 (prm: 0.7.4 to 0.9.5)",
    takes={
        CONVERSATION: ("packed", "ragged", "padded"),
        PAIR: ("ragged",),
        STEPS: ("packed", "ragged", "padded"),
    },
    detail=_detail,
    launch=script("openrlhf.sh"),
    files=_files,
    refuses=_refuses,
    takes_weights=True,
    takes_margins=True,
    no_margin="it reads a missing one as 0",
)
