"""Encoders in a model directory: their framing of two texts is read off their own tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Encoding

from stages.encoders import parsed
from stages.errors import ModelError
from stages.profile import ModelProfile, PairFraming
from stages.profiles import template
from stages.tokenizers import directory

# Architectures by their exact "model_type"; True where positions start behind the pad id.
_TYPES = {
    "bert": False,
    "camembert": True,
    "distilbert": False,
    "electra": False,
    "roberta": True,
    "xlm-roberta": True,
}
_TOKENS = ("cls_token", "sep_token", "pad_token")


def _framing(encoding: Encoding, token_types: bool, offset: int, name: str) -> PairFraming:
    """What the tokenizer put around two one-word texts."""
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
        tuple(tokens[: prompt[0]]),
        tuple(tokens[prompt[-1] + 1 : answer]),
        tuple(tokens[texts[-1] + 1 :]),
        token_types,
        offset,
    )


def load(folder: Path, name: str, chat_template: str | None) -> tuple[ModelProfile, bytes] | None:
    """The profile that an encoder's files declare; None when it is none.

    Raises:
        ModelError: a file is missing, or does not say what a build must know.
    """
    model: dict[str, Any] = directory.read(folder, "config.json")
    kind = model.get("model_type")
    if kind not in _TYPES:
        return None
    content = directory.tokenizer_json(folder)
    config = directory.read(folder, "tokenizer_config.json")
    named = {key: directory.token_text(config.get(key)) for key in (*_TOKENS, "unk_token")}
    missing = [key for key in _TOKENS if not named[key]]
    if missing:
        raise ModelError(
            f"{folder}/tokenizer_config.json names no {' and no '.join(missing)}.",
            "Save the tokenizer again with transformers.",
        )
    tokenizer = parsed(content)
    pad = tokenizer.token_to_id(str(named["pad_token"]))
    offset = (1 if pad is None else pad + 1) if _TYPES[kind] else 0
    types = int(model.get("type_vocab_size", 1)) > 1
    separator = str(named["sep_token"])
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    return (
        ModelProfile(
            name=name,
            model_ids=(),
            chat_template=chat_template or template("pair"),
            end_of_turn=separator,
            eos_token=separator,
            pad_token=str(named["pad_token"]),
            generation_eos=(),
            vocab_size=size,
            embedding_size=int(model.get("vocab_size", size)),
            context_length=int(model.get("max_position_embeddings", 512)) - offset,
            is_base=False,
            padding_side="right",
            unk_token=named["unk_token"],
            pair=_framing(tokenizer.encode("x", "x"), types, offset, name),
        ),
        content,
    )
