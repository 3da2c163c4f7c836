"""``pipeline stops`` over a stub of a server, and over the files of a model directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stub_server import Stub, serve
from support import Ran
from tokenizers import Tokenizer

from pipeline.serving.declared import prompts, read
from pipeline.serving.examine import StopRun, examine
from pipeline.serving.stops import KINDS
from stages.errors import SurroundingsError, UsageError
from stages.tokenizers.profiles import template

TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}
BAD_TEMPLATE = template("qwen2").replace("<|im_end|>", "")


def rows() -> list[dict[str, Any]]:
    """Single questions, two exchanges, and questions with a tool."""
    found: list[dict[str, Any]] = []
    for number in range(12):
        turns = [
            {"role": "user", "content": f"{'How many? ' * (1 + number % 5)}{number}"},
            {"role": "assistant", "content": f"They are {number}."},
        ]
        row: dict[str, Any] = {"messages": turns * (1 + number % 2)}
        if number % 4 == 2:
            row["tools"] = [TOOL]
        found.append(row)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    """A build of such rows, packed."""
    from pipeline.builder.build import build
    from pipeline.options.config import Config

    root = tmp_path_factory.mktemp("stops")
    data = root / "d.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows()), "utf-8")
    config = Config.of(
        "sft", (str(data),), "qwen2.5-7b", root / "b", workers=1, cache_dir=cache_dir
    )
    build(config, lambda what, done, total: None)
    return root / "b"


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    """The build's."""
    return Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))


@pytest.fixture
def stub(tokenizer: Tokenizer, folder: Path) -> Stub:
    """A sound server."""
    config = json.loads((folder / "tokenizer" / "tokenizer_config.json").read_bytes())
    return Stub(tokenizer, config["chat_template"])


def codes(stub: Stub, folder: Path, **wanted: Any) -> dict[str, str]:
    """What is found of a server: where each fault is."""
    with serve(stub) as url:
        found = examine(StopRun(url, folder, prompts=2, **wanted))
    return {finding.code: finding.where for finding in found.findings if finding.fault}


def test_prompts_are_the_trained_ones(folder: Path) -> None:
    """Every kind, each ending where its answer starts; a batch has several lengths."""
    build = read(folder)
    found = prompts(build, 2)
    assert {prompt.kind for prompt in found} == set(KINDS)
    for prompt in found:
        assert prompt.text.endswith("<|im_start|>assistant\n")
        assert (prompt.text.count("<|im_start|>assistant") > 1) >= (prompt.kind == "multi-turn")
        assert ("# Tools" in prompt.text) >= (prompt.kind == "with tools")
    assert len({len(prompt.ids) for prompt in found if prompt.kind == KINDS[-1]}) > 1


def test_a_sound_server_ends_every_answer(stub: Stub, folder: Path) -> None:
    """It is given ids, exactly the trained prompts, greedy and sampled."""
    with serve(stub) as url:
        found = examine(StopRun(url, folder, prompts=2))
    assert found.findings == []
    assert found.running_on() == 0
    assert {(row["prompts"], row["decoding"]) for row in found.counts()} == {
        (kind, way) for kind in KINDS for way in ("greedy", "sampled")
    }
    asked = [body["prompt"] for body in stub.seen]
    flat = [ids for one in asked for ids in (one if isinstance(one[0], list) else [one])]
    assert {tuple(ids) for ids in flat} == {p.ids for p in prompts(read(folder), 2)}
    assert not any("stop" in body or "stop_token_ids" in body for body in stub.seen)


def test_a_server_that_waits_for_another_token(stub: Stub, folder: Path) -> None:
    """The end of the turn is generated and passed over: its generation config lacks the id."""
    stub.stops = (151643,)
    found = codes(stub, folder)
    assert list(found) == ["eos_not_in_generation_config"]


def test_a_model_that_never_ends_its_answers(stub: Stub, folder: Path) -> None:
    """No stop id helps."""
    stub.learnt = False
    assert list(codes(stub, folder)) == ["end_of_turn_not_learnt"]


def test_a_server_whose_template_ends_no_turn(stub: Stub, folder: Path) -> None:
    """Its chat interface feeds and expects something else."""
    stub.template = BAD_TEMPLATE
    (code, where), *_ = codes(stub, folder).items()
    assert code == "template_without_end_of_turn"
    assert "chat template" in where
    stub.template = template("qwen2_5").replace("You are Qwen", "You are Q")
    assert list(codes(stub, folder, tokenizer_only=True)) == ["other_template"]


@pytest.mark.parametrize("shows", [True, False])
def test_a_server_with_another_tokenizer(
    shows: bool, stub: Stub, folder: Path, tokenizer: Tokenizer
) -> None:
    """Seen by its ids, or by the number of tokens where it shows none."""
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if "im_" not in t["content"]]
    stub.tokenizer, stub.shows = Tokenizer.from_str(json.dumps(document)), shows
    assert "other_tokenizer" in codes(stub, folder, tokenizer_only=True)


