"""Encoders as reward models: what reward code written for decoders does to them.

The score of RoBERTa and BERT is read at the first token, so a batch padded on the left, as such
code pads, is scored at padding. Their positions end at 512: a row that a trainer's default of 1024
lets through crashes, and pairs that are cut to fit lose the answers that they were made of.
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from failures import sums, tiny
from small_tokenizers import model_folder
from support import read_manifest
from torch.nn.functional import logsigmoid
from transformers import AutoTokenizer

from pipeline.torch_data import Rows, pair_collator

FAMILIES = {"roberta": "roberta-base", "bert": "bert-base-uncased"}
VOCABULARY = 600
POSITIONS = 512
STEPS = 120  # the tokenizer is trained anew for each run, and some learn slower

Pair = dict[str, str]


@pytest.fixture(params=FAMILIES)
def family(request, tmp_path) -> tuple[str, Path]:
    """A family's name, and a model directory with a small tokenizer of its kind."""
    return request.param, model_folder(tmp_path / "model", FAMILIES[request.param])


def _stock(folder: Path) -> Any:
    """The tokenizer as it lies beside the model, before any build."""
    return AutoTokenizer.from_pretrained(str(folder))


def _joined(pair: Pair, side: str) -> str:
    """One text, as scripts make it whose models read chats."""
    return f"Question: {pair['prompt']}\n\nAnswer: {pair[side]}"


def _scores(model: Any, batch: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(**{k: v for k, v in batch.items() if k != "margin"}).logits[:, 0]


def _moved(alone: torch.Tensor, together: torch.Tensor) -> int:
    """How many of the scores differ."""
    return int((~torch.isclose(alone, together, atol=1e-5)).sum())


def test_an_encoder_scores_a_pair_in_a_batch_as_alone(family, build, figure):
    name, folder = family
    pairs = sums.pairs(8, seed=0)
    pairs[0]["chosen"] += " Sure. Yes."  # the one text of the batch without padding
    model, stock = tiny.encoder(name, VOCABULARY), _stock(folder)
    texts = [_joined(pair, side) for side in ("chosen", "rejected") for pair in pairs]
    left = stock(texts, padding=True, padding_side="left", return_tensors="pt")
    alone = [_scores(model, stock([text], return_tensors="pt")) for text in texts]
    naive = _moved(torch.cat(alone), _scores(model, left))

    ours = 0
    for layout in ("ragged", "padded"):
        built = build(f"rm-{layout}", pairs, "--model", folder, "--layout", layout)
        rows, collate = list(Rows(built)), pair_collator(built)
        single = torch.stack([_scores(model, collate([row])) for row in rows])
        ours += _moved(single.T.flatten(), _scores(model, collate(rows)))
        framed = stock(
            [pair["prompt"] for pair in pairs] * 2,
            [pair[side] for side in ("chosen", "rejected") for pair in pairs],
            padding=True,
            return_tensors="pt",
        )
        assert _moved(single.T.flatten(), _scores(model, framed)) == 0, "framed as transformers do"
    figure(f"scores of 16 answers that change in a batch, {name}", naive, ours)
    assert naive == 15, "only the longest text has no padding"
    assert ours == 0


def test_pairs_longer_than_an_encoder_are_refused_by_name(family, build, figure):
    name, folder = family
    short, many = sums.pairs(8, seed=0), sums.pairs(8, seed=1)
    model, stock = tiny.encoder(name, VOCABULARY), _stock(folder)
    eight = stock("x " * 8, add_special_tokens=False)["input_ids"]
    before = "x " * (8 * 600 // len(eight))  # 600 tokens
    long = [{**pair, "prompt": before + pair["prompt"]} for pair in many]
    whole = stock(_joined(long[0], "chosen"), return_tensors="pt")
    assert POSITIONS < whole["input_ids"].shape[1] <= 1024, "a default of 1024 keeps it"
    with pytest.raises((IndexError, RuntimeError)):
        model(**whole)

    cut = {"truncation": True, "max_length": POSITIONS, "padding": True, "return_tensors": "pt"}
    sides = [
        stock([_joined(pair, side) for pair in long], **cut) for side in ("chosen", "rejected")
    ]
    differ = (sides[0]["input_ids"] != sides[1]["input_ids"]).any(-1).sum().item()
    chosen, rejected = (model(**side).logits for side in sides)
    loss = -logsigmoid(chosen - rejected).mean()
    loss.backward()
    steepest = max(weight.grad.abs().max().item() for weight in model.parameters())

    built = build("rm", [*short, *long], "--model", folder, "--max-reject", 1)
    rows = load_from_disk(str(built))["train"].to_list()
    refused = read_manifest(built)["rows"]["rejected_by_code"]
    kept = sum(row["chosen_ids"] != row["rejected_ids"] for row in rows)
    figure(
        f"pairs of 8 short and 8 long ones that can teach {name}",
        f"{8 + differ}; the others are cut alike, loss {loss.item():.3f}",
        f"{kept}; the others are refused",
    )
    assert differ == 0
    assert loss.item() == pytest.approx(math.log(2))
    assert steepest < 1e-6
    assert refused == {"too_long": 8}
    assert len(rows) == kept == 8
    assert max(len(row[f"{s}_ids"]) for row in rows for s in ("chosen", "rejected")) <= POSITIONS


def test_an_encoder_learns_to_rank(family, build, figure):
    name, folder = family
    layout = {"roberta": "ragged", "bert": "padded"}[name]
    # Words that are not in such a small vocabulary are equal.
    options = ("--model", folder, "--layout", layout, "--test-size", 0.25, "--dedup")
    options += ("--tolerance", "lost_text.fail=1")
    built = build("rm", sums.pairs(160, seed=0), *options)
    collate = pair_collator(built)
    train, held_out = (list(Rows(built, split)) for split in ("train", "test"))

    def margins(model: Any, rows: Any) -> torch.Tensor:
        chosen, rejected = model(**collate(rows)).logits[:, 0].chunk(2)
        return chosen - rejected

    model = tiny.encoder(name, VOCABULARY)
    batches: Any = [train[at : at + 8] for at in range(0, len(train), 8)]
    losses = tiny.train(
        model, tiny.forever(batches), STEPS, lambda *both: -logsigmoid(margins(*both)).mean()
    )
    with torch.no_grad():
        after = (margins(model, held_out) > 0).float().mean().item()
    figure(
        f"reward loss of {name}, and held-out pairs that it ranks rightly",
        f"{losses[0]:.1f} (untrained)",
        f"{losses[-1]:.2f}, {after:.2f}",
    )
    assert losses[-1] < 0.2 < losses[0]
    assert after > 0.75  # of 40 pairs, of which chance ranks 20
