"""``pipeline stops`` tells tiny models that never stop from one that does, and says why.

The same build, the same weights to begin with: once trained from the build, once by a collator that
masks padding by its id while the pad token is the one that ends a turn. Then the sound model again
with the files of the base model around it.
"""

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from failures import sums, tiny
from stub_server import serve_json
from support import Ran

from pipeline.torch_data.generate import Checkpoint

END_OF_TEXT, END = 0, 2  # of the small tokenizer
TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}


def _rows() -> list[dict[str, Any]]:
    """Single questions, two exchanges, and questions with a tool."""
    rows = []
    for number, row in enumerate(sums.questions(96)):
        turns = sums.chat(row)
        tools = {"tools": [TOOL]} if number % 3 == 2 else {}
        rows.append({"messages": turns * (2 if number % 3 == 1 else 1), **tools})
    return rows


def _trained(folder: Path, out: Path, masked: bool) -> Path:
    """A model directory with the build's files; ``masked``: no end of a turn is trained."""
    rows = load_from_disk(str(folder))["train"].select_columns(["input_ids", "labels"]).to_list()
    if masked:
        for row in rows:
            row["labels"] = [-100 if label == END else label for label in row["labels"]]
    model = tiny.learnt(rows)
    model.config.use_cache = True
    model.save_pretrained(str(out))
    shutil.copytree(folder / "tokenizer", out, dirs_exist_ok=True)
    return out


def _served(model: Path, stops: list[int]) -> AbstractContextManager[str]:
    """The checkpoint behind ``/v1/completions``, stopping at these ids unless told otherwise."""
    loaded = Checkpoint(model, END_OF_TEXT)

    def answer(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not body:
            return 200, {"data": [{"id": "tiny"}]}
        prompt = body.get("prompt")
        if not path.endswith("/completions") or isinstance(prompt, str):
            return 404, {}
        many = prompt if isinstance(prompt[0], list) else [prompt]
        wanted = [*stops, *body.get("stop_token_ids", [])]
        loaded._model.generation_config.eos_token_id = wanted
        found = loaded.answer(many, body["max_tokens"], body["temperature"], body["seed"])
        choices = [
            {"index": i, "text": "", "finish_reason": "stop" if ids[-1] in wanted else "length"}
            for i, ids in enumerate(found)
        ]
        return 200, {"choices": choices}

    return serve_json(answer)


def _codes(ran: Ran) -> dict[str, str]:
    found = json.loads(ran.out)["findings"]
    return {f["code"]: Path(f["where"]).name for f in found if f["fault"]}


def test_models_that_stop_and_models_that_do_not(build, pipeline, figure, tmp_path):
    folder = build("sft", _rows(), "--model", tiny.chatml(tmp_path / "base"), "--layout", "ragged")
    ours = _trained(folder, tmp_path / "ours", masked=False)
    naive = _trained(folder, tmp_path / "naive", masked=True)
    config = naive / "tokenizer_config.json"
    said = json.loads(config.read_bytes()) | {"pad_token": "<|im_end|>"}
    config.write_text(json.dumps(said), "utf-8")

    def stops(model: object, *more: object) -> Ran:
        return pipeline("stops", model, "--build", folder, "--prompts", 2, "--json", *more)

    good, bad = stops(ours), stops(naive)
    assert good.status == 0, good.out + good.err
    assert bad.status == 3
    assert _codes(good) == {}
    assert _codes(bad) == {"pad_is_end_of_turn": "tokenizer_config.json"}
    shares = [json.loads(ran.out)["share_running_on"] for ran in (bad, good)]
    figure("answers that pipeline stops sees run on", *(f"{share:.0%}" for share in shares))
    assert shares == [1.0, 0.0]
    ends = {place for row in json.loads(good.out)["counts"] for place in row["at"]}
    assert ends == {f"'<|im_end|>' ({END})"}

    generation = ours / "generation_config.json"
    sound = generation.read_bytes()
    generation.write_text(json.dumps({"eos_token_id": END_OF_TEXT}), "utf-8")
    waiting = stops(ours)
    assert waiting.status == 3
    assert _codes(waiting) == {"eos_not_in_generation_config": "generation_config.json"}
    assert any(one["passed_over"] for one in json.loads(waiting.out)["examples"])
    generation.write_bytes(sound)

    with _served(ours, [END]) as url:
        assert stops(url).status == 0
    with _served(ours, [END_OF_TEXT]) as url:
        assert set(_codes(stops(url))) == {"eos_not_in_generation_config"}
    with _served(naive, [END]) as url:
        assert set(_codes(stops(url))) == {"end_of_turn_not_learnt"}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_padded_batch_answers_as_its_prompts_do_alone(temperature, build, tmp_path):
    """Greedy answers are equal; sampled ones are drawn again alike for the same seed."""
    folder = build(
        "sft", _rows()[:8], "--model", tiny.chatml(tmp_path / "base"), "--layout", "ragged"
    )
    model = tiny.causal(tiny.VOCABULARY).to(torch.float64)
    model.config.use_cache = True
    model.save_pretrained(str(tmp_path / "model"))
    rows = load_from_disk(str(folder))["train"]["input_ids"]
    prompts = [row[: len(row) - 6] for row in rows][:3]
    loaded = Checkpoint(tmp_path / "model", END_OF_TEXT)
    together = loaded.answer(prompts, 5, temperature, seed=1)
    if temperature:
        assert loaded.answer(prompts, 5, temperature, seed=1) == together
        return
    assert [loaded.answer([one], 5, 0.0, seed=1)[0] for one in prompts] == together
