"""verl: a custom dataset class that reads our shards, one document an item."""

from __future__ import annotations

from pipeline.exports import Export, ExportFacts
from pipeline.exports._script import script
from stages.kinds import CONVERSATION, PAIR, STEPS


def _launch(facts: ExportFacts) -> str:
    test = [["data.val_files=$BUILD/test"]] if "test" in facts.splits else []
    lines = [
        ["torchrun", "--standalone", "--nproc_per_node=gpu"],
        ["-m", "verl.trainer.sft_trainer"],
        ["data.train_files=$BUILD/train"],
        *test,
        ["data.custom_cls.path=pkg://pipeline.torch_data.verl", "data.custom_cls.name=ShardSFT"],
        ["data.pad_mode=no_padding", f"data.max_length={facts.max_length}"],
        [f"data.max_token_len_per_gpu={facts.max_length}", "data.truncation=error"],
        ["model.path=$MODEL", "model.use_remove_padding=True"],
    ]
    notes = [
        "Each epoch drops the documents that do not fill a last data.train_batch_size (256);",
        "a smaller build trains nothing until it is set lower.",
    ]
    return script("with verl", "verl.sh", lines, notes=notes)


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
    launch=_launch,
    takes_weights=True,
)
