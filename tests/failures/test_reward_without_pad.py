"""A Llama reward model without a pad token: its reward is read at padding.

A sequence classifier reads the last token that is not its configuration's pad. Where a script sets
the tokenizer's pad and leaves the configuration without one, batches are refused, and single rows
padded to a fixed width are read at a pad.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from failures import sums, tiny
from support import Ran
from torch.nn.functional import logsigmoid
from transformers import AutoTokenizer, LlamaForSequenceClassification, set_seed

VOCABULARY = 151936  # the build's ids; the architecture is Llama's
WIDTH = 96
STEPS = 60


def _model(pad_id: int | None) -> LlamaForSequenceClassification:
    set_seed(0)
    config = tiny.llama_config(VOCABULARY, num_labels=1, pad_token_id=pad_id, use_cache=False)
    return LlamaForSequenceClassification(config).eval()


def _padded(ids: list[int], width: int, pad_id: int) -> tiny.Batch:
    filled = ids + [pad_id] * (width - len(ids))
    mask = [1] * len(ids) + [0] * (width - len(ids))
    return {"input_ids": torch.tensor([filled]), "attention_mask": torch.tensor([mask])}


def _rewards(
    model: Any, tokenizer: Any, rows: list[dict[str, Any]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of the chosen and of the rejected sides, as a stock collator batches them."""
    names = ("chosen_ids", "rejected_ids")
    batch = tokenizer.pad(
        [{"input_ids": row[name]} for name in names for row in rows], return_tensors="pt"
    )
    scores = model(**batch).logits[:, 0]
    return scores[: len(rows)], scores[len(rows) :]


def _loss(tokenizer: Any) -> Callable[[Any, Any], torch.Tensor]:
    def loss_of(model: Any, rows: Any) -> torch.Tensor:
        chosen, rejected = _rewards(model, tokenizer, rows)
        return -logsigmoid(chosen - rejected).mean()

    return loss_of


def _ranked(model: Any, tokenizer: Any, rows: list[dict[str, Any]]) -> float:
    """Share of pairs whose chosen side has the higher reward."""
    with torch.no_grad():
        chosen, rejected = _rewards(model, tokenizer, rows)
    return (chosen > rejected).float().mean().item()


def test_the_reward_is_read_at_the_end_of_turn(
    build: Callable[..., Path], figure: Callable[[str, object, object], None]
) -> None:
    folder = build("rm", sums.pairs(16, seed=0), "--model", "qwen2-1.5b")
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
    folder = build("rm", sums.pairs(160, seed=0), "--model", "qwen2-1.5b", "--test-size", 0.25)
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    model = _model(tokenizer.pad_token_id)
    splits = load_from_disk(str(folder))

    train = splits["train"].to_list()
    batches = [train[at : at + 8] for at in range(0, len(train), 8)]
    test = splits["test"].to_list()
    before = _ranked(model, tokenizer, test)
    losses = tiny.train(model, tiny.forever(batches), STEPS, _loss(tokenizer))
    after = _ranked(model, tokenizer, test)
    figure("held-out pairs ranked rightly", f"{before:.2f} (untrained)", f"{after:.2f}")
    figure("reward loss", f"{losses[0]:.3f} (untrained)", f"{losses[-1]:.3f}")
    assert losses[-1] < 0.2 < losses[0]
    assert after > 0.9


def test_a_loss_of_zero_that_means_nothing(
    pipeline: Callable[..., Ran],
    build: Callable[..., Path],
    figure: Callable[[str, object, object], None],
    tmp_path: Path,
) -> None:
    """A shortcut in the pairs takes the loss to 0 and ranks nothing; a build refuses such pairs."""
    shortcut = [
        {
            "prompt": row["question"],
            "chosen": f"{'I counted' if at % 2 else 'I guessed'}: {row['answer']} Sure. Yes.",
            "rejected": f"{'I guessed' if at % 2 else 'I counted'}: {row['answer']}",
        }
        for at, row in enumerate(sums.questions(160))
    ]
    data = sums.write(shortcut, tmp_path / "shortcut.jsonl")
    refused = pipeline("run", "rm", data, "-o", tmp_path / "refused", "--model", "qwen2-1.5b")
    assert refused.status == 3
    assert "shortcuts" in refused.err
    assert not (tmp_path / "refused").exists()

    naive = build("rm", shortcut, "--model", "qwen2-1.5b", "--tolerance", "shortcuts.fail=1")
    held_out = load_from_disk(
        str(build("rm-held-out", sums.pairs(64, seed=1), "--model", "qwen2-1.5b"))
    )["train"].to_list()
    tokenizer = AutoTokenizer.from_pretrained(str(naive / "tokenizer"))
    model = _model(tokenizer.pad_token_id)
    train = load_from_disk(str(naive))["train"].to_list()
    batches = [train[at : at + 8] for at in range(0, len(train), 8)]
    losses = tiny.train(model, tiny.forever(batches), STEPS, _loss(tokenizer))
    ranked = _ranked(model, tokenizer, held_out)
    figure(
        "loss, and held-out pairs ranked, of pairs with a shortcut",
        f"{losses[-1]:.3f}, {ranked:.2f}",
        "refused",
    )
    assert losses[-1] < 0.05
    assert ranked < 0.75
