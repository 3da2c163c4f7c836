"""A PRM on Qwen whose labels do not line up: the step tag is not the token that it looks like.

Two rules that one trainer had, version after version. The first tokenized two texts, one with tags
and one with ratings, and asserted that they are as long: on Qwen they are not. The later one
searches for the id of the bare tag, which Qwen's tokenizer never gives behind a blank: no marker is
found, every label is ignored, the mean over nothing is not a number, and no weight moves.
"""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from failures import sums, tiny
from support import example, sweep
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, Trainer, TrainingArguments

TAG = "ки"
STEPS = 60
SHARES = {"counts": 0.9, "adds": 0.6, "guesses": 0.2}


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
    for number, row in enumerate(rows):
        marks = ["+" if good else "-" for good in row["labels"]]
        head = f"{number}: how many are there? "  # what asks the same is on one side of a split
        both = [
            head + "\n".join(f"{s} {m}" for s, m in zip(row["steps"], tags, strict=True))
            for tags in ([TAG] * len(marks), marks)
        ]
        found.append({"input": both[0], "label": both[1], "task": "counting"})
    return found


def _trainer(folder: Path, out: Path) -> Trainer:
    """The example's trainer over a build, with a tiny model."""
    packed = "seq_lengths" in load_from_disk(str(folder))["train"].column_names
    arguments = TrainingArguments(
        output_dir=str(out),
        per_device_train_batch_size=2 if packed else 8,
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
    return example("train_prm").trainer_for(folder, tiny.causal(151936), arguments)


def _aligned(tokenizer: Any, texts: tuple[str, str]) -> bool:
    """What the first rule asserts: as many tokens in the rated text as in the tagged one."""
    tagged, rated = (tokenizer.encode(text, add_special_tokens=False) for text in texts)
    return len(tagged) == len(rated)


def test_texts_that_align_by_character(build, figure):
    rows = _math_shepherd(_solutions(32, seed=0))
    folder = build("prm", rows, "--model", "qwen2-1.5b", "--layout", "ragged")
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    naive = sum(_aligned(tokenizer, (row["input"], row["label"])) for row in rows)
    ours = 0
    for row in load_from_disk(str(folder))["train"].to_list():
        both = zip(row["input_ids"], row["labels"], strict=True)
        rated = [token if label == -100 else label for token, label in both]
        texts = tokenizer.decode(row["input_ids"]), tokenizer.decode(rated)
        assert tokenizer.encode(texts[1], add_special_tokens=False) == rated
        ours += _aligned(tokenizer, texts)
    figure("rows of 32 whose tagged and rated texts have as many tokens", naive, ours)
    assert (naive, ours) == (0, 32)


def test_a_bare_tag_is_found_nowhere(build, figure):
    rows = _math_shepherd(_solutions(32, seed=0))
    folder = build("prm", rows, "--model", "qwen2-1.5b", "--layout", "ragged")
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
    placeholder = tokenizer.encode(TAG, add_special_tokens=False)[-1]
    rewards = tokenizer.convert_tokens_to_ids(["+", "-"])
    batches = [tokenizer(row["input"], return_tensors="pt") for row in rows]
    found = sum(int((batch["input_ids"] == placeholder).sum()) for batch in batches)

    def loss_of(model: Any, batch: Any) -> torch.Tensor:
        at = batch["input_ids"] == placeholder
        chances = model(input_ids=batch["input_ids"]).logits[at][:, rewards]
        return cross_entropy(chances, at.new_zeros(int(at.sum()), dtype=torch.long))

    model = tiny.causal(len(tokenizer))
    before = [weight.clone() for weight in model.parameters()]
    losses = tiny.train(model, tiny.forever(batches), 4, loss_of)
    moved = sum(not a.equal(b) for a, b in zip(before, model.parameters(), strict=True))
    trained = json.loads((folder / "manifest.json").read_bytes())["tokens"]["trained"]
    figure("step markers of 96 that get a label", found, trained)
    figure("loss over them", f"{losses[-1]}; no weight moves", "falls")
    assert found == moved == 0
    assert all(map(math.isnan, losses))
    assert trained == 96


@sweep(1)
@pytest.mark.parametrize("layout", ["packed", "padded", "ragged"])
def test_steps_are_learned(layout, build, figure, tmp_path):
    rows = _math_shepherd(_solutions(200, seed=0))
    options = ("--layout", layout, "--max-length", 256, "--test-size", 0.2)
    trainer = _trainer(build("prm", rows, "--model", "qwen2-1.5b", *options), tmp_path / "out")
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    figure(
        f"held-out steps rated rightly, {layout} rows",
        f"{before['eval_step_accuracy']:.2f} (untrained)",
        f"{after['eval_step_accuracy']:.2f}",
    )
    assert after["eval_loss"] < before["eval_loss"]
    assert after["eval_step_accuracy"] > 0.9


@sweep(1)
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_soft_ratings_are_learned_as_shares(layout, build, figure, tmp_path):
    draw = random.Random(0)
    rows = []
    for number in range(200):
        verbs = [draw.choice(list(SHARES)) for _ in range(3)]
        steps = [f"{draw.choice(sums.NAMES)} {v} {draw.choice(sums.THINGS)}." for v in verbs]
        labels = [SHARES[verb] for verb in verbs]
        rows.append({"prompt": f"{number}: how many?", "completions": steps, "labels": labels})
    options = ("--layout", layout, "--max-length", 256, "--test-size", 0.2)
    trainer = _trainer(build("prm", rows, "--model", "qwen2-1.5b", *options), tmp_path / "out")
    trainer.train()
    found = trainer.predict(trainer.eval_dataset)
    rated = found.label_ids != -100
    wanted = torch.tensor(found.label_ids[rated])
    given = torch.tensor(found.predictions[rated]).sigmoid()
    rounded, error = ((x - wanted).abs().mean().item() for x in (wanted.round(), given))
    figure(
        f"mean error of the scores of held-out soft ratings, {layout} rows",
        f"{rounded:.2f} (ratings rounded)",
        f"{error:.2f}",
    )
    assert error < 0.06 < rounded
    for share in SHARES.values():
        assert given[wanted.isclose(torch.tensor(share))].mean() == pytest.approx(share, abs=0.1)
