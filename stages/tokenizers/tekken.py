"""Mistral's Tekken tokenizers, converted from the vendor's own ``tekken.json``.

The control tokens take the first ids and the ranks follow; a rank table larger than the model is
cut where the model's vocabulary ends.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from stages.models.profile import RankLayout
from stages.tokenizers import byte_bpe


def tokenizer_json(table: bytes, layout: RankLayout) -> bytes:
    """Build a ``tokenizer.json`` that gives the ids of the vendor's encoder.

    Raises:
        ValueError: the file is not in rank order.
    """
    document = json.loads(table)
    config = document["config"]
    controls = config["default_num_special_tokens"]
    size = config["default_vocab_size"] - controls
    tokens = []
    for number, entry in enumerate(document["vocab"][:size]):
        if entry["rank"] != number:
            raise ValueError(f"tekken file: entry {number} has rank {entry['rank']}")
        tokens.append(base64.b64decode(entry["token_bytes"]))
    spelled = byte_bpe.spell(tokens)
    names = [token.content for token in layout.added_tokens]
    names += [f"<SPECIAL_{index}>" for index in range(len(names), controls)]
    vocab = {name: index for index, name in enumerate(names)}
    vocab |= {spelled[token]: rank for rank, token in enumerate(tokens, controls)}
    pairs = byte_bpe.all_merges(tokens)
    model: dict[str, Any] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,
        "vocab": vocab,
        "merges": [[spelled[left], spelled[right]] for left, right in pairs],
    }
    level = byte_bpe.byte_level(False, True, False)
    token = type(layout.added_tokens[0])
    return byte_bpe.dump(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [byte_bpe.added_token(i, token(name)) for i, name in enumerate(names)],
            "normalizer": None,
            "pre_tokenizer": byte_bpe.split_by(config["pattern"], level),
            "post_processor": byte_bpe.leading_token(names[1], 1),
            "decoder": byte_bpe.byte_level(True, True, True),
            "model": model,
        }
    )
