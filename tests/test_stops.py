"""The stop contract: what is written, and ``pipeline stops`` over servers and model folders."""

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rows import turns
from stub_server import Stub, serve
from support import raised, writable, write_rows
from tokenizers import AddedToken, Tokenizer
from transformers import GenerationConfig

from pipeline.serving import serving
from pipeline.serving.declared import KINDS, prompts, read
from pipeline.serving.examine import StopRun, examine
from stages import errors, profile
from stages.tokenizers import probes
from stages.tokenizers.profiles import all_profiles, template

TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object"}}}
BAD_TEMPLATE = template("qwen2").replace("<|im_end|>", "")


def rows() -> list[dict[str, Any]]:
    """Single questions, two exchanges, and questions with a tool."""
    found: list[dict[str, Any]] = []
    for number in range(12):
        asked = ("user", f"{'How many? ' * (1 + number % 5)}{number}")
        exchange = turns(asked, ("assistant", f"They are {number}."))
        tools = {"tools": [TOOL]} if number % 4 == 2 else {}
        found.append({"messages": exchange * (1 + number % 2), **tools})
    return found


@pytest.fixture(scope="module")
def folder(built, tmp_path_factory) -> Path:
    """A build of such rows, packed, with a template that prints tools."""
    data = write_rows(tmp_path_factory.mktemp("stops") / "d.jsonl", rows())
    printing = data.with_name("qwen2_5.jinja")
    printing.write_text(template("qwen2_5"), "utf-8")
    return built("sft", data, "--chat-template", printing)


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    """The build's."""
    return Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))


@pytest.fixture
def stub(tokenizer, folder) -> Stub:
    """A sound server."""
    config = json.loads((folder / "tokenizer" / "tokenizer_config.json").read_bytes())
    return Stub(tokenizer, config["chat_template"])


def codes(stub: Stub, folder: Path, **wanted: Any) -> dict[str, str]:
    """What is found of a server: where each fault is."""
    with serve(stub) as url:
        found = examine(StopRun(url, folder, prompts=2, **wanted))
    return {finding.code: finding.where for finding in found.findings if finding.fault}


def test_prompts_are_the_trained_ones(folder):
    """Every kind, each ending where its answer starts; a batch has several lengths."""
    found = prompts(read(folder), 2)
    assert {prompt.kind for prompt in found} == set(KINDS)
    for prompt in found:
        assert prompt.text.endswith("<|im_start|>assistant\n")
        assert (prompt.text.count("<|im_start|>assistant") > 1) >= (prompt.kind == "multi-turn")
        assert ("# Tools" in prompt.text) >= (prompt.kind == "with tools")
    assert len({len(prompt.ids) for prompt in found if prompt.kind == KINDS[-1]}) > 1


def test_a_sound_server_ends_every_answer(stub, folder):
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


def test_a_server_that_waits_for_another_token(stub, folder):
    """The end of the turn is generated and passed over, or was never learnt: no stop id helps."""
    stub.stops = (151643,)
    assert list(codes(stub, folder)) == ["eos_not_in_generation_config"]
    stub.learnt = False
    assert list(codes(stub, folder)) == ["end_of_turn_not_learnt"]


def test_a_server_whose_template_ends_no_turn(stub, folder):
    """Its chat interface feeds and expects something else."""
    stub.template = BAD_TEMPLATE
    (code, where), *_ = codes(stub, folder).items()
    assert code == "template_without_end_of_turn"
    assert "chat template" in where
    stub.template = template("qwen2_5").replace("You are Qwen", "You are Q")
    assert list(codes(stub, folder, tokenizer_only=True)) == ["other_template"]


def test_a_server_with_another_tokenizer(stub, folder, tokenizer):
    """Seen by its ids, or by the number of tokens where it shows none."""
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if "im_" not in t["content"]]
    stub.tokenizer = Tokenizer.from_str(json.dumps(document))
    for stub.shows in (True, False):
        assert "other_tokenizer" in codes(stub, folder, tokenizer_only=True)


def test_a_server_that_takes_texts_only(stub, folder):
    """The same prompts as text, without options of other servers; what is not shown is noted."""
    stub.takes_ids = stub.shows = False
    with serve(stub) as url:
        found = examine(StopRun(url, folder, prompts=2))
    assert found.running_on() == 0
    assert {f.code for f in found.findings} == {"tokenizer_not_shown", "template_not_shown"}
    assert not any(finding.fault for finding in found.findings)
    assert isinstance(stub.seen[-1]["prompt"], list)
    assert all(isinstance(text, str) for text in stub.seen[-1]["prompt"])


def test_the_command_has_a_status(stub, folder, pipeline):
    """0 for a sound server; 3 beyond the limit, with the cause; 5 where nobody answers."""
    with serve(stub) as url:
        ran = pipeline("stops", url, "--build", folder, "--prompts", 1).ended()
        assert "0 of" in ran.out
        stub.stops = ()
        ran = pipeline("stops", url, "--build", folder, "--prompts", 1, "--json")
    assert ran.status == 3
    said = json.loads(ran.out)
    assert (said["passed"], said["share_running_on"]) == (False, 1.0)
    assert said["findings"][0]["code"] == "eos_not_in_generation_config"
    assert "generation_config.json" in said["findings"][0]["remedy"]
    with pytest.raises(errors.SurroundingsError, match="cannot be reached"):
        examine(StopRun("http://127.0.0.1:9/v1", folder))


