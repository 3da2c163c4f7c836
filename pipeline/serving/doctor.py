"""Every probe over one model, and how a server has to stop it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline import tasks
from pipeline.inputs.recipe import Recipe
from pipeline.manifest.counts import AnswerTokens, Inference
from pipeline.manifest.dataset_files import write_json
from pipeline.serving import serving
from pipeline.serving.serving import stop_ids
from pipeline.shards import answers
from pipeline.shards.gather import ShardReport
from stages import probes
from stages.encoders import parsed
from stages.profile import ModelProfile, TargetModel, declare
from stages.tokenizers import claims
from stages.tokenizers.resolve import Overrides, resolve
from stages.tokens.inference import prompts


@dataclass(frozen=True, slots=True)
class ExaminedModel:
    """A model, the verdict of each probe, and where its tokenizer came from."""

    model: TargetModel
    source: str
    verdicts: dict[str, probes.ProbeVerdict]

    @property
    def sound(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts.values())


@dataclass(frozen=True, slots=True)
class ModelToExamine:
    """The model to examine; names as on the command line."""

    model: str
    task: str
    cache_dir: Path
    chat_template: str | None = None
    eos: str | None = None
    date: str | None = None
    system: str | None = None
    train_on: str = "assistant"
    fetch: bool = False


def examine(wanted: ModelToExamine, wide: bool = True) -> ExaminedModel:
    """Run every probe.

    Args:
        wide: run them on many texts; otherwise on the few that each build runs them on.

    Raises:
        ModelError: there is no such model, or its files do not describe one.
    """
    overrides = Overrides(wanted.chat_template, wanted.eos, wanted.date)
    resolved = resolve(wanted.model, wanted.cache_dir, overrides, fetch=wanted.fetch)
    with_steps = tasks.load(wanted.task).with_steps and resolved.profile.pair is None
    model = declare(resolved.profile, resolved.tokenizer_json, with_steps)
    subject = probes.ProbeSubject(
        model,
        stock=resolved.tokenizer_json,
        train_on=wanted.train_on,
        system=wanted.system,
        wide=wide,
    )
    folder = Path(wanted.model).expanduser()
    if resolved.source == "directory" and folder.is_dir():
        subject = replace(subject, claims=claims.read(folder))
    return ExaminedModel(model, resolved.source, probes.examine(subject))


def described(examined: ExaminedModel, stops: tuple[str, ...]) -> dict[str, Any]:
    """The result as ``--json`` prints it."""
    return {
        "model": examined.model.profile.name,
        "tokenizer": examined.source,
        "passed": examined.sound,
        "probes": {
            name: {"passed": v.passed, "detail": v.detail, "remedy": v.remedy}
            for name, v in examined.verdicts.items()
        },
        "serving": serving.contract(examined.model, stops) if examined.sound else None,
    }


# Writes ``tokenizer/``, which a trainer and a server of the build must load.


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


# What inference needs to know of a build: the generation prompt, and how long answers are.
#
# The manifest, ``serving.json`` and the summary on the terminal say it.


@dataclass(frozen=True, slots=True)
class Inferred:
    """The manifest's ``inference`` and ``max_new_tokens``."""

    inference: Inference | None
    max_new_tokens: AnswerTokens | None


def of_build(recipe: Recipe, shards: Sequence[ShardReport]) -> Inferred:
    """The inference part of the manifest, from the answers counted in each shard."""
    counts = answers.total(shard.answers for shard in shards)
    trained = not recipe.task.kind.marks
    return Inferred(
        answers.described(counts, prompts(recipe.model)) if trained else None,
        answers.limits(counts),
    )


def contract(recipe: Recipe, shards: Sequence[ShardReport]) -> dict[str, Any]:
    """``serving.json`` of a build."""
    inferred = of_build(recipe, shards)
    return serving.contract(recipe.model, recipe.config.plan.stop, inferred.max_new_tokens) | {
        "chat_template": _template(inferred.inference),
        "repairs": [repair.sentence for repair in recipe.repairs],
    }


def _template(inference: Inference | None) -> dict[str, Any] | None:
    """The template arguments for the trained prompts, in the form that each engine takes them."""
    if inference is None:
        return None
    used = {name: args for name, args in inference.modes.items() if inference.trained_turns[name]}
    return {
        "arguments": inference.arguments,
        "trained_turns": inference.trained_turns,
        "modes": {
            name: {"arguments": arguments, "engines": _engines(arguments)}
            for name, arguments in used.items()
        },
    }


def _engines(arguments: Mapping[str, bool]) -> dict[str, Any]:
    request = {"chat_template_kwargs": arguments}
    as_json = json.dumps(arguments)
    keywords = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return {
        "vllm": {
            "request": request,
            "serve": f"--default-chat-template-kwargs '{as_json}'",
            "LLM.chat": request,
        },
        "sglang": {"request": request},
        "transformers": "tokenizer.apply_chat_template(messages, add_generation_prompt=True, "
        f"{keywords})",
        "trl_grpo": {"GRPOConfig": request},
        "llama.cpp": {
            "serve": f"llama-server --jinja --chat-template-kwargs '{as_json}'",
            "request": request,
        },
        "ollama": {
            "request": {"think": next(iter(arguments.values()))},
            "note": "Ollama renders with the TEMPLATE of its Modelfile, not with this template: "
            "compare its prompt with the build's",
        },
        "openai": {"extra_body": request},
    }