def test_a_server_that_takes_texts_only(stub: Stub, folder: Path) -> None:
    """The same prompts as text, without options of other servers; what is not shown is noted."""
    stub.takes_ids = stub.shows = False
    with serve(stub) as url:
        found = examine(StopRun(url, folder, prompts=2))
    assert found.running_on() == 0
    assert {f.code for f in found.findings} == {"tokenizer_not_shown", "template_not_shown"}
    assert not any(finding.fault for finding in found.findings)
    assert isinstance(stub.seen[-1]["prompt"], list)
    assert all(isinstance(text, str) for text in stub.seen[-1]["prompt"])


def test_the_command_has_a_status(stub: Stub, folder: Path, pipeline: Callable[..., Ran]) -> None:
    """0 for a sound server; 3 beyond the limit, with the cause; 5 where nobody answers."""
    with serve(stub) as url:
        ran = pipeline("stops", url, "--build", folder, "--prompts", 1)
        assert ran.status == 0, ran.out + ran.err
        assert "0 of" in ran.out
        stub.stops = ()
        ran = pipeline("stops", url, "--build", folder, "--prompts", 1, "--json")
    assert ran.status == 3
    said = json.loads(ran.out)
    assert (said["passed"], said["share_running_on"]) == (False, 1.0)
    assert said["findings"][0]["code"] == "eos_not_in_generation_config"
    assert "generation_config.json" in said["findings"][0]["remedy"]
    with pytest.raises(SurroundingsError, match="cannot be reached"):
        examine(StopRun("http://127.0.0.1:9/v1", folder))


@pytest.fixture
def checkpoint(folder: Path, tmp_path: Path) -> Path:
    """A model directory as the overlay would leave it, without weights."""
    model = tmp_path / "model"
    shutil.copytree(folder / "tokenizer", model)
    (model / "config.json").write_text('{"vocab_size": 151936, "pad_token_id": 151643}')
    return model


def edit(path: Path, **changes: object) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}), "utf-8")


def files_of(model: Path, folder: Path) -> dict[str, str]:
    """Faults of a directory's files, by code, with the file's name."""
    found = examine(StopRun(str(model), folder, tokenizer_only=True))
    return {finding.code: Path(finding.where).name for finding in found.findings}


def test_files_that_agree_with_the_build(checkpoint: Path, folder: Path) -> None:
    """The build's own files are sound."""
    assert files_of(checkpoint, folder) == {}


@pytest.mark.slow
def test_each_file_that_keeps_a_model_from_stopping(checkpoint: Path, folder: Path) -> None:
    """The cause and the file, one by one."""
    config, generation = checkpoint / "tokenizer_config.json", checkpoint / "generation_config.json"
    sound = {path: path.read_bytes() for path in (config, generation)}
    edit(generation, eos_token_id=151643)
    wanted = {"eos_not_in_generation_config": "generation_config.json"}
    assert files_of(checkpoint, folder) == wanted
    generation.unlink()
    edit(checkpoint / "config.json", eos_token_id=151643)
    assert files_of(checkpoint, folder) == {"eos_not_in_generation_config": "config.json"}
    generation.write_bytes(sound[generation])
    edit(config, pad_token="<|im_end|>")
    assert files_of(checkpoint, folder) == {"pad_is_end_of_turn": "tokenizer_config.json"}
    config.write_bytes(sound[config])
    edit(config, chat_template=BAD_TEMPLATE)
    wanted = {"template_without_end_of_turn": "tokenizer_config.json"}
    assert files_of(checkpoint, folder) == wanted
    config.write_bytes(sound[config])
    edit(config, eos_token="<|endoftext|>")
    assert files_of(checkpoint, folder) == {"other_eos_token": "tokenizer_config.json"}
    config.write_bytes(sound[config])
    document = json.loads((checkpoint / "tokenizer.json").read_bytes())
    document["added_tokens"].pop()
    (checkpoint / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    assert files_of(checkpoint, folder)["other_tokenizer"] == "tokenizer.json"


def test_without_torch_the_way_on_is_said(checkpoint: Path, folder: Path, tmp_path: Path) -> None:
    """A checkpoint cannot answer here, and a folder that is none is refused."""
    import importlib.util

    words = "has no weights" if importlib.util.find_spec("torch") else "needs torch"
    with pytest.raises(UsageError, match=words):
        examine(StopRun(str(checkpoint), folder))
    with pytest.raises(UsageError, match=r"has no config\.json"):
        examine(StopRun(str(tmp_path), folder, tokenizer_only=True))
