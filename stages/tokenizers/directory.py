"""A model directory's tokenizer, and the profile that its files declare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from stages.chat_template.template import Template
from stages.errors import ModelError, RowError
from stages.models.encoders import parsed
from stages.models.profile import ModelProfile
from stages.tokens import inference

_PADS = ("<|finetune_right_pad_id|>", "<pad>", "[PAD]", "<|endoftext|>", "<|PAD_TOKEN|>")
_ANSWER = "an answer"
_LARGEST = 1 << 31
_FETCH = "Compare it with the file of the model's page, or fetch it again."


def tokenizer_json(folder: Path) -> bytes:
    """The bytes of a directory's ``tokenizer.json``.

    Raises:
        ModelError: there is none.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(
            f"{folder} has no tokenizer.json.",
            "Save the tokenizer there: AutoTokenizer.from_pretrained(...).save_pretrained(DIR).",
        )
    return path.read_bytes()


def read(folder: Path, name: str) -> dict[str, Any]:
    """One of a model directory's JSON files; empty where there is none.

    Raises:
        ModelError: it is not a JSON object.
    """
    path = folder / name
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}.", _FETCH) from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object.", _FETCH)
    return content


def number(config: dict[str, Any], key: str, default: int, folder: Path) -> int:
    """A size that ``config.json`` gives.

    Raises:
        ModelError: it is not a whole number from 0 up.
    """
    value = config.get(key)
    if value is None:
        return default
    if type(value) is not int or not 0 <= value < _LARGEST:
        problem = f"{folder / 'config.json'}: {key} is {str(value)[:40]}, not a number of tokens."
        raise ModelError(problem, _FETCH)
    return value


def token_text(value: Any) -> str | None:
    """A token as a configuration spells it: a string, or an object with its ``content``."""
    return value.get("content") if isinstance(value, dict) else value


def template_source(folder: Path, config: dict[str, Any]) -> str:
    """The source of a directory's chat template.

    Raises:
        ModelError: it has none.
    """
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} is not UTF-8: {error}.", _FETCH) from error
    source = config.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = [one for one in source if isinstance(one, dict) and one.get("name") == "default"]
        source = named[0].get("template") if named else None
    if not isinstance(source, str):
        raise ModelError(f"{folder} has no chat template.", "Give one with --chat-template FILE.")
    return source


def _end_of_turn(template: Template, controls: list[str], name: str) -> str:
    """The first control token that the template prints after an answer."""
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _ANSWER}]
    try:
        tail = template.render(messages).rpartition(_ANSWER)[2]
    except RowError as error:
        raise ModelError(
            f"{name}: {error.detail}.", "Give another template with --chat-template."
        ) from error
    control = re.search("|".join(map(re.escape, sorted(controls, key=len, reverse=True))), tail)
    plain = tail.strip().split("\n")[0]
    if control is None and plain:
        return plain  # the probes check it
    if not controls or control is None:
        raise ModelError(
            f"{name}: the chat template prints no end-of-turn token after an answer.",
            "Name one with --eos, or give a template that does with --chat-template.",
        )
    return control.group()


def _pad_token(
    name: str, declared: object, added: set[str], barred: set[str], unknown: object
) -> str:
    """The declared pad token, or a common one that is registered; never one that ends a turn.

    The unknown token is the last choice, since ordinary text may give it.
    """
    usual = [token for token in (declared, *_PADS) if isinstance(token, str) and token in added]
    for token in sorted(usual, key=lambda token: token == unknown):
        if token not in barred:
            return token
    raise ModelError(
        f"{name}: the tokenizer has no pad token that differs from its eos token.",
        'Set "pad_token" in its tokenizer_config.json to an unused special token.',
    )


def load(
    folder: Path, name: str, chat_template: str | None, eos: str | None
) -> tuple[ModelProfile, bytes]:
    """Read ``tokenizer.json`` and declare a profile from the files beside it.

    Raises:
        ModelError: a file is missing, or lacks what a build needs.
    """
    content = tokenizer_json(folder)
    config, model = read(folder, "tokenizer_config.json"), read(folder, "config.json")
    document = read(folder, "tokenizer.json")
    parsed(content)  # raises unless the document below has the structure of a tokenizer
    added = {token["content"]: token for token in document.get("added_tokens", [])}
    controls = [text for text, token in added.items() if token["special"]]
    named = {key: token_text(config.get(key)) for key in ("bos_token", "eos_token", "pad_token")}
    tokens = {key: text for key, text in named.items() if text and isinstance(text, str)}
    source = chat_template or template_source(folder, config)
    unknown = token_text(config.get("unk_token")) or document["model"].get("unk_token")
    date = str(ModelProfile.__dataclass_fields__["date_string"].default)
    template = Template(source, date, **tokens)
    end_of_turn = eos or _end_of_turn(template, controls, name)
    stops = dict.fromkeys(t for t in (end_of_turn, tokens.get("eos_token")) if t)
    vocab_size = len(document["model"]["vocab"])
    top = max([vocab_size, *(token["id"] + 1 for token in added.values())])
    profile = ModelProfile(
        name=name,
        model_ids=(),
        chat_template=source,
        end_of_turn=end_of_turn,
        eos_token=end_of_turn,
        pad_token=_pad_token(
            name,
            declared=named["pad_token"],
            added=set(added),
            barred=set(stops),
            unknown=unknown,
        ),
        generation_eos=tuple(stops),
        vocab_size=vocab_size,
        embedding_size=number(model, "vocab_size", default=top, folder=folder),
        context_length=number(
            model, "max_position_embeddings", default=_LARGEST - 1, folder=folder
        ),
        is_base=False,
        bos_policy="template" if "bos_token" in tokens and "bos_token" in source else "none",
        template_variants=inference.variants(template),
        tokenizer_class=str(config.get("tokenizer_class", "PreTrainedTokenizerFast")),
        bos_token=tokens.get("bos_token"),
    )
    return profile, content
