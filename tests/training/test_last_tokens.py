"""Tiny models of the kinds whose turns end in more than one token stop where each turn ends."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from failures import tiny
from peers import shipped_template
from small_tokenizers import template_folder
from support import rows_to, sweep
from transformers import AutoTokenizer, Glm4MoeConfig, GptOssConfig

from pipeline.torch_data import Pad
from pipeline.torch_data.generate import Checkpoint
from stages.chat_template import turn_ends
from stages.tokenizers.profiles import all_profiles

SIZE = {
    "vocab_size": 640,
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "num_experts_per_tok": 2,
    "use_cache": False,
}
STEPS = 160


def _gpt_oss(folder: Path) -> Path:
    """A directory of its profile's template."""
    known = all_profiles()["gpt-oss-20b"]
    tokens = {"eos_token": known.eos_token, "pad_token": known.pad_token}
    return template_folder(folder, known.chat_template, **tokens)


def _glm(folder: Path) -> Path:
    """A directory of the vendor's template."""
    return template_folder(folder, shipped_template("GLM-4.6"))


def _dialogue() -> dict[str, Any]:
    """A call, an answer behind its result, and an answer to another question, with reasoning."""
    told = {"reasoning_content": "Hm."}
    called = [turn_ends.asks("What is it?"), turn_ends.calls("quince", **told)]
    answered = [turn_ends.result("a fruit", 0), turn_ends.answers("It is a fruit.", **told)]
    further = [turn_ends.asks("Is it sour?"), turn_ends.answers("Yes.", **told)]
    return {"messages": called + answered + further, "tools": turn_ends.TOOLS}


def _trained_runs(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Where each run of trained tokens begins and ends."""
    runs, at = [], 0
    for trained, group in itertools.groupby(row["labels"], key=lambda label: label != -100):
        before, at = at, at + len(list(group))
        runs += [(before, at)] * trained
    return runs


@sweep(1)
@pytest.mark.parametrize(
    ("model", "config", "ends"),
    [
        (
            _gpt_oss,
            GptOssConfig(**SIZE, num_local_experts=4),
            ["<|call|>", "<|return|>", "<|return|>"],
        ),
        (
            _glm,
            Glm4MoeConfig(**SIZE, n_routed_experts=4, moe_intermediate_size=32),
            ["<|observation|>", "<|user|>", "<|user|>"],
        ),
    ],
    ids=["gpt-oss", "glm"],
)
def test_a_trained_model_stops_where_each_turn_ends(model, config, ends, make, tmp_path):
    """Greedily, from the prompt of every trained turn, with the build's own stop ids."""
    data = rows_to(tmp_path / "data.jsonl", _dialogue())
    build = make("sft", data, model=f"{model(tmp_path / 'base')}/", layout="ragged")
    rows = load_from_disk(str(build))["train"].to_list()
    learner = tiny.made(config)
    batch = Pad(config.vocab_size - 1, "right")(rows)
    tiny.train(learner, itertools.repeat(batch), STEPS, rate=1e-2)
    learner.config.use_cache = True
    learner.save_pretrained(str(tmp_path / "trained"))
    shutil.copytree(build / "tokenizer", tmp_path / "trained", dirs_exist_ok=True)

    ids = AutoTokenizer.from_pretrained(str(build / "tokenizer")).convert_tokens_to_ids(ends)
    checkpoint = Checkpoint(tmp_path / "trained", config.vocab_size - 1)
    assert set(ids) <= set(checkpoint.stops)
    found = []
    for row in rows:
        for start, end in _trained_runs(row):
            prompt, wanted = row["input_ids"][:start], row["input_ids"][start:end]
            (answer,) = checkpoint.answer([prompt], len(wanted) + 8, 0.0, seed=0)
            assert answer == wanted
            found.append(answer[-1])
    assert found == ids
