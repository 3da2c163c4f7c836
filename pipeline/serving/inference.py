"""What inference needs to know of a build: the generation prompt, and how long answers are.

The manifest, ``serving.json`` and the summary on the terminal say it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.inputs.recipe import Recipe
from pipeline.manifest.counts import AnswerTokens, Inference
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
