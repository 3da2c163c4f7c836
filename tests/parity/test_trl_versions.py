"""TRL 0.15 to 0.17, which MedicalGPT and open-r1's first recipes ran: the program of a build, in a
process of its own, under each; what its own loader gives the model is what is stored."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from parity.releases import overlaid, peer_folder
from support import SAMPLES, started, sweep

Build = Callable[..., Path]
PAIRS = SAMPLES / "rm" / "pairs_margin.jsonl"

# In the place of training: all batches of its own loader, and what its own loss makes of each.
_RECORD = """
import runpy, sys
import torch, transformers

def train(self, *given, **named):
    self.model.eval()
    seen = []
    for batch in self.get_train_dataloader():
        kept = {k: v.clone() for k, v in batch.items() if isinstance(v, torch.Tensor)}
        with torch.no_grad():
            seen.append({**kept, "loss": self.compute_loss(self.model, batch)})
    torch.save(seen, sys.argv[1])

transformers.Trainer.train = train
transformers.Trainer.save_model = lambda *given, **named: None
script = sys.argv[2]
sys.argv[1:], out = sys.argv[3:], sys.argv[1]
train.__globals__["sys"] = type("argv", (), {"argv": ["", out]})
runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture
def batches(pipeline, tmp_path) -> Callable[..., list[dict[str, Any]]]:
    """Of the program that a build's launch script starts, under one release of TRL."""

    def found(version: str, folder: Path, *options: str) -> list[dict[str, Any]]:
        root = peer_folder(f"trl-{version}")
        model = overlaid(pipeline, tmp_path, folder)
        shared = ["--use_cpu", "true", "--bf16", "false", "--report_to", "none"]
        out, program = tmp_path / "seen.pt", folder / "launch" / "train_trl.py"
        words = (sys.executable, "-c", _RECORD, out, program, folder, model, *shared, *options)
        variables = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
        started(*words, folder=tmp_path, env=variables).ended()
        made: list[dict[str, Any]] = torch.load(out)
        assert not list(folder.rglob("cache-*"))  # beside the shards
        return made

    return found


def documents(made: list[dict[str, Any]], labels: str = "labels") -> list[Any]:
    """Ids and labels of every row where the mask is 1, sorted; nothing else is trained."""
    rows = []
    for batch in made:
        for ids, mask, wanted in zip(
            batch["input_ids"], batch["attention_mask"].bool(), batch[labels], strict=True
        ):
            assert (wanted[~mask] == -100).all()
            rows.append((ids[mask].tolist(), wanted[mask].tolist()))
    return sorted(rows)


@sweep(1)
@pytest.mark.parametrize("version", ["0.15.2", "0.16.1", "0.17.0"])
def test_sft_rows_are_trained_by_their_labels(build, batches, version):
    """With a collator of their own these train every token of rows that have ids."""
    source = SAMPLES / "sft" / "chat.jsonl"
    folder = build("sft", source, "--for", "trl", "--layout", "ragged")
    made = batches(version, folder, "--per_device_train_batch_size", "4")
    stored = load_from_disk(str(folder))["train"]
    assert documents(made) == sorted((row["input_ids"], row["labels"]) for row in stored)
    assert all(torch.isfinite(batch["loss"]) for batch in made)


@sweep(1)
@pytest.mark.parametrize("version", ["0.15.2", "0.17.0"])
def test_pairs_are_read_under_their_old_names(build, batches, version):
    """No pair is dropped or cut; margins come along; the batch is the script's beginning."""
    folder = build("rm", PAIRS, "--for", "trl")
    made = batches(version, folder)
    stored = load_from_disk(str(folder))["train"]
    found = []
    for batch in made:
        assert 1 < len(batch["margin"]) <= 4 or batch is made[-1]
        for place, margin in enumerate(batch["margin"].tolist()):
            sides = [
                batch[f"input_ids_{side}"][place][batch[f"attention_mask_{side}"][place].bool()]
                for side in ("chosen", "rejected")
            ]
            found.append((*(ids.tolist() for ids in sides), pytest.approx(margin)))
    wanted = sorted((row["chosen_ids"], row["rejected_ids"], row["margin"]) for row in stored)
    assert wanted == sorted(found, key=lambda row: row[:2])


@sweep(1)
@pytest.mark.parametrize("version", ["0.15.2", "0.17.0"])
def test_steps_are_classes_at_their_step_tokens(build, batches, version):
    """Its PRMTrainer, which stood beside the others then."""
    folder = build("prm", SAMPLES / "prm" / "math_shepherd.jsonl", "--for", "trl")
    made = batches(version, folder)
    stored = load_from_disk(str(folder))["train"]
    assert documents(made) == sorted((row["input_ids"], row["labels"]) for row in stored)
    assert all(torch.isfinite(batch["loss"]) for batch in made)
