"""A PRM on Qwen whose labels do not line up: the step tag is not the token that it looks like.

Behind a blank, Qwen's tokenizer never gives the id of a bare step tag, so a search for that id
finds no marker, every label is ignored, and the mean over nothing is not a number. Texts that align
by character do not align by token either.
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from failures import sums, tiny
from support import ROOT
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, TrainingArguments

TAG = "ки"
STEPS = 60


def _solutions(count: int, seed: int) -> list[dict[str, Any]]:
    """Steps that count, which are right, and steps that guess."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        texts, labels = [], []
        for step in range(1, 4):
            good, thing = draw.random() < 0.5, draw.choice(sums.THINGS)
            how = "counts" if good else "guesses"
            what = f"{draw.randrange(99)} {thing}"
            texts.append(f"Step {step}: {draw.choice(sums.NAMES)} {how} {what}.")
            labels.append(good)
        rows.append({"steps": texts, "labels": labels})
    return rows


def _math_shepherd(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    found = []
    for row in rows:
        marks = ["+" if good else "-" for good in row["labels"]]
        head = "How many are there? "
        both = [
            head + "\n".join(f"{s} {m}" for s, m in zip(row["steps"], tags, strict=True))
            for tags in ([TAG] * len(marks), marks)
        ]
        found.append({"input": both[0], "label": both[1], "task": "counting"})
    return found


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_prm", ROOT / "examples" / "train_prm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


def test_a_bare_tag_is_found_nowhere(
    build: Callable[..., Path], figure: Callable[[str, object, object], None]
) -> None:
    rows = _math_shepherd(_solutions(32, seed=0))
    folder = build("prm", rows, "--model", "qwen2-1.5b", "--layout", "ragged")
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    placeholder = tokenizer.encode(TAG, add_special_tokens=False)[-1]
    model = tiny.causal(len(tokenizer))
    found, losses = 0, []
    for row in rows:
        ids, rated = (
            tokenizer(row[key], add_special_tokens=False, return_tensors="pt")["input_ids"]
            for key in ("input", "label")
        )
        assert ids.shape != rated.shape, "texts aligned by character do not align by token"
        markers = ids == placeholder
        found += int(markers.sum())
        labels = torch.full_like(ids, -100)
        labels[markers] = tokenizer.convert_tokens_to_ids("+")
        with torch.no_grad():
            logits = model(ids).logits[0]
        losses.append(cross_entropy(logits, labels[0]).item())
    trained = json.loads((folder / "manifest.json").read_bytes())["tokens"]["trained"]
    figure("step markers that get a label, of 96", found, trained)
    figure("loss over them", losses[0], "see the accuracy")
    assert found == 0
    assert all(map(math.isnan, losses))
    assert trained == 96


@pytest.mark.parametrize("layout", ["packed", "padded", "ragged"])
def test_steps_are_learned(
    layout: str,
    build: Callable[..., Path],
    figure: Callable[[str, object, object], None],
    tmp_path: Path,
) -> None:
    rows = _math_shepherd(_solutions(200, seed=0))
    options = ("--layout", layout, "--max-length", 256, "--test-size", 0.2)
    folder = build("prm", rows, "--model", "qwen2-1.5b", *options)
    example = _example()
    model = tiny.causal(151936)
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=2 if layout == "packed" else 8,
        per_device_eval_batch_size=8,
        max_steps=STEPS,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    trainer = example.trainer_for(folder, model, arguments)
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    figure(
        f"held-out step accuracy, {layout}",
        f"{before['eval_step_accuracy']:.2f} (untrained)",
        f"{after['eval_step_accuracy']:.2f}",
    )
    assert after["eval_loss"] < before["eval_loss"]
    assert after["eval_step_accuracy"] > 0.9
