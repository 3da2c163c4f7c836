"""Encoders in a model directory: the tokens around two texts are read off their tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from stages.errors import ModelError
from stages.models.encoders import parsed
from stages.models.profile import ModelProfile, PairFraming
from stages.profiles import template
from stages.tokenizers import directory

# The markers of turns in the pair template, see stages/profiles/roberta.toml.
TURN_MARKERS = ("System:", "User:", "Assistant:", "Tool:")
# Architectures by their exact "model_type": whether positions start after the pad id, and whether
# the model has token types as an input.
_TYPES = {
    "bert": (False, True),
    "camembert": (True, False),
    "distilbert": (False, False),
    "electra": (False, True),
    "roberta": (True, False),
    "xlm-roberta": (True, False),
}


def _framing(encoding: Encoding, token_types: bool, offset: int, name: str) -> PairFraming:
    """The tokens that the tokenizer puts around two texts of one word each."""
    owners = encoding.sequence_ids
    texts = [i for i, owner in enumerate(owners) if owner is not None]
    answer = owners.index(1) if 1 in owners else 0
    prompt = [i for i in texts if owners[i] == 0]
    if not answer or not prompt or prompt[-1] > answer or prompt[0] == 0 or owners[-1] is not None:
        raise ModelError(
            f"{name}: the tokenizer frames a pair of texts as {encoding.tokens}.",
            "An encoder's begins with a token to read at and ends in a separator.",
        )
    tokens = encoding.tokens
    return PairFraming(
        before=tuple(tokens[: prompt[0]]),
        between=tuple(tokens[prompt[-1] + 1 : answer]),
        after=tuple(tokens[texts[-1] + 1 :]),
        token_types=token_types,
        position_offset=offset,
    )


def _pad(config: dict[str, Any], model: dict[str, Any], tokenizer: Tokenizer, folder: Path) -> str:
    """The pad token, by its text or by the id that ``config.json`` gives.

    Raises:
        ModelError: there is none.
    """
    pad = directory.token_text(config.get("pad_token"))
    pad_id = model.get("pad_token_id")
    if pad is None and isinstance(pad_id, int) and 0 <= pad_id < 1 << 32:
        pad = tokenizer.id_to_token(pad_id)
    if not isinstance(pad, str):
        what = "names no pad token" if pad is None else f"names its pad token by a number, {pad!r}"
        raise ModelError(
            f"{folder} {what}.",
            'Set "pad_token" in its tokenizer_config.json, as the model was trained with it.',
        )
    return pad


def load(folder: Path, name: str, chat_template: str | None) -> tuple[ModelProfile, bytes] | None:
    """The profile that an encoder's files declare; None for other models.

    Raises:
        ModelError: a file is missing, or lacks what a build needs.
    """
    model: dict[str, Any] = directory.read(folder, "config.json")
    kind = model.get("model_type")
    if not isinstance(kind, str | None):
        raise ModelError(f"{folder / 'config.json'}: model_type is {kind!r:.40}, not a name.")
    if kind not in _TYPES:
        return None
    content = directory.tokenizer_json(folder)
    config = directory.read(folder, "tokenizer_config.json")
    tokenizer = parsed(content)
    pad = _pad(config, model, tokenizer, folder)
    unknown = directory.token_text(config.get("unk_token"))
    unknown = unknown or directory.read(folder, "tokenizer.json")["model"].get("unk_token")
    behind_pad, types = _TYPES[kind]
    offset = int(tokenizer.token_to_id(pad) or 0) + 1 if behind_pad else 0
    types = types and directory.number(model, "type_vocab_size", default=2, folder=folder) > 1
    framing = _framing(tokenizer.encode("x", "x"), token_types=types, offset=offset, name=name)
    separator = framing.after[-1]
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    positions = directory.number(model, "max_position_embeddings", default=512, folder=folder)
    return (
        ModelProfile(
            name=name,
            model_ids=(),
            chat_template=chat_template or template("pair"),
            end_of_turn=separator,
            eos_token=separator,
            pad_token=pad,
            generation_eos=(),
            vocab_size=size,
            embedding_size=directory.number(model, "vocab_size", default=size, folder=folder),
            context_length=positions - offset,
            is_base=False,
            padding_side="right",
            text_markers=() if chat_template else TURN_MARKERS,
            unk_token=unknown,
            pair=framing,
        ),
        content,
    )
