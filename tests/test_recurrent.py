"""Models with recurrent layers: what is one, and which trainers take packs of it."""

import inspect
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassError
from support import few, rows_to
from test_turn_ends import written_out
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pipeline import exports
from pipeline.exports import ExportFacts
from stages import errors, kinds
from stages.tokenizers import claims, profiles

# What the code of such a layer calls, whatever its name is.
_CALLED = re.compile(
    r"causal_conv1d|selective_scan|create_recurrent_attention_mask|rwkv_linear|recurrent_state|"
    r"LightningAttention"
)
HYBRID = {"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]}


@pytest.mark.parametrize("name", few(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), 12))
def test_a_configuration_shows_what_the_code_of_its_layers_does(name):
    """Over every language model that transformers has, by the source of its layers."""
    made = CONFIG_MAPPING[name]
    try:
        config = json.loads(made().to_json_string(use_diff=False))
    except (TypeError, ValueError, AttributeError, ImportError, StrictDataclassError):
        pytest.skip("its configuration has no defaults")
    folder = Path(inspect.getfile(made)).parent
    source = "".join(path.read_text("utf-8") for path in sorted(folder.glob("modeling_*.py")))
    expected = config["model_type"] if _CALLED.search(source) else ""
    assert claims.recurrent(config) == expected


# Families whose configurations transformers has; a model of mixed experts has its own.
_TYPES = {
    **{name: (name, f"{name}_moe") for name in ("qwen2", "qwen3")},
    "qwen2_5": ("qwen2",),
    "llama3": ("llama",),
    "llama4": ("llama4_text",),
    "bert": ("bert",),
    "gemma": ("gemma2", "gemma3_text"),
    "phi": ("phi3",),
    "smollm": ("llama",),
    "mistral": ("mistral", "mixtral"),
    "deepseek_r1_distill": ("qwen2", "llama"),
    "gpt_oss": ("gpt_oss",),
    "roberta": ("roberta",),
    "deepseek_v4": ("deepseek_v4",),
}


def test_no_built_in_profile_is_of_a_model_with_recurrent_layers():
    """By the configuration of its family; a profile of one would have to say so."""
    assert _TYPES.keys() == profiles.own_families().keys()
    for family, types in _TYPES.items():
        made = [CONFIG_MAPPING[name]() for name in types if name in CONFIG_MAPPING]
        found = {claims.recurrent(json.loads(one.to_json_string(use_diff=False))) for one in made}
        said = {profile.recurrent for profile in profiles.own_family(family)}
        assert said == (found or {""}) == {""}, family


KINDS = {"sft": kinds.CONVERSATION, "rm": kinds.PAIR, "prm": kinds.STEPS}


@pytest.mark.parametrize("name", exports.names())
def test_documents_share_a_row_only_where_a_trainer_keeps_them_apart(name):
    """A refusal names a layout in which none share one, which the trainer then takes; of a model
    that only attends nothing is refused for it."""
    export, refused, shared = exports.load(name), 0, 0
    types = ("", "qwen3_next", "qwen3_5", "nobody_knows_it")
    for (task, kind), recurrent in itertools.product(KINDS.items(), types):
        for layout in export.takes.get(kind, ()):
            facts = ExportFacts(task, layout, 4096, bound=None, recurrent=recurrent)
            why = export.reason(facts) or ""
            lost = bool(recurrent) and recurrent not in export.apart and export.shares(facts)
            assert ("run on into the next" in why) == lost
            refused, shared = refused + lost, shared + export.shares(facts)
            for ways in re.findall(r"--layout (.*)\.", why if lost else ""):
                for other in ways.split(" or "):
                    assert export.reason(replace(facts, layout=other)) is None
    assert bool(refused) == bool(shared)


def test_a_pack_that_the_model_cannot_keep_apart_is_refused_by_name(make, tmp_path, cache_dir):
    """Before anything is written; a build for no trainer says of each what it would do."""
    folder = written_out("qwen2-0.5b", tmp_path / "model", cache_dir)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **HYBRID}), "utf-8")
    data = rows_to(tmp_path / "data.jsonl", {"prompt": "Hi", "completion": "Yo"})
    asked: dict[str, Any] = {"model": f"{folder}/", "layout": "packed"}
    with pytest.raises(errors.UsageError, match=r"qwen3_next.*use --layout ragged or padded"):
        make("sft", data, **asked, trainer="transformers")
    make("sft", data, **asked | {"layout": "ragged"}, trainer="transformers")
    build = make("sft", data, "plain", **asked)
    manifest = json.loads((build / "manifest.json").read_text("utf-8"))
    assert manifest["model"]["recurrent"] == "qwen3_next"
    told = manifest["trainers"]
    assert not told["llamafactory"]["supported"]
    assert "qwen3_next" in told["llamafactory"]["detail"]
    assert told["trl"]["supported"]
