"""Writes ``tokenizer/``, which a trainer and a server of the build must load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.manifest.dataset_files import write_json
from pipeline.serving.serving import stop_ids
from stages.encoders import parsed
from stages.profile import ModelProfile, TargetModel

_FLAGS = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")


def _config(model: TargetModel) -> dict[str, Any]:
    profile = model.profile
    tokens = parsed(model.tokenizer_json).get_added_tokens_decoder()
    added: dict[str, dict[str, Any]] = {
        str(index): {flag: getattr(token, flag) for flag in _FLAGS}
        for index, token in sorted(tokens.items())
    }
    named = {profile.eos_token, profile.pad_token, profile.bos_token, profile.unk_token}
    named |= {token for token in _pair_config(profile).values() if isinstance(token, str)}
    extra = [t["content"] for t in added.values() if t["special"] and t["content"] not in named]
    return _pair_config(profile) | {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "additional_special_tokens": extra,
        "bos_token": profile.bos_token,
        "chat_template": profile.chat_template,
        "clean_up_tokenization_spaces": False,
        "eos_token": profile.eos_token,
        "errors": "replace",
        "model_max_length": profile.context_length,
        "pad_token": profile.pad_token,
        "padding_side": profile.padding_side,
        "split_special_tokens": False,
        "tokenizer_class": profile.tokenizer_class,
        "unk_token": profile.unk_token,
    }


def _pair_config(profile: ModelProfile) -> dict[str, Any]:
    """More keys of ``tokenizer_config.json``, for encoders."""
    if profile.pair is None:
        return {}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return {
        "cls_token": profile.pair.before[0],
        "sep_token": profile.end_of_turn,
        "model_input_names": inputs if profile.pair.token_types else [inputs[0], inputs[2]],
    }


def write_tokenizer(folder: Path, model: TargetModel) -> None:
    """``tokenizer/``: loads with ``AutoTokenizer.from_pretrained`` and gives our ids."""
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(model.tokenizer_json)
    write_json(folder / "tokenizer_config.json", _config(model))
    if model.profile.pair is None:  # an encoder generates nothing
        generation = {"eos_token_id": stop_ids(model), "pad_token_id": model.pad_id}
        write_json(folder / "generation_config.json", generation)
