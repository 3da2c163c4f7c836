"""The Qwen tokenizers, rebuilt byte for byte from the rank table that an installed package ships.

The vendor's ``tokenizer.json`` is a function of that table and a few constants, so nothing is
downloaded: the file is rebuilt once, and refused unless its sha256 is the vendor's. The list of
merges is computed from the table: for each token, the two tokens of lower rank that it was last
joined from.
"""

from __future__ import annotations

from typing import Any

from stages.models.profile import RankLayout
from stages.tokenizers import byte_bpe

# The split of text into pre-tokens, as the vendor's file spells it.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_json(table: bytes, layout: RankLayout) -> bytes:
    """Build the vendor's ``tokenizer.json`` from the rank table's bytes.

    Raises:
        ValueError: the table is not in rank order.
    """
    tokens = byte_bpe.parse_ranks(table)
    spelled = byte_bpe.spell(tokens)
    level = byte_bpe.byte_level(add_prefix_space=False, trim_offsets=False, use_regex=False)
    pairs = ((spelled[left], spelled[right]) for left, right in byte_bpe.last_merges(tokens))
    model: dict[str, Any] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
    }
    if layout.merges_as_pairs:
        model["ignore_merges"] = False
    model["vocab"] = {spelled[token]: rank for rank, token in enumerate(tokens)}
    model["merges"] = [list(p) if layout.merges_as_pairs else " ".join(p) for p in pairs]
    added = enumerate(layout.added_tokens, len(tokens))
    return byte_bpe.dump(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [byte_bpe.added_token(index, token) for index, token in added],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": byte_bpe.split_by(PATTERN, level),
            "post_processor": level,
            "decoder": level,
            "model": model,
        }
    )
