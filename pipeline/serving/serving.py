"""``serving.json``: the strings and ids at which servers and trainers must stop an answer.

Stop strings come first: they work with any tokenizer, also where a server's own one has other ids.
A string that is a registered special token is in the decoded text only if special tokens are not
skipped, so the snippets for the engines switch that off.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.inputs.recipe import Recipe
from pipeline.lines import templates
from pipeline.manifest import counts, dataset_files, json_records
from pipeline.shards import answers, gather
from stages.encoders import parsed
from stages.profile import ModelProfile, TargetModel
from stages.tokens.inference import NAMES, prompts

STRING, EITHER = "string", "string or id"
REGISTERED = "id, or the string where this build's tokenizer is loaded"


def stop_ids(model: TargetModel) -> list[int]:
    """Ids at which generation stops."""
    tokenizer = parsed(model.tokenizer_json)
    ids = [tokenizer.token_to_id(token) for token in model.profile.generation_eos]
    return [index for index in ids if index is not None]  # binding proved that none is missing


def _seen_by_stock(model: TargetModel, text: str) -> bool | None:
    """Whether the original model's tokenizer has this token; None if that cannot be known."""
    added = parsed(model.tokenizer_json).get_added_tokens_decoder().values()
    if text not in {token.content for token in added}:
        return True  # a word of the vocabulary itself
    if text in model.profile.added_tokens:
        return False
    if model.profile.ranks is None:
        return None  # the tokenizer of a model directory may have been extended before
    return model.step_id < 0 or text not in tuple(model.profile.step_tokens)


def marker(model: TargetModel, text: str) -> dict[str, Any]:
    """How the tokenizers write a custom stop marker, and so how to stop at it.

    Returns:
        ``text``, ``ids`` (of the emitted tokenizer), ``is_one_token``, ``stock_tokenizer_sees_it``
        (null where that cannot be known), ``use`` and ``why``.
    """
    ids = parsed(model.tokenizer_json).encode(text, add_special_tokens=False).ids
    one = len(ids) == 1
    stock = _seen_by_stock(model, text) if one else False
    if not one:
        why = f"it is written as {len(ids)} tokens, so no single id stands for it"
    elif stock:
        why = f"it is token {ids[0]} of the original tokenizer too"
    else:
        why = f"its id {ids[0]} is unknown to a server that loads the original tokenizer"
    use = EITHER if one and stock else STRING
    if text in model.profile.added_tokens:
        use, why = REGISTERED, f"{why}, which decodes it to nothing and cannot write it in a prompt"
    return {
        "text": text,
        "ids": ids,
        "is_one_token": one,
        "stock_tokenizer_sees_it": stock,
        "use": use,
        "why": why,
    }


def _said(about: str, **values: object) -> str:
    """What ``serving.jinja`` says about one thing."""
    words: Any = templates(Path(__file__).parent).get_template("serving.jinja").module
    text: str = getattr(words, about)(**values)
    return text


def _engines(
    model: TargetModel, strings: list[str], ids: list[int], keep: bool, longest: int | None
) -> dict[str, Any]:
    """A ready snippet per engine."""
    special = any(text in model.controls for text in strings)
    generation: dict[str, Any] = {"eos_token_id": stop_ids(model), "pad_token_id": model.pad_id}
    if longest is not None:
        generation["max_new_tokens"] = longest
    custom = [text for text in strings if text not in model.profile.generation_eos]
    if custom:
        generation["stop_strings"] = custom
    said = _said(
        "engines",
        stops={"stop": strings, "stop_token_ids": ids, "include_stop_str_in_output": keep},
        shown={"skip_special_tokens": False} if special else {},
        room={} if longest is None else {"max_tokens": longest},
        longest=longest,
        generation=generation,
    )
    found: dict[str, Any] = json.loads(said)
    return found


def contract(
    model: TargetModel, stops: tuple[str, ...], room: counts.AnswerTokens | None = None
) -> dict[str, Any]:
    """``serving.json``.

    Args:
        stops: custom stop markers, in the order of ``--stop``.
        room: tokens of the trained answers; None if they were not measured.
    """
    profile = model.profile
    names = ("step_token", "good_token", "bad_token")
    steps = dict(zip(names, profile.step_tokens, strict=True)) if model.step_id >= 0 else {}
    strings = list(dict.fromkeys((*stops, *profile.generation_eos)))
    own = model.added_ids
    ids = [*stop_ids(model), *(own[text] for text in dict.fromkeys(stops) if text in own)]
    return {
        "stop_strings": strings,
        "stop_token_ids": ids,
        "include_stop_str_in_output": bool(stops),
        "eos_token_id": model.eos_id,
        "end_of_turn": profile.end_of_turn,
        "end_of_turn_id": model.end_of_turn_id,
        "pad_token_id": model.pad_id,
        "max_new_tokens": json_records.as_json(room) if room else None,
        "added_tokens": {token: model.controls[token] for token in steps.values()} | own,
        "needs_this_tokenizer": json.loads(_said("needs_tokenizer")) if own else {},
        **steps,
        "markers": [marker(model, text) for text in dict.fromkeys(stops)],
        # an encoder generates nothing that could be stopped
        "engines": {}
        if profile.pair
        else _engines(model, strings, ids, keep=bool(stops), longest=room.max if room else None),
    }


def as_text(serving: Mapping[str, Any]) -> str:
    """The lines of ``pipeline doctor`` for ``serving.json``; none for encoders."""
    return _said("text", said=serving).rstrip("\n") if serving["engines"] else ""


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
    dataset_files.write_json(folder / "tokenizer_config.json", _config(model))
    if model.profile.pair is None:  # an encoder generates nothing
        generation = {"eos_token_id": stop_ids(model), "pad_token_id": model.pad_id}
        dataset_files.write_json(folder / "generation_config.json", generation)


# What inference needs to know of a build: the generation prompt, and how long answers are.
#
# The manifest, ``serving.json`` and the summary on the terminal say it.


def of_build(
    recipe: Recipe, shards: Sequence[gather.ShardReport]
) -> tuple[counts.Inference | None, counts.AnswerTokens | None]:
    """The manifest's ``inference`` and ``max_new_tokens``, from the answers of each shard."""
    counted = sum((shard.answers for shard in shards), answers.Answers())
    trained = not recipe.task.kind.marks
    described = answers.described(counted, prompts(recipe.model)) if trained else None
    return described, answers.limits(counted)


def contract_of(recipe: Recipe, shards: Sequence[gather.ShardReport]) -> dict[str, Any]:
    """``serving.json`` of a build."""
    inference, room = of_build(recipe, shards)
    return contract(recipe.model, recipe.config.plan.stop, room) | {
        "chat_template": _template(inference),
        "repairs": [repair.sentence for repair in recipe.repairs],
    }


def _template(inference: counts.Inference | None) -> dict[str, Any] | None:
    """The template arguments for the trained prompts, in the form that each engine takes them."""
    if inference is None:
        return None
    used = {name: args for name, args in inference.modes.items() if inference.trained_turns[name]}
    return {
        "arguments": inference.arguments,
        "trained_turns": inference.trained_turns,
        "modes": {
            name: {"arguments": arguments, "engines": _template_arguments(name, arguments)}
            for name, arguments in used.items()
        },
    }


def _template_arguments(mode: str, arguments: Mapping[str, object]) -> object:
    said = _said(
        "arguments",
        given=arguments,
        as_json=json.dumps(arguments),
        keywords=", ".join(f"{name}={value!r}" for name, value in arguments.items()),
        thinks=mode == NAMES[True],
    )
    return json.loads(said)
