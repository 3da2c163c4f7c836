"""TRL: SFTTrainer on packs or single rows, RewardTrainer, and PRMTrainer while there was one."""

from __future__ import annotations

from pipeline.exports import Export, ExportFacts, Projection
from pipeline.exports._script import rows_of_ids, script, scripts
from stages.kinds import CONVERSATION, PAIR, STEPS


def _detail(facts: ExportFacts) -> str:
    if facts.kind.marks:
        return "one class at each step token: 1 good, 0 bad; last version with a PRM trainer"
    if facts.kind.compares:
        return (
            "max_length=None, or rows are dropped; pads right, pooled at the last real token; "
            "launch/trl.sh gives 0.15 to 0.23 the columns that they read"
        )
    old = "before 0.20 it reads no labels, and launch/trl.sh gives it a collator that does"
    if facts.stored.packs:
        return (
            f"padding_free=True and max_length=None, or documents of a pack see each other; {old}"
        )
    return f"max_length=None, or rows lose their end; pads right; {old}"


def _refuses(facts: ExportFacts) -> str | None:
    if facts.pair and facts.pair.token_types:
        return "trl gives the model no token types, which this encoder needs to separate two texts."
    return None


def _projection(facts: ExportFacts) -> Projection | None:
    # Of other rows it takes its columns from ours, and drops the rest.
    return rows_of_ids(facts, masked=False) if facts.kind.marks else None


EXPORT = Export(
    name="trl",
    versions="trl 1.16.0, 0.15.2 to 0.17.0 (prm: up to 1.13.0)",
    takes={CONVERSATION: ("packed", "ragged"), PAIR: ("ragged",), STEPS: ("ragged",)},
    detail=_detail,
    launch=script("trl.sh"),
    files=scripts("train_trl.py"),
    refuses=_refuses,
    takes_encoders=True,
    projection=_projection,
    two_classes=True,
    takes_margins=True,
    no_margin="it needs one for every pair or for none, so its program leaves the column out",
)


# transformers.Trainer, with the collators of ``pipeline.torch_data``.


def _transformers_detail(facts: ExportFacts) -> str:
    if facts.stored.packs:
        return (
            "pipeline.torch_data.Flatten, batch size 1 and use_cache=False: positions restart, no "
            "attention mask; or the default collator lets documents of a pack see each other"
        )
    return "the mask of the batch is read; use_cache=False"


TRANSFORMERS = Export(
    name="transformers",
    versions="transformers 5.23.0",
    takes={CONVERSATION: ("packed", "ragged", "padded")},
    why_not={
        PAIR: "Trainer has no pairwise loss; trl and openrlhf have",
        STEPS: "Trainer shifts labels, and these are read at the step token; trl and openrlhf do",
    },
    detail=_transformers_detail,
    launch=script("transformers.sh"),
    files=scripts("train_transformers.py"),
)
