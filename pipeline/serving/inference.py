"""What inference needs to know of a build: the generation prompt, and how long answers are.

The manifest, ``serving.json`` and the summary on the terminal say it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.manifest.counts import AnswerTokens, Inference
from pipeline.manifest.manifest import Manifest
from pipeline.manifest.model_record import RepairRecord
from pipeline.recipe.recipe import Recipe
from pipeline.serving import serving
from pipeline.shards import answers
from pipeline.shards.gather import ShardReport
from stages.tokens.inference import prompts


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


def lines(manifest: Manifest) -> list[str]:
    """Lines for the summary of a build."""
    summary: list[str] = []
    limits = manifest.max_new_tokens
    if limits:
        summary.append(
            f"answers   at most {limits.max} tokens, 99.9 % of them at most {limits.p999} "
            "(max_new_tokens in serving.json)"
        )
    inference = manifest.inference
    if inference:
        counts = ", ".join(f"{n} {name}" for name, n in inference.trained_turns.items() if n)
        summary.append(f"prompts   trained turns, by the prompt before them: {counts}")
        if inference.arguments:
            keywords = ", ".join(f"{k}={v}" for k, v in inference.arguments.items())
            summary.append(f"          at inference render with {keywords} (see serving.json)")
        if inference.mixed:
            summary += [
                "warning   answers with reasoning and without it are trained after different",
                "          prompts, and a server uses one of them: choose with --thinking on,",
                "          or with --reasoning strip --thinking off",
            ]
    added = manifest.model.added_tokens
    for text, index in added.items():
        summary.append(f"token     {text!r} is registered as {index}, in answers and in prompts")
    if added:
        summary.append("          every server must load this build's tokenizer (see serving.json)")
    for repair in manifest.model.repairs:
        summary.append(f"repaired  {_sentence(repair)}")
    return summary


def _sentence(repair: RepairRecord) -> str:
    from stages.tokenizers.repairs import Repair

    return Repair(
        file=repair.file, key=repair.key, declared=repair.declared, used=repair.used, why=repair.why
    ).sentence
