"""Runs a trainer's own command and records what its model is given, batch by batch.

Imported by a script that stands in the command's place, in the trainer's own process.
"""

import atexit
import importlib
import importlib.machinery
from pathlib import Path
from typing import Any


def _record(name: str, output: str, seen: list[dict[str, Any]]) -> None:
    """The model's trunk runs on what it is given; a head over the vocabulary would fill memory."""
    import torch
    from transformers import modeling_outputs
    from transformers.models.qwen2 import modeling_qwen2

    kind = getattr(modeling_outputs, output)

    def forward(self: Any, **given: Any) -> Any:
        hidden = self.model(
            **{k: given.get(k) for k in ("input_ids", "attention_mask", "position_ids")}
        )[0]
        batch = {k: v.detach().clone() for k, v in given.items() if isinstance(v, torch.Tensor)}
        seen.append({**batch, "hidden": hidden.detach(), "training": self.training})
        return kind(loss=hidden.mean(), logits=hidden, hidden_states=(hidden,))

    getattr(modeling_qwen2, name).forward = forward


def run(entry: str, out: Path) -> None:
    """Call ``module:function``; what the model got is in ``out`` when the process ends."""
    import torch

    seen: list[dict[str, Any]] = []
    _record("Qwen2ForCausalLM", "CausalLMOutputWithPast", seen)
    _record("Qwen2ForTokenClassification", "TokenClassifierOutput", seen)
    atexit.register(lambda: torch.save(seen, out))
    module, function = entry.split(":")
    getattr(importlib.import_module(module), function)()
