"""A Llama reward model without a pad token: its reward is read at padding.

A sequence classifier reads the last token that is not its configuration's pad. Where a script sets
the tokenizer's pad and leaves the configuration without one, batches are refused, and single rows
padded to a fixed width are read at a pad.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from failures import sums, tiny
from torch.nn.functional import logsigmoid
from transformers import AutoTokenizer, LlamaForSequenceClassification, set_seed

VOCABULARY = 151936  # the build's ids; the architecture is Llama's
WIDTH = 96
STEPS = 60


def _pairs(count: int, seed: int) -> list[dict[str, str]]:
    """Answers that count are better than answers that guess; which is longer is drawn."""
    draw = random.Random(seed)
    pairs = []
    for row in sums.questions(count, seed):
        ends = [" Sure.", ""] if draw.random() < 0.5 else ["", " Sure."]
        pairs.append(
            {
                "prompt": row["question"],
                "chosen": f"I counted: {row['answer']}{ends[0]}",
                "rejected": f"I guessed: {row['answer']}{ends[1]}",
            }
        )
    return pairs


def _model(pad_id: int | None) -> LlamaForSequenceClassification:
    set_seed(0)
    config = tiny.llama_config(VOCABULARY, num_labels=1, pad_token_id=pad_id, use_cache=False)
    return LlamaForSequenceClassification(config).eval()


def _padded(ids: list[int], width: int, pad_id: int) -> tiny.Batch:
    filled = ids + [pad_id] * (width - len(ids))
    mask = [1] * len(ids) + [0] * (width - len(ids))
    return {"input_ids": torch.tensor([filled]), "attention_mask": torch.tensor([mask])}


def test_the_reward_is_read_at_the_end_of_turn(
    build: Callable[..., Path], figure: Callable[[str, object, object], None]
) -> None:
    folder = build("rm", _pairs(16, seed=0), "--model", "qwen2-1.5b")
    named = json.loads((folder / "manifest.json").read_bytes())["model"]
    rows = [row["chosen_ids"] for row in load_from_disk(str(folder))["train"].to_list()]
    naive, ours = _model(None), _model(named["pad_token_id"])
    with torch.no_grad():
        with pytest.raises(ValueError, match="batch sizes > 1"):
            naive(input_ids=torch.tensor([rows[0], rows[0]]))
        moved = {"naive": 0, "ours": 0}
        for ids in rows:
            for name, model in (("naive", naive), ("ours", ours)):
                alone = model(input_ids=torch.tensor([ids])).logits
                wide = model(**_padded(ids, WIDTH, named["pad_token_id"])).logits
                moved[name] += not torch.allclose(alone, wide, atol=1e-5)
    figure("rewards that change with the padding, of 16", moved["naive"], moved["ours"])
    assert all(ids[-1] == named["end_of_turn_id"] for ids in rows)
    assert moved == {"naive": 16, "ours": 0}


def test_the_loss_falls_and_held_out_pairs_are_ranked(
    build: Callable[..., Path], figure: Callable[[str, object, object], None]
) -> None:
    folder = build("rm", _pairs(160, seed=0), "--model", "qwen2-1.5b", "--test-size", 0.25)
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    model = _model(tokenizer.pad_token_id)
    splits = load_from_disk(str(folder))

    def rewards(rows: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
        names = ("chosen_ids", "rejected_ids")
        sides = [{"input_ids": row[name]} for name in names for row in rows]
        batch = tokenizer.pad(sides, return_tensors="pt")
        scores = model(**batch).logits[:, 0]
        return scores[: len(rows)], scores[len(rows) :]

    def loss_of(_: Any, rows: Any) -> torch.Tensor:
        chosen, rejected = rewards(rows)
        return -logsigmoid(chosen - rejected).mean()

    def ranked() -> float:
        with torch.no_grad():
            chosen, rejected = rewards(splits["test"].to_list())
        return (chosen > rejected).float().mean().item()

    train = splits["train"].to_list()
    batches = [train[at : at + 8] for at in range(0, len(train), 8)]
    before = ranked()
    losses = tiny.train(model, tiny.forever(batches), STEPS, loss_of)  # type: ignore[arg-type]
    after = ranked()
    figure("held-out pairs ranked rightly", f"{before:.2f} (untrained)", f"{after:.2f}")
    figure("reward loss", f"{losses[0]:.3f} (untrained)", f"{losses[-1]:.3f}")
    assert losses[-1] < 0.2 < losses[0]
    assert after > 0.9