@pytest.fixture
def checkpoint(folder, tmp_path) -> Path:
    """A model directory as the overlay would leave it, without weights."""
    model = tmp_path / "model"
    writable(shutil.copytree(folder / "tokenizer", model))
    (model / "config.json").write_text('{"vocab_size": 151936, "pad_token_id": 151643}')
    return model


def edit(path: Path, **changes: object) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changes}), "utf-8")


def files_of(model: Path, folder: Path) -> dict[str, str]:
    """Faults of a directory's files, by code, with the file's name."""
    found = examine(StopRun(str(model), folder, tokenizer_only=True))
    return {finding.code: Path(finding.where).name for finding in found.findings}


def test_files_that_agree_with_the_build(checkpoint, folder):
    """The build's own files are sound."""
    assert files_of(checkpoint, folder) == {}


@pytest.mark.slow
def test_each_file_that_keeps_a_model_from_stopping(checkpoint, folder):
    """The cause and the file, one by one."""
    said = "tokenizer_config.json"
    for code, name, changed in (
        ("eos_not_in_generation_config", "generation_config.json", {"eos_token_id": 151643}),
        ("pad_is_end_of_turn", said, {"pad_token": "<|im_end|>"}),
        ("template_without_end_of_turn", said, {"chat_template": BAD_TEMPLATE}),
        ("other_eos_token", said, {"eos_token": "<|endoftext|>"}),
    ):
        sound = (checkpoint / name).read_bytes()
        edit(checkpoint / name, **changed)
        assert files_of(checkpoint, folder) == {code: name}
        (checkpoint / name).write_bytes(sound)
    (checkpoint / "generation_config.json").unlink()
    edit(checkpoint / "config.json", eos_token_id=151643)
    assert files_of(checkpoint, folder) == {"eos_not_in_generation_config": "config.json"}
    document = json.loads((checkpoint / "tokenizer.json").read_bytes())
    document["added_tokens"].pop()
    (checkpoint / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    assert files_of(checkpoint, folder)["other_tokenizer"] == "tokenizer.json"


def test_without_torch_the_way_on_is_said(checkpoint, folder, tmp_path):
    """A checkpoint cannot answer here, and a folder that is none is refused."""
    words = "has no weights" if importlib.util.find_spec("torch") else "needs torch"
    raised(errors.UsageError, examine, StopRun(str(checkpoint), folder), says=words)
    with pytest.raises(errors.UsageError, match=r"has no config\.json"):
        examine(StopRun(str(tmp_path), folder, tokenizer_only=True))


@pytest.fixture(scope="module")
def searching(tokenizer_json) -> profile.TargetModel:
    """Qwen2 as someone's directory, whose tokenizer was given ``<search>``."""
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.add_tokens([AddedToken("<search>", normalized=False)])
    profile = replace(all_profiles()["qwen2-1.5b"], name="searching", ranks=None)
    return probes.bind(profile, tokenizer.to_str().encode(), with_steps=False)


def test_what_a_marker_is(step_model, searching):
    """Several tokens, a registered one, a word, and one that this build added.

    A token of a directory may be its maker's, so its id is not relied on.
    """
    for text, *wanted in (
        ("<search>", False, False, "string"),
        ("<|im_start|>", True, True, "string or id"),
        ("search", True, True, "string or id"),
        ("<|step|>", True, False, "string"),
    ):
        found = serving.marker(step_model, text)
        said = ("is_one_token", "stock_tokenizer_sees_it", "use")
        assert [found[name] for name in said] == wanted, text
    found = serving.marker(searching, "<search>")
    assert [found[name] for name in said] == [True, None, "string"]
    assert serving.marker(searching, "search")["stock_tokenizer_sees_it"] is True


def test_special_tokens_are_shown_to_whoever_stops_at_strings(model):
    """A special token appears in decoded text only where special tokens are not skipped."""
    found = serving.contract(model, ())
    engines = found["engines"]
    assert found["stop_strings"] == ["<|im_end|>", "<|endoftext|>"]
    assert found["stop_token_ids"] == [151645, 151643]
    for snippet in (engines["vllm"]["SamplingParams"], engines["trl_grpo"]["generation_kwargs"]):
        assert snippet["skip_special_tokens"] is False
        assert snippet["stop"] == found["stop_strings"]
        assert snippet["include_stop_str_in_output"] is False
    assert engines["openai"]["extra_body"]["stop_token_ids"] == [151645, 151643]
    assert "stop_strings" not in engines["transformers"]["GenerationConfig"]


def test_the_snippet_for_transformers_loads(model, tmp_path):
    """GenerationConfig takes it, and the emitted file says the same."""
    snippet = serving.contract(model, ("<search>",))["engines"]["transformers"]["GenerationConfig"]
    config = GenerationConfig(**snippet)
    assert config.stop_strings == ["<search>"]
    serving.write_tokenizer(tmp_path / "tokenizer", model)
    written = json.loads((tmp_path / "tokenizer" / "generation_config.json").read_text())
    assert written["eos_token_id"] == config.eos_token_id == [151645, 151643]
    assert written["pad_token_id"] == config.pad_token_id == 151643
