"""Train a process reward model from a PRM build: one file over transformers and torch alone.

    pipeline run prm --model qwen2-1.5b data.jsonl --test-size 0.1 --for transformers -o prm
    pipeline overlay ORIGINAL_MODEL_DIR -o MODEL_DIR --build prm
    sh prm/launch/transformers.sh MODEL_DIR

The launch script starts a copy of this file, and so can you:

    python train_prm.py --build prm --model_name MODEL_DIR --output_dir out
    python train_prm.py ... --resume_from_checkpoint out/checkpoint-500

It takes every option of ``transformers.TrainingArguments``, and ``accelerate launch`` or ``torchrun
--nproc_per_node N`` start it in several processes. Beside torch it needs accelerate.

The loss is read at the step markers, unshifted: there the model says how much it prefers the good
token to the bad one, and the build's ``step_labels`` (hard or soft, null where a step has no
rating) say how much it should. It is the cross-entropy of the two, the mean over the rated steps of
an optimizer's step: of all its batches and processes, so that each step counts as much. TRL and
OpenRLHF, while they trained such models, had the same loss of a batch.

Rows of every layout are laid one behind the other with positions that restart, so padding costs
nothing and no example sees another one. That needs an attention that reads positions (sdpa or
flash), no key-value cache, and no recurrent layers. Marker rows of the embedding that the base
model never trained are given a meaning by ``pipeline overlay``; when only adapters are trained,
train the input and output embedding too, or the markers learn nothing.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import load_from_disk
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)

IGNORED = -100
Inputs = dict[str, torch.Tensor]


@dataclass
class Options:
    """What is trained on what."""

    build: str = field(metadata={"help": "folder of a PRM build"})
    model_name: str = field(metadata={"help": "model directory, or hub id"})


def flatten(rows: Sequence[dict[str, Any]]) -> Inputs:
    """Training rows of any layout to one long row.

    Returns ``labels`` float32 [rows, most rated steps], how good each one is, filled up with -100;
    ``input_ids`` and ``position_ids`` int64 [1, tokens]; ``logits_to_keep`` int64 [rated steps],
    where their markers are, row after row: no other position meets the vocabulary.
    """
    ids: list[int] = []
    positions: list[int] = []
    markers: list[int] = []
    rated: list[list[float]] = []
    for row in rows:
        mask = row.get("attention_mask") or [1] * len(row["input_ids"])
        moved = len(ids) - mask.index(1)  # a row is padded on one side only
        ids += itertools.compress(row["input_ids"], mask)
        for length in row.get("seq_lengths") or [sum(mask)]:
            positions += range(length)
        steps = zip(row["step_positions"], row["step_labels"], strict=True)
        known = [(at + moved, label) for at, label in steps if label is not None]
        markers += [at for at, _ in known]
        rated.append([label for _, label in known])
    return {
        "labels": _filled(rated),  # first: the Trainer takes its size for rows
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([positions]),
        "logits_to_keep": torch.tensor(markers, dtype=torch.long),
    }


def _filled(rated: Sequence[Sequence[float]]) -> torch.Tensor:
    """Rows of labels in one tensor."""
    most = max(map(len, rated))
    filled = [[*labels, *[IGNORED] * (most - len(labels))] for labels in rated]
    return torch.tensor(filled, dtype=torch.float32)


class StepTrainer(Trainer):
    """Reads the loss at the markers, over the two reward tokens; the data are those of ``flatten``.

    Args:
        good_id: of the token that says that a step is good; ``bad_id``: of the other one.
    """

    def __init__(self, good_id: int, bad_id: int, **given: Any) -> None:
        # Given so, the Trainer counts the labels of all batches of an optimizer's step.
        super().__init__(compute_loss_func=self.loss, **given)
        self._good, self._bad = good_id, bad_id

    def preference(self, output: Any) -> torch.Tensor:
        """How much better the good token is at each marker, as a logit, float32 [rated steps]."""
        logits: torch.Tensor = output.logits[0].float()
        return logits[:, self._good] - logits[:, self._bad]

    def loss(self, output: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> Any:
        """Cross-entropy of good against bad; soft labels are shares of both.

        Args:
            num_items_in_batch: rated steps of the optimizer's step; None: the mean of this batch.
        """
        wanted = labels[labels != IGNORED]
        total = binary_cross_entropy_with_logits(self.preference(output), wanted, reduction="sum")
        return total / (max(1, len(wanted)) if num_items_in_batch is None else num_items_in_batch)

    def prediction_step(self, model: Any, inputs: Inputs, *_: Any, **__: Any) -> Any:
        """Loss, and preferences and labels [rows, most rated steps], filled up with -100.

        Rows, because that is what the Trainer gathers from its processes, each with other widths,
        and cuts back to the length of the dataset.
        """
        inputs = self._prepare_inputs(inputs)
        labels = inputs["labels"]
        with torch.no_grad():
            loss, output = self.compute_loss(model, inputs, return_outputs=True)
        found = torch.full_like(labels, IGNORED)
        found[labels != IGNORED] = self.preference(output)
        return loss, found, labels


def accuracy(prediction: Any) -> dict[str, float]:
    """Share of rated steps whose better reward token is the one that the data names."""
    rated = prediction.label_ids != IGNORED
    said, meant = prediction.predictions[rated] > 0, prediction.label_ids[rated] >= 0.5
    return {"step_accuracy": float(np.mean(said == meant))}


def trainer_for(build: Path, model: Any, arguments: TrainingArguments) -> StepTrainer:
    """A trainer over a build; evaluates on its ``test`` split where it has one."""
    named = json.loads((build / "manifest.json").read_bytes())["model"]
    splits = load_from_disk(str(build))
    arguments.remove_unused_columns = False  # flatten reads step_positions and step_labels
    model.config.use_cache = False  # with a cache documents of a row would see each other
    return StepTrainer(
        model=model,
        args=arguments,
        data_collator=flatten,
        train_dataset=splits["train"],
        eval_dataset=splits.get("test"),
        processing_class=AutoTokenizer.from_pretrained(str(build / "tokenizer")),
        compute_metrics=accuracy,
        good_id=named["good_token_id"],
        bad_id=named["bad_token_id"],
    )


def main() -> None:
    """Train, and save the model beside the build's tokenizer."""
    read: Any = (Options, TrainingArguments)
    options, arguments = HfArgumentParser(read).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(options.model_name)
    trainer = trainer_for(Path(options.build), model, arguments)
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
    trainer.save_model()


if __name__ == "__main__":
    main()
