"""OpenRLHF: the launcher swaps its Dataset class for one that reads our shards, packs included."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.exports import Export, Facts
from pipeline.exports._script import script

_RUN = ["deepspeed", "--no_python", "pipeline-openrlhf"]
_VERSIONS = "openrlhf 0.7.1 to 0.11.2 (prm: 0.7.4 to 0.9.5)"
_STEP = 128  # rows in a step of the optimizer, unless told


def _evaluate(facts: Facts, prefix: str, dash: str) -> list[list[str]]:
    if "test" not in facts.splits:
        return []
    return [[f"--{prefix}dataset", "$BUILD", f"--{prefix}{dash}split", "test"]]


def sizes(facts: Facts, micro: str, step: str) -> list[str]:
    """Rows in a micro batch and, where the build has fewer than the trainer's own, in a step: it
    ends before its first one otherwise."""
    # A power of two, as _STEP is: deepspeed refuses a step that micro batches and GPUs do not fill.
    rows = 1 << max(1, min(facts.rows, _STEP)).bit_length() - 1
    # One stored pack is many documents, and the trainer takes the micro batch apart again.
    size = 1 if facts.layout == "packed" else min(4, rows)
    return [micro, str(size), *([step, str(rows)] if 0 < facts.rows < _STEP else [])]


def _new_style(task: str, facts: Facts) -> list[list[str]]:
    """Flags of 0.10.2 and newer."""
    packing = [["--ds.packing_samples"]] if task != "dpo" else []
    margin = ["--model.margin_loss_enable"] if "margin" in facts.columns and task == "rm" else []
    return [
        [*_RUN, task],
        ["--model.model_name_or_path", "$MODEL"],
        ["--data.dataset", "$BUILD", "--data.dataset_split", "train"],
        *_evaluate(facts, "eval.", ""),
        ["--data.max_len", str(facts.max_length), "--data.input_template", ""],
        *packing,
        *([margin] if margin else []),
        sizes(facts, "--train.micro_batch_size", "--train.batch_size"),
    ]


def _old_style(facts: Facts) -> list[list[str]]:
    """Flags of the versions that train a process reward model."""
    model = facts.model
    return [
        [*_RUN, "prm"],
        ["--pretrain", "$MODEL"],
        ["--dataset", "$BUILD", "--dataset_split", "train"],
        *_evaluate(facts, "eval_", "")[:1],
        ["--placeholder_token", str(model["step_token"])],
        ["--reward_tokens", str(model["good_token"]), str(model["bad_token"])],
        ["--max_len", str(facts.max_length), "--packing_samples"],
        sizes(facts, "--micro_train_batch_size", "--train_batch_size"),
    ]


def _launch(facts: Facts) -> str:
    if facts.task == "prm":
        notes = ["Needs openrlhf 0.7.4 to 0.9.5: newer ones have no such trainer."]
        return script(
            "a process reward model with OpenRLHF", "openrlhf.sh", _old_style(facts), notes
        )
    what = {"sft": "with OpenRLHF", "rm": "a reward model with OpenRLHF"}[facts.task]
    notes = [
        "The flags are those of openrlhf 0.10.2 and newer; older ones spell them without the",
        "group in front (--dataset, --packing_samples, --max_len).",
    ]
    if facts.task == "rm":
        notes += ["The trainer pads left and reads the reward at the last token."]
    return script(what, "openrlhf.sh", _new_style(facts.task, facts), notes)


def _files(facts: Facts) -> Mapping[str, str]:
    if facts.task != "rm":
        return {}
    lines = _new_style("dpo", facts)
    return {
        "openrlhf-dpo.sh": script("by preference (DPO) with OpenRLHF", "openrlhf-dpo.sh", lines)
    }


def _detail(facts: Facts) -> str:
    if facts.task == "rm":
        return "pairs for rm and, with launch/openrlhf-dpo.sh, for dpo; padded by the trainer"
    packs = (
        "packs are exploded and isolated by --packing_samples" if facts.layout == "packed" else ""
    )
    if "loss_weights" in facts.columns:
        weighted = "loss weights are its loss mask, and the loss is divided by their sum"
        return "; ".join(x for x in (packs, weighted) if x)
    if facts.task == "prm":
        soft = "soft labels reach the loss as floats" if facts.soft else ""
        return "; ".join(x for x in ("read at the step token", packs, soft) if x)
    return packs or "one example a row; padded by the trainer"


def _refuses(facts: Facts) -> str | None:
    if facts.soft and facts.unlabelled:
        return (
            "openrlhf cannot train from soft labels with unlabelled steps among them: its loss "
            "ignores -100 in hard labels only, and would read it as a probability."
        )
    return None


EXPORT = Export(
    name="openrlhf",
    versions=_VERSIONS,
    takes={
        "sft": ("packed", "ragged"),
        "rm": ("ragged",),
        "prm": ("packed", "ragged"),
    },
    detail=_detail,
    launch=_launch,
    files=_files,
    refuses=_refuses,
    takes_weights=True,
    takes_margins=True,
    no_margin="it reads a missing one as 0",
)
