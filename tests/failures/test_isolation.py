"""Packing changes nothing: loss and gradients of packs are those of the same examples alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from datasets import load_from_disk
from failures import sums, tiny
from transformers import Qwen2ForCausalLM

TOKENS = 96


def _gradients(
    model: Qwen2ForCausalLM, batches: list[tiny.Batch]
) -> tuple[float, dict[str, torch.Tensor]]:
    """Sum of all tokens' losses, and what it does to every weight."""
    model.zero_grad()
    total = 0.0
    for batch in batches:
        logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits
        loss = torch.nn.functional.cross_entropy(
            logits[0, :-1], batch["labels"][0, 1:], reduction="sum"
        )
        loss.backward()
        total += loss.item()
    return total, {name: weight.grad.clone() for name, weight in model.named_parameters()}


def _batches(folder: Path) -> list[tiny.Batch]:
    made = []
    for row in load_from_disk(str(folder))["train"].to_list():
        lengths = row.get("seq_lengths") or [len(row["input_ids"])]
        positions = [position for length in lengths for position in range(length)]
        data = {"input_ids": row["input_ids"], "labels": row["labels"], "position_ids": positions}
        made.append({name: torch.tensor([values]) for name, values in data.items()})
    return made


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packs_train_what_their_examples_do(
    attention: str, build: Callable[..., Path], figure: Callable[[str, object, object], None]
) -> None:
    rows = sums.questions(12)
    options = ("--model", "qwen2-1.5b", "--max-length", TOKENS)
    alone = _batches(build("sft", rows, *options, "--layout", "ragged"))
    packs = _batches(build("sft", rows, *options, "--layout", "packed"))
    assert len(packs) < len(alone)
    model = tiny.causal(151936, attn_implementation=attention).double()
    expected, wanted = _gradients(model, alone)
    found, got = _gradients(model, packs)
    leaking = [
        {**pack, "position_ids": torch.arange(pack["input_ids"].shape[1])[None]} for pack in packs
    ]
    leaked, _ = _gradients(model, leaking)
    figure(
        f"loss of packs beside that of single rows, {attention}",
        f"{leaked - expected:+.1e} (positions run on)",
        f"{found - expected:+.1e}",
    )
    assert found == pytest.approx(expected, rel=1e-9)
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-5, atol=1e-6)  # softmax is float32
    assert abs(leaked - expected) > 1e-6 * expected, "the comparison would not see a leak"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="flash attention needs a GPU")
def test_flash_attention_isolates_packs(build: Callable[..., Path]) -> None:
    pytest.importorskip("flash_attn")
    rows = sums.questions(12)
    options = ("--model", "qwen2-1.5b", "--max-length", TOKENS)
    alone = _batches(build("sft", rows, *options, "--layout", "ragged"))
    packs = _batches(build("sft", rows, *options, "--layout", "packed"))
    model = tiny.causal(151936, attn_implementation="flash_attention_2").cuda().bfloat16()
    moved = [[{k: v.cuda() for k, v in batch.items()} for batch in side] for side in (alone, packs)]
    expected, wanted = _gradients(model, moved[0])
    found, got = _gradients(model, moved[1])
    assert found == pytest.approx(expected, rel=2e-3)
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=5e-2, atol=5e-2)
