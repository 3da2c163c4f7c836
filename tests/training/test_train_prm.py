"""The example trainer as a user starts it: evaluated to the last marker, in one process or two."""

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from support import ROOT, Run, example, started
from transformers import Qwen2Config, Qwen2ForCausalLM

PROGRAM = ROOT / "examples" / "train_prm.py"
SHARES = {"counts": 0.9, "adds": 0.6, "guesses": 0.2}


def solutions(count: int) -> list[dict[str, Any]]:
    """Chains of one to five steps, each rated by its verb."""
    draw = random.Random(0)
    rows = []
    for number in range(count):
        verbs = [draw.choice(list(SHARES)) for _ in range(draw.randint(1, 5))]
        steps = [f"Ana {verb} {draw.randrange(99)} pens." for verb in verbs]
        labels = [SHARES[verb] for verb in verbs]
        rows.append({"prompt": f"{number}: how many?", "completions": steps, "labels": labels})
    return rows


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model, saved."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    folder = tmp_path_factory.mktemp("model")
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("processes", [1, 2])
def test_every_rated_step_is_evaluated(
    processes: int, pipeline: Run, model_folder: Path, tmp_path: Path
) -> None:
    """Rows have different numbers of steps, and no batch size divides them: none is lost or told
    twice, and every process ends with the same figures."""
    (tmp_path / "soft.jsonl").write_text("".join(json.dumps(r) + "\n" for r in solutions(40)))
    options = ("--layout", "ragged", "--test-size", 0.3, "--quiet")
    pipeline("run", "prm", "soft.jsonl", "--model", "qwen2-1.5b", *options, "-o", "prm").ended()
    pipeline("overlay", model_folder, "-o", "over", "--build", "prm").ended()
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    given = (
        "--build prm --model_name over --output_dir out --max_steps 3 --learning_rate 0.01 "
        "--per_device_train_batch_size 4 --per_device_eval_batch_size 5 --logging_steps 1 "
        "--eval_strategy steps --eval_steps 3 --report_to none --disable_tqdm true "
        "--use_cpu true --ddp_backend gloo"
    )
    done = started(sys.executable, *start, PROGRAM, *given.split(), folder=tmp_path).ended()
    found = re.search(r"'eval_step_accuracy': '?([\d.]+)", done.out)
    assert found, done.out
    said = float(found[1])

    flatten = example("train_prm").Flatten()
    named = json.loads((tmp_path / "prm" / "manifest.json").read_bytes())["model"]
    model = Qwen2ForCausalLM.from_pretrained(tmp_path / "out").eval()
    right = rated = 0
    for row in load_from_disk(str(tmp_path / "prm"))["test"]:
        batch = flatten([row])
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"]).logits[0, batch["marker_positions"]]
        better = logits[:, named["good_token_id"]] > logits[:, named["bad_token_id"]]
        right += int((better == (batch["marker_labels"] >= 0.5)).sum())
        rated += len(better)
    assert said == pytest.approx(right / rated, abs=1e-4)
