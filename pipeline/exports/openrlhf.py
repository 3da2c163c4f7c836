"""OpenRLHF: the launcher swaps its Dataset class for one that reads our shards, in any layout."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.exports import Export, ExportFacts
from pipeline.exports._openrlhf_flags import Lines
from pipeline.exports._openrlhf_flags import script as by_version
from pipeline.exports._script import beginning, script
from stages.kinds import CONVERSATION, PAIR, STEPS

_RUN = ["deepspeed", "--no_python", "pipeline-openrlhf"]
_VERSIONS = "openrlhf 0.7.1 to 0.11.2 (prm: 0.7.4 to 0.9.5)"
_STEP = 128  # the trainer's default number of rows in a step of the optimizer


def _step(facts: ExportFacts) -> int:
    # The largest power of two up to the rows: deepspeed refuses a step that is not a multiple of
    # the micro batch times the GPUs.
    return 1 << max(1, min(facts.rows, _STEP)).bit_length() - 1


def micro(facts: ExportFacts) -> int:
    """Rows in a micro batch, on one GPU."""
    # One stored pack is already many documents, which the trainer gets as separate sequences.
    return 1 if facts.stored.packs else min(4, _step(facts))


def sizes(facts: ExportFacts, small: str, step: str, from_variable: bool = False) -> list[str]:
    """The options for the rows of a micro batch and, where a step takes more rows than the build
    has, for those of a step: otherwise the trainer ends before its first step.

    Args:
        small, step: what the two options are called.
        from_variable: the script sets ``$BATCH_SIZE``, which gives the micro batch.
    """
    size = "$BATCH_SIZE" if from_variable else str(micro(facts))
    return [small, size, *([step, str(_step(facts))] if 0 < facts.rows < _STEP else [])]


COMMANDS = {CONVERSATION: "sft", PAIR: "rm", STEPS: "prm"}  # of the launcher
_DPO = "dpo"  # of the launcher: it trains on pairs, as rm does


def _flags(task: str, facts: ExportFacts) -> Lines:
    """The command of one of the launcher's tasks, as versions before 0.10.2 spell it."""
    scores = facts.kind.compares and task != _DPO
    evaluate = (
        [["--eval_dataset", "$BUILD", "--eval_split", "test"]] if "test" in facts.splits else []
    )
    template = ["--input_template", ""] if not facts.kind.marks else []
    # Padded rows keep the mask that is stored. With packing the trainer removes its own padding.
    packing = ["--packing_samples"] if task != _DPO and not facts.stored.pads else []
    lines = [
        [*_RUN, task],
        ["--pretrain", "$MODEL"],
        ["--dataset", "$BUILD"],  # of which every version trains on the split train
        *evaluate,
        ["--max_len", str(facts.max_length), *template, *packing],
    ]
    if facts.kind.marks:
        lines += [
            ["--placeholder_token", str(facts.model.step_token)],
            ["--reward_tokens", str(facts.model.good_token), str(facts.model.bad_token)],
        ]
    if scores:
        lines += [["--margin_loss"]] if "margin" in facts.columns else []
        lines += [["--learning_rate", "$LEARNING_RATE"]]
    return [
        *lines,
        sizes(
            facts,
            small="--micro_train_batch_size",
            step="--train_batch_size",
            from_variable=scores,
        ),
    ]


def _launch(facts: ExportFacts) -> str:
    lines = _flags(COMMANDS[facts.kind.trains_as], facts)
    if facts.kind.marks:
        notes = ["Needs openrlhf 0.7.4 to 0.9.5: newer ones have no such trainer."]
        return script("a process reward model with OpenRLHF", "openrlhf.sh", lines, notes=notes)
    if facts.kind.trains_answers:
        return by_version("with OpenRLHF", "openrlhf.sh", lines)
    notes, before = beginning(micro(facts), facts.max_length)
    notes = ["The trainer pads left and reads the reward at the last token.", *notes]
    return by_version(
        "a reward model with OpenRLHF", "openrlhf.sh", lines, notes=notes, before=before
    )


def _files(facts: ExportFacts) -> Mapping[str, str]:
    if not facts.kind.compares:
        return {}
    file = "openrlhf-dpo.sh"
    return {file: by_version("by preference (DPO) with OpenRLHF", file, _flags(_DPO, facts))}


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
    versions=_VERSIONS,
    takes={
        CONVERSATION: ("packed", "ragged", "padded"),
        PAIR: ("ragged",),
        STEPS: ("packed", "ragged", "padded"),
    },
    detail=_detail,
    launch=_launch,
    files=_files,
    refuses=_refuses,
    takes_weights=True,
    takes_margins=True,
    no_margin="it reads a missing one as 0",
)
