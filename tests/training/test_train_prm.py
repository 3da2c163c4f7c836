"""The example trainer as users start it: from a launch script, in two processes, resumed."""

import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from failures import tiny
from support import ROOT, example, started, sweep, write_rows
from transformers import Qwen2ForCausalLM

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
def model_folder(tmp_path_factory) -> Path:
    """A tiny random model, saved."""
    folder = tmp_path_factory.mktemp("model")
    tiny.causal(151936, hidden_size=32, num_hidden_layers=1).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def build(built, tmp_path_factory) -> Path:
    """Of rows with soft ratings, with a test split."""
    data = write_rows(tmp_path_factory.mktemp("rated") / "soft.jsonl", solutions(40))
    options = ("--layout", "ragged", "--test-size", 0.3, "--for", "transformers")
    return built("prm", data, "--model", "qwen2-1.5b", *options)


SETTINGS = (
    "--learning_rate 0.01 --per_device_train_batch_size 4 --per_device_eval_batch_size 5 "
    "--logging_steps 1 --report_to none --disable_tqdm true --use_cpu true"
)


@sweep(1)
@pytest.mark.parametrize("processes", [1, 2])
def test_every_rated_step_is_evaluated(processes, build, pipeline, model_folder, tmp_path):
    """Rows have different numbers of steps, and no batch size divides them: none is lost or told
    twice, and every process ends with the same figures. One process is the launch script's."""
    pipeline("overlay", model_folder, "-o", "over", "--build", build).ended()
    given = "--output_dir out --max_steps 3 --eval_strategy steps --eval_steps 3"
    start: tuple[object, ...] = ("sh", build / "launch" / "transformers.sh", "over")
    if processes > 1:
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
        start = (*torchrun, "--nproc_per_node", processes, PROGRAM, "--build", build)
        given += " --model_name over --ddp_backend gloo"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = (*start, *given.split(), *SETTINGS.split())
    done = started(*words, folder=tmp_path, env={**os.environ, "PATH": path}).ended()
    found = re.search(r"'eval_step_accuracy': '?([\d.]+)", done.out)
    assert found, done.out
    said = float(found[1])

    flatten = example("train_prm").flatten
    named = json.loads((build / "manifest.json").read_bytes())["model"]
    model = Qwen2ForCausalLM.from_pretrained(tmp_path / "out").eval()
    right = rated = 0
    for row in load_from_disk(str(build))["test"]:
        batch = flatten([row])
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"]).logits[0, batch["logits_to_keep"]]
        better = logits[:, named["good_token_id"]] > logits[:, named["bad_token_id"]]
        right += int((better == (batch["labels"][0] >= 0.5)).sum())
        rated += len(better)
    assert said == pytest.approx(right / rated, abs=1e-4)


@pytest.fixture
def weights(build, model_folder, tmp_path, monkeypatch) -> Callable[..., dict[str, torch.Tensor]]:
    """Train in this process, into a folder; the weights."""

    def run(out: str, options: str) -> dict[str, torch.Tensor]:
        folders = ("--build", build, "--model_name", model_folder, "--output_dir", tmp_path / out)
        words = ("train_prm.py", *folders, *SETTINGS.split(), *options.split())
        monkeypatch.setattr(sys, "argv", [*map(str, words)])
        example("train_prm").main()
        return Qwen2ForCausalLM.from_pretrained(tmp_path / out).state_dict()

    return run


def test_a_resumed_run_gives_the_weights_of_one_without_interruption(weights, tmp_path):
    """Bit for bit: rows, their order, the optimizer and the rate go on where they stopped."""
    options = "--max_steps 6 --save_steps 3 --save_strategy steps"
    whole = weights("whole", options)
    resumed = weights(
        "resumed", f"{options} --resume_from_checkpoint {tmp_path}/whole/checkpoint-3"
    )
    again = weights("three", f"{options} --max_steps 3")
    assert all(whole[name].equal(resumed[name]) for name in whole)
    assert not all(whole[name].equal(again[name]) for name in whole)


def test_every_step_counts_as_much_in_batches_that_accumulate(weights):
    """Four batches of two rows change the weights as one of eight rows does."""
    options = "--max_steps 2 --optim sgd --learning_rate 1 --max_grad_norm 0"
    together = weights("together", f"{options} --per_device_train_batch_size 8")
    parts = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4"
    apart = weights("apart", f"{options} {parts}")
    for name in together:
        torch.testing.assert_close(apart[name], together[name], rtol=1e-4, atol=1e-6)
