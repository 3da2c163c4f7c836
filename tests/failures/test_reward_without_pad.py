"""A Llama reward model without a pad token: its reward is read at padding.

A sequence classifier reads the last token that is not its configuration's pad. Where a script sets
the tokenizer's pad and leaves the configuration without one, batches are refused, and single rows
padded to a fixed width are read at a pad. With a pad id copied from another family nothing is
refused: the loss falls to zero on rewards read at padding, and answers scored alone are told apart
by none of it.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from failures import sums, tiny
from torch.nn.functional import logsigmoid
from transformers import AutoTokenizer, LlamaForSequenceClassification, set_seed

VOCABULARY = 151936  # the build's ids; the architecture is Llama's
FOREIGN = 128004  # the pad of another family, here an ordinary token that no row has
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


Score = Callable[[Any, list[Any]], tuple[torch.Tensor, torch.Tensor]]
SIDES = ("chosen", "rejected")


def _ours(tokenizer: Any, alone: bool = False) -> Score:
    """Scores of the chosen and of the rejected sides: our rows, as a stock collator batches them,
    or each answer as a batch of its own."""

    def score(model: Any, rows: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        ids = [{"input_ids": row[f"{side}_ids"]} for side in SIDES for row in rows]
        batches = [[one] for one in ids] if alone else [ids]
        found = [model(**tokenizer.pad(batch, return_tensors="pt")).logits for batch in batches]
        chosen, rejected = torch.cat(found)[:, 0].chunk(2)
        return chosen, rejected

    return score


def _naive(tokenizer: Any, alone: bool = False) -> Score:
    """The same of plain text, tokenized and padded to a fixed width on the right, or alone."""
    wide = {"padding": "max_length", "max_length": WIDTH, "padding_side": "right"}
    options = {"return_tensors": "pt", "return_token_type_ids": False} | ({} if alone else wide)

    def score(model: Any, pairs: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        texts = [
            f"Question: {pair['prompt']}\n\nAnswer: {pair[side]}"
            for side in SIDES
            for pair in pairs
        ]
        batches = [[one] for one in texts] if alone else [texts]
        found = [model(**tokenizer(batch, **options)).logits for batch in batches]
        chosen, rejected = torch.cat(found)[:, 0].chunk(2)
        return chosen, rejected

    return score


def _trained(model: Any, rows: list[Any], score: Score) -> list[float]:
    """Train for STEPS batches of 8; returns the losses."""

    def loss_of(model: Any, rows: Any) -> torch.Tensor:
        chosen, rejected = score(model, rows)
        return -logsigmoid(chosen - rejected).mean()

    batches: list[Any] = [rows[at : at + 8] for at in range(0, len(rows), 8)]
    return tiny.train(model, tiny.forever(batches), STEPS, loss_of)


def _margins(model: Any, rows: list[Any], score: Score) -> torch.Tensor:
    """How much higher each chosen side is scored."""
    with torch.no_grad():
        chosen, rejected = score(model, rows)
    return chosen - rejected


def _ranked(margins: torch.Tensor) -> float:
    """Share of pairs whose chosen side has the higher reward."""
    return (margins > 0).float().mean().item()


def test_the_reward_is_read_at_the_end_of_turn(build, figure):
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


def test_the_loss_falls_and_held_out_pairs_are_ranked(build, figure):
    folder = build("rm", sums.pairs(160, seed=0), "--model", "qwen2-1.5b", "--test-size", 0.25)
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    splits = load_from_disk(str(folder))
    test = splits["test"].to_list()
    ours, score = _model(tokenizer.pad_token_id), _ours(tokenizer)
    before = _ranked(_margins(ours, test, score))
    losses = _trained(ours, splits["train"].to_list(), score)
    margins = _margins(ours, test, score)
    alone = _margins(ours, test, _ours(tokenizer, alone=True))

    naive, held_out = _model(None), sums.pairs(40, seed=1)
    naive.config.pad_token_id = FOREIGN
    padded = _naive(tokenizer)
    naive_losses = _trained(naive, sums.pairs(120, seed=0), padded)
    naive_margins = _margins(naive, held_out, padded)
    naive_alone = _margins(naive, held_out, _naive(tokenizer, alone=True))
    figure(
        "reward loss with a pad id of another family",
        f"{naive_losses[-1]:.3f}",
        f"{losses[-1]:.3f}",
    )
    figure(
        "mean margin of held-out pairs in the trainer's batches, and scored alone",
        f"{naive_margins.mean():.1f}, {naive_alone.mean():.1f}",
        f"{margins.mean():.1f}, {alone.mean():.1f}",
    )
    figure(
        "held-out pairs that the reward ranks rightly, scored alone",
        f"{_ranked(naive_alone):.2f}",
        f"{_ranked(alone):.2f} ({before:.2f} untrained)",
    )
    assert naive_losses[-1] < 0.05
    assert naive_alone.abs().mean() < naive_margins.abs().mean() / 4
    assert losses[-1] < 0.05 < 0.5 < losses[0]
    torch.testing.assert_close(alone, margins, rtol=1e-4, atol=1e-4)
    assert _ranked(alone) > 0.9


def test_a_loss_of_zero_that_means_nothing(pipeline, build, figure, tmp_path):
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
    pipeline("run", "rm", data, "-o", tmp_path / "refused", "--model", "qwen2-1.5b").refused(
        3, "shortcuts"
    )
    assert not (tmp_path / "refused").exists()

    naive = build("rm", shortcut, "--model", "qwen2-1.5b", "--tolerance", "shortcuts.fail=1")
    held_out = load_from_disk(
        str(build("rm-held-out", sums.pairs(64, seed=1), "--model", "qwen2-1.5b"))
    )["train"].to_list()
    tokenizer = AutoTokenizer.from_pretrained(str(naive / "tokenizer"))
    model, score = _model(tokenizer.pad_token_id), _ours(tokenizer)
    losses = _trained(model, load_from_disk(str(naive))["train"].to_list(), score)
    ranked = _ranked(_margins(model, held_out, score))
    figure(
        "loss, and held-out pairs ranked, of pairs with a shortcut",
        f"{losses[-1]:.3f}, {ranked:.2f}",
        "refused",
    )
    assert losses[-1] < 0.05
    assert ranked < 0.75
