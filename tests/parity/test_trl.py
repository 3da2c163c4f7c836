"""TRL's trainers, unmodified, on builds made for them: what reaches the model is what is stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from parity.tiny import step_loss, tiny
from support import read_manifest
from transformers import AutoTokenizer

Build = Callable[..., Path]
NEWEST, LAST_PRM = "1.16.0", "1.13.0"
SAMPLE = 60


def rows_of(folder: Path) -> Any:
    """A sample of the training rows."""
    rows = load_from_disk(str(folder))["train"]
    return rows.select(range(min(SAMPLE, len(rows))))


def batches(trainer: Any) -> list[dict[str, Any]]:
    """What its own loader makes of all rows, in order."""
    return list(trainer.get_eval_dataloader())


def settings(tmp_path: Path, size: int, **more: Any) -> dict[str, Any]:
    """Arguments that all its configurations share."""
    return {
        "output_dir": str(tmp_path / "out"),
        "per_device_eval_batch_size": size,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "max_length": None,
        **more,
    }


def trainer_of(
    kinds: tuple[Any, Any], model: Any, folder: Path, tmp_path: Path, size: int, **more: Any
) -> Any:
    """A trainer over a sample of a build, which it is also evaluated on.

    Args:
        kinds: the classes of the trainer and of its arguments.
        size: rows a batch; ``more``: other arguments.
    """
    trainer, arguments = kinds
    rows = rows_of(folder)
    return trainer(
        model=model,
        args=arguments(**settings(tmp_path, size, **more)),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(str(folder / "tokenizer")),
    )


def test_packs_reach_the_model_with_positions_that_restart(peer, build, sources, tmp_path):
    """SFTTrainer, padding_free: ids and labels as stored, positions from 0 in every document."""
    trl = peer("trl", NEWEST)("trl")
    folder = build("sft", sources["sft"], "--for", "trl")
    rows, kinds = rows_of(folder), (trl.SFTTrainer, trl.SFTConfig)
    made = batches(trainer_of(kinds, tiny("CausalLM"), folder, tmp_path, 1, padding_free=True))
    assert len(made) == len(rows)
    for batch, row in zip(made, rows, strict=True):
        assert batch["input_ids"][0].tolist() == row["input_ids"]
        assert batch["labels"][0].tolist() == row["labels"]
        wanted = [place for length in row["seq_lengths"] for place in range(length)]
        assert batch["position_ids"][0].tolist() == wanted
        assert "attention_mask" not in batch


def test_single_rows_reach_the_model_whole(peer, build, sources, tmp_path):
    """SFTTrainer, padded: nothing is cut, nothing else is trained."""
    trl = peer("trl", NEWEST)("trl")
    folder = build("sft", sources["sft"], "--for", "trl", "--layout", "ragged")
    trainer = trainer_of((trl.SFTTrainer, trl.SFTConfig), tiny("CausalLM"), folder, tmp_path, 4)
    stored = iter(rows_of(folder))
    for batch in batches(trainer):
        for ids, mask, labels in zip(
            batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
        ):
            row, real = next(stored), mask.bool()
            assert ids[real].tolist() == row["input_ids"]
            assert labels[real].tolist() == row["labels"]
            assert (labels[~real] == -100).all()
    assert next(stored, None) is None


def test_pairs_reach_the_reward_model(peer, build, sources, tmp_path):
    """RewardTrainer: no row is dropped, both sides are whole, margins come along."""
    trl = peer("trl", NEWEST)("trl")
    source = Path(__file__).parents[2] / "sample_data" / "rm" / "pairs_margin.jsonl"
    for data in (sources["rm"], source):
        folder = build("rm", data, "--for", "trl")
        rows, kinds = rows_of(folder), (trl.RewardTrainer, trl.RewardConfig)
        model = tiny("SequenceClassification", num_labels=1)
        trainer = trainer_of(kinds, model, folder, tmp_path, 4)
        assert len(trainer.eval_dataset) == len(rows)
        seen = 0
        for batch in batches(trainer):
            count = len(batch["input_ids"]) // 2
            for place in range(count):
                row = rows[seen + place]
                for side, at in (("chosen", place), ("rejected", place + count)):
                    real = batch["attention_mask"][at].bool()
                    assert batch["input_ids"][at][real].tolist() == row[f"{side}_ids"]
                if "margin" in row:
                    assert batch["margin"][place].item() == pytest.approx(row["margin"])
            seen += count
        assert seen == len(rows)


def test_steps_reach_the_process_reward_model(peer, build, sources, tmp_path):
    """PRMTrainer of the last version that has one: a class at each step token."""
    prm = peer("trl", LAST_PRM)("trl.experimental.prm")
    folder = build("prm", sources["prm"], "--for", "trl")
    ours = load_from_disk(str(build("prm", sources["prm"], "--layout", "ragged")))["train"]
    rows = rows_of(folder)
    model = tiny("TokenClassification", num_labels=2)
    trainer = trainer_of((prm.PRMTrainer, prm.PRMConfig), model, folder, tmp_path, 4)
    seen = 0
    for batch in batches(trainer):
        mask = batch["attention_mask"].bool()
        for ids, labels, real in zip(batch["input_ids"], batch["labels"], mask, strict=True):
            row = ours[seen]
            assert ids[real].tolist() == row["input_ids"]
            classes = [-100] * len(row["input_ids"])
            for place, label in zip(row["step_positions"], row["step_labels"], strict=True):
                classes[place] = int(label)
            assert labels[real].tolist() == classes
            seen += 1
        with torch.no_grad():
            assert torch.isfinite(model(**batch).loss)
    assert seen == len(rows)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_the_example_has_the_loss_and_the_gradients_of_its_process_reward_trainer(
    peer, build, sources, tmp_path, layout
):
    """All rows in one batch, the classes' weights as rows of the output embedding."""
    prm = peer("trl", LAST_PRM)("trl.experimental.prm")
    folder = build("prm", sources["prm"], "--for", "trl")
    classifier = tiny("TokenClassification", num_labels=2).eval()
    torch.nn.init.zeros_(classifier.score.bias)
    kinds = (prm.PRMTrainer, prm.PRMConfig)
    trainer = trainer_of(kinds, classifier, folder, tmp_path, SAMPLE)
    (batch,) = batches(trainer)
    theirs = trainer.compute_loss(classifier, batch)
    theirs.backward()

    ours = build("prm", sources["prm"], "--layout", layout)
    named = read_manifest(ours)["model"]
    tokens = [named["bad_token_id"], named["good_token_id"]]
    model = tiny("CausalLM", tie_word_embeddings=False).eval()
    model.model.load_state_dict(classifier.model.state_dict())
    with torch.no_grad():
        model.lm_head.weight[tokens] = classifier.score.weight
    loss = step_loss(ours, model, rows_of(ours).to_list(), tmp_path)
    loss.backward()
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-5)
    expected = dict(classifier.model.named_parameters())
    for name, weight in model.model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name].grad, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(model.lm_head.weight.grad[tokens], classifier.score.weight.grad)
