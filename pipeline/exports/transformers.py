"""transformers.Trainer, with the collators of ``pipeline.torch_data``."""

from __future__ import annotations

from pipeline.exports import Export, ExportFacts
from pipeline.exports._script import script, scripts
from stages.kinds import CONVERSATION, PAIR, STEPS


def _detail(facts: ExportFacts) -> str:
    if facts.stored.packs:
        return (
            "pipeline.torch_data.Flatten, batch size 1 and use_cache=False: positions restart, no "
            "attention mask; or the default collator lets documents of a pack see each other"
        )
    return "the mask of the batch is read; use_cache=False"


EXPORT = Export(
    name="transformers",
    versions="transformers 5.23.0",
    takes={CONVERSATION: ("packed", "ragged", "padded")},
    why_not={
        PAIR: "Trainer has no pairwise loss; trl and openrlhf have",
        STEPS: "Trainer shifts labels, and these are read at the step token; trl and openrlhf do",
    },
    detail=_detail,
    launch=script("transformers.sh"),
    files=scripts("train_transformers.py"),
)
