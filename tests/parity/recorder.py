"""Runs a trainer's own command and records what its model is given, batch by batch.

Imported by a script that stands in the command's place, in the trainer's own process.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class _Absent(types.ModuleType):
    """Every name is there; a call of one ends the program with its name."""

    __path__: list[str] = []  # noqa: RUF012 - a package's

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "njit":  # compiles a function that runs as it is as well
            return lambda function: function
        if name == "run":  # of wandb: none is going on
            return None

        def stop(*given: object, **named: object) -> Any:
            raise SystemExit(f"STOPPED at {self.__name__}.{name}")

        return type(name, (), {"__new__": stop}) if name[0].isupper() else stop


class _Finder:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if any(name == absent or name.startswith(f"{absent}.") for absent in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stand_in(names: Sequence[str]) -> None:
    """Give modules of these names that can be imported, and stop the program when used."""
    sys.meta_path.insert(0, _Finder(names))  # type: ignore[arg-type]


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
