"""A model that fits a test, and the loss of our example's trainer on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from support import example

_SIZES = {
    "vocab_size": 151936,  # Qwen2's own, for its own tokenizer
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 16384,
}


def tiny(kind: str, **more: Any) -> Any:
    """A Qwen2 of a few thousand weights beside its embedding, unless more is asked for."""
    config = transformers.Qwen2Config(**{**_SIZES, "use_cache": False, **more})
    return getattr(transformers, f"Qwen2For{kind}")(config)


def step_loss(folder: Path, model: Any, rows: Sequence[Any], out: Path) -> torch.Tensor:
    """The loss that ``examples/train_prm.py`` has of a batch of rows of a build."""
    program = example("train_prm")
    arguments = transformers.TrainingArguments(output_dir=str(out), report_to=[], use_cpu=True)
    trainer = program.trainer_for(folder, model, arguments)
    return trainer.compute_loss(model, program.flatten(rows))
