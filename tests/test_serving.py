"""The stop contract: what is written works where it is said to, on both tokenizers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer

from pipeline.serving import serving
from pipeline.serving.tokenizer_files import write_tokenizer
from stages.probes import bind
from stages.profile import TargetModel
from stages.tokenizers.profiles import all_profiles

ANSWER = "I do not know this year. <search>population of Oslo"


@pytest.fixture(scope="module")
def searching(tokenizer_json: bytes) -> TargetModel:
    """Qwen2 as someone's directory, whose tokenizer was given ``<search>``."""
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.add_tokens([AddedToken("<search>", normalized=False)])
    profile = replace(all_profiles()["qwen2-1.5b"], name="searching", ranks=None)
    return bind(profile, tokenizer.to_str().encode(), with_steps=False)


def test_the_stop_string_works_where_the_id_does_not(
    searching: TargetModel, tokenizer_json: bytes, tmp_path: Path
) -> None:
    """A server that loads the original tokenizer never sees the id, and always the string."""
    found = serving.contract(searching, ("<search>",))
    marker = found["markers"][0]
    assert marker["is_one_token"]
    assert marker["use"] == "string"
    write_tokenizer(tmp_path / "modified", searching)
    (tmp_path / "original").mkdir()
    (tmp_path / "original" / "tokenizer.json").write_bytes(tokenizer_json)
    modified = AutoTokenizer.from_pretrained(tmp_path / "modified")
    original = AutoTokenizer.from_pretrained(tmp_path / "original")
    index = marker["ids"][0]
    assert modified.convert_tokens_to_ids("<search>") == index
    for tokenizer, sees_the_id in ((modified, True), (original, False)):
        ids = tokenizer(ANSWER, add_special_tokens=False)["input_ids"]
        assert (index in ids) is sees_the_id
        shown = tokenizer.decode(ids, skip_special_tokens=False)
        assert found["stop_strings"][0] in shown


@pytest.mark.parametrize(
    ("text", "one", "stock", "use"),
    [
        ("<search>", False, False, "string"),
        ("<|im_start|>", True, True, "string or id"),
        ("search", True, True, "string or id"),
        ("<|step|>", True, False, "string"),
    ],
)
def test_what_a_marker_is(
    step_model: TargetModel, text: str, one: bool, stock: bool, use: str
) -> None:
    """Several tokens, a registered one, a word, and one that this build added."""
    found = serving.marker(step_model, text)
    assert (found["is_one_token"], found["stock_tokenizer_sees_it"], found["use"]) == (
        one,
        stock,
        use,
    )


def test_nobody_knows_what_a_directory_was_given(searching: TargetModel) -> None:
    """A token of a directory may be its maker's, so its id is not relied on."""
    assert serving.marker(searching, "<search>")["stock_tokenizer_sees_it"] is None
    assert serving.marker(searching, "search")["stock_tokenizer_sees_it"] is True


def test_special_tokens_are_shown_to_whoever_stops_at_strings(model: TargetModel) -> None:
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


def test_the_snippet_for_transformers_loads(model: TargetModel, tmp_path: Path) -> None:
    """GenerationConfig takes it, and the emitted file says the same."""
    from transformers import GenerationConfig

    snippet = serving.contract(model, ("<search>",))["engines"]["transformers"]["GenerationConfig"]
    config = GenerationConfig(**snippet)
    assert config.stop_strings == ["<search>"]
    write_tokenizer(tmp_path / "tokenizer", model)
    written = json.loads((tmp_path / "tokenizer" / "generation_config.json").read_text())
    assert written["eos_token_id"] == config.eos_token_id == [151645, 151643]
    assert written["pad_token_id"] == config.pad_token_id == 151643
