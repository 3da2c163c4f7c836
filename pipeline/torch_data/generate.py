"""Generates answers to prompts of ids with a checkpoint, through transformers' ``generate``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


class Checkpoint:
    """A causal language model with its own generation configuration.

    Args:
        pad: id that shorter prompts of a batch are filled up with, on the left.
    """

    def __init__(self, folder: Path, pad: int) -> None:
        load: Any = AutoModelForCausalLM.from_pretrained
        self._model = load(str(folder), dtype="auto").eval()
        if torch.cuda.is_available():
            self._model.to("cuda")
        self._pad = pad

    def answer(
        self, prompts: Sequence[Sequence[int]], most: int, temperature: float, seed: int
    ) -> list[list[int]]:
        """Ids of the answers to a batch of prompts, up to the id at which each one stopped.

        Args:
            most: new tokens.
            temperature: 0 takes the likeliest token.
        """
        width = max(map(len, prompts))
        ids = torch.tensor([[self._pad] * (width - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        torch.manual_seed(seed)
        sampled: dict[str, Any] = {"do_sample": False}
        if temperature:
            sampled = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        out = self._model.generate(
            input_ids=ids.to(self._model.device),
            attention_mask=mask.to(self._model.device),
            max_new_tokens=most,
            pad_token_id=self._pad,
            **sampled,
        )
        return [self._ended(row) for row in out[:, width:].tolist()]

    @property
    def stops(self) -> list[int]:
        """Ids at which its own configuration stops."""
        eos = self._model.generation_config.eos_token_id
        return [] if eos is None else list(eos) if isinstance(eos, list) else [eos]

    def _ended(self, ids: list[int]) -> list[int]:
        """The ids up to the first stop id; ``generate`` fills the rest of a batch with padding."""
        at = next((i for i, token in enumerate(ids) if token in self.stops), len(ids) - 1)
        return ids[: at + 1]


def has_weights(folder: Path) -> bool:
    """Whether the folder has files of weights."""
    index = folder / "model.safetensors.index.json"
    names = set(json.loads(index.read_bytes())["weight_map"].values()) if index.is_file() else ()
    return bool(names) or any(
        next(folder.glob(pattern), None) for pattern in ("*.safetensors", "pytorch_model*.bin")
    )
