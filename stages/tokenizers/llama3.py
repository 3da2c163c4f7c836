"""The Llama 3 tokenizers, rebuilt from Meta's rank table.

The vendor's ``tokenizer.json`` lists every pair of tokens that joins to a token, because a rank
table does not say which pairs were merged in training. With ``ignore_merges``, a pre-token that is
in the vocabulary is one token without any merge.
"""

from __future__ import annotations

from typing import Any

from stages.models.profile import RankLayout
from stages.tokenizers import byte_bpe

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_json(table: bytes, layout: RankLayout) -> bytes:
    """Build ``tokenizer.json`` from the rank table's bytes; the first added token leads a text.

    Raises:
        ValueError: the table is not in rank order.
    """
    tokens = byte_bpe.parse_ranks(table)
    spelled = byte_bpe.spell(tokens)
    pairs = ((spelled[left], spelled[right]) for left, right in byte_bpe.all_merges(tokens))
    model: dict[str, Any] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,
        "vocab": {spelled[token]: rank for rank, token in enumerate(tokens)},
        "merges": [list(p) if layout.merges_as_pairs else " ".join(p) for p in pairs],
    }
    leading = byte_bpe.leading_token(layout.added_tokens[0].content, len(tokens))
    added = enumerate(layout.added_tokens, len(tokens))
    splitting = byte_bpe.byte_level(add_prefix_space=False, trim_offsets=True, use_regex=False)
    processing = byte_bpe.byte_level(add_prefix_space=True, trim_offsets=False, use_regex=True)
    decoding = byte_bpe.byte_level(add_prefix_space=True, trim_offsets=True, use_regex=True)
    return byte_bpe.dump(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [byte_bpe.added_token(index, token) for index, token in added],
            "normalizer": None,
            "pre_tokenizer": byte_bpe.split_by(PATTERN, splitting),
            "post_processor": {
                "type": "Sequence",
                "processors": [processing, leading],
            },
            "decoder": decoding,
            "model": model,
        }
    )
