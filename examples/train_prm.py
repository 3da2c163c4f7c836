"""Train a process reward model from a PRM build, on transformers alone.

    pipeline run prm --model qwen2-1.5b data.jsonl --test-size 0.1 -o prm
    pipeline overlay ORIGINAL_MODEL_DIR -o MODEL_DIR --build prm
    python examples/train_prm.py --build prm --model_name MODEL_DIR --output_dir out

An example, not a part of the program: it needs torch and accelerate, and takes every option of
``transformers.TrainingArguments``. For several processes start it with ``accelerate launch`` or
``torchrun --nproc_per_node N``, as any Trainer script (without GPUs, ``torchrun``).

The loss is read at the step markers, unshifted: there the model says how much it prefers the good
token to the bad one, and the build's ``step_labels`` (hard or soft, null where a step has no
rating) say how much it should. Rows of every layout are laid one behind the other with positions
that restart, so padding costs nothing and no example sees another one. That needs an attention that
reads positions (sdpa or flash) and no key-value cache. Marker rows of the embedding that the base
model never trained are given a meaning by ``pipeline overlay``; when only adapters are trained,
train the input and output embedding too, or the markers learn nothing.
"""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import load_from_disk
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence
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


class Flatten:
    """Training rows of any layout to one long row.

    Returns ``input_ids`` and ``position_ids`` int64 [1, tokens]; ``marker_positions`` int64 and
    ``marker_labels`` float32 [labelled markers], indices into that row and how good each step is;
    ``marker_counts`` int64 [rows], how many of them are of each training row.
    """

    def __call__(self, rows: list[dict[str, Any]]) -> Inputs:
        ids: list[int] = []
        positions: list[int] = []
        markers: list[int] = []
        labels: list[float] = []
        counts: list[int] = []
        for row in rows:
            mask = row.get("attention_mask") or [1] * len(row["input_ids"])
            first, base = mask.index(1), len(ids)  # a row is padded on one side only
            ids += itertools.compress(row["input_ids"], mask)
            for length in row.get("seq_lengths") or [sum(mask)]:
                positions += range(length)
            for at, label in zip(row["step_positions"], row["step_labels"], strict=True):
                if label is not None:
                    markers.append(base + at - first)
                    labels.append(label)
            counts.append(len(labels) - sum(counts))
        return {
            "marker_counts": torch.tensor(counts),  # first: the Trainer takes its size for rows
            "input_ids": torch.tensor([ids]),
            "position_ids": torch.tensor([positions]),
            "marker_positions": torch.tensor(markers),
            "marker_labels": torch.tensor(labels),
        }


class StepTrainer(Trainer):
    """Reads the loss at the markers, over the two reward tokens."""

    def __init__(self, *arguments: Any, good_id: int, bad_id: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.model_accepts_loss_kwargs = False  # the mean over this batch's markers
        self._good, self._bad = good_id, bad_id

    def compute_loss(
        self, model: Any, inputs: Inputs, return_outputs: bool = False, **_: Any
    ) -> Any:
        """Cross-entropy of good against bad; soft labels are shares of both."""
        output = model(
            input_ids=inputs["input_ids"],
            position_ids=inputs["position_ids"],
            logits_to_keep=inputs["marker_positions"],  # no other position meets the vocabulary
            use_cache=False,
        )
        logits = output.logits[0].float()
        preference = logits[:, self._good] - logits[:, self._bad]
        loss = binary_cross_entropy_with_logits(preference, inputs["marker_labels"])
        return (loss, preference) if return_outputs else loss

    def prediction_step(self, model: Any, inputs: Inputs, *_: Any, **__: Any) -> Any:
        """Loss, and preferences and labels [rows, most markers], filled up with -100.

        Rows, because that is what the Trainer gathers from its processes, each with other widths,
        and cuts back to the length of the dataset.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            loss, preference = self.compute_loss(model, inputs, return_outputs=True)
        counts = inputs["marker_counts"].tolist()
        by_row = (
            pad_sequence(each.split(counts), batch_first=True, padding_value=IGNORED)
            for each in (preference, inputs["marker_labels"])
        )
        return loss, *by_row


def accuracy(prediction: Any) -> dict[str, float]:
    """Share of rated steps whose better reward token is the one that the data names."""
    rated = prediction.label_ids != IGNORED
    said, meant = prediction.predictions[rated] > 0, prediction.label_ids[rated] >= 0.5
    return {"step_accuracy": float(np.mean(said == meant))}


def trainer_for(build: Path, model: Any, arguments: TrainingArguments) -> StepTrainer:
    """A trainer over a build; evaluates on its ``test`` split where it has one."""
    named = json.loads((build / "manifest.json").read_bytes())["model"]
    splits = load_from_disk(str(build))
    arguments.remove_unused_columns = False  # the collator reads step_positions and step_labels
    return StepTrainer(
        model,
        arguments,
        data_collator=Flatten(),
        train_dataset=splits["train"],
        eval_dataset=splits.get("test"),
        processing_class=AutoTokenizer.from_pretrained(str(build / "tokenizer")),
        compute_metrics=accuracy,
        good_id=named["good_token_id"],
        bad_id=named["bad_token_id"],
    )


def main() -> None:
    """Train, and save the model beside the build's tokenizer."""
    options, arguments = HfArgumentParser(
        (Options, TrainingArguments)
    ).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(options.model_name)
    trainer = trainer_for(Path(options.build), model, arguments)
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
