"""The Qwen tokenizers, rebuilt byte for byte from the rank table that an installed package ships.

The vendor's ``tokenizer.json`` is a pure function of that table and a few constants, so nothing is
downloaded and nothing is committed: the file is rebuilt once, its sha256 is compared with the
vendor's, and anything else is refused. A rank table lists every token in merge order; the merge
list is recovered from it by asking, for each token, which two lower-ranked tokens its bytes were
last joined from.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from stages.profile import AddedToken, RankLayout

RANKS_SHA256 = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"

# The split of text into pre-tokens, as the vendor's file spells it.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def parse_ranks(table: bytes) -> list[bytes]:
    """Read a rank table (``base64(token) rank`` a line) into tokens, in rank order."""
    tokens: list[bytes] = []
    for number, line in enumerate(table.splitlines()):
        encoded, rank = line.split()
        if int(rank) != number:
            raise ValueError(f"rank table: line {number + 1} holds rank {rank.decode()}")
        tokens.append(base64.b64decode(encoded))
    return tokens


def _byte_alphabet() -> list[str]:
    """The printable character that byte-level BPE writes for each of the 256 byte values.

    Printable Latin-1 bytes stand for themselves; the others take code points from 256 up, in
    order (Radford et al. 2019, GPT-2).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def _last_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The pair whose merge makes ``token``: byte-pair encoding with the ranks below its own."""
    limit = ranks[token]
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], limit))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts[0], parts[1]


def _merges(tokens: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    ranks = {token: rank for rank, token in enumerate(tokens)}
    for rank, token in enumerate(tokens):
        if len(token) == 1:
            continue
        splits = [
            i
            for i in range(1, len(token))
            if ranks.get(token[:i], rank) < rank and ranks.get(token[i:], rank) < rank
        ]
        if len(splits) == 1:  # the only way to make it; the common case, and ten times cheaper
            yield token[: splits[0]], token[splits[0] :]
        else:
            yield _last_merge(token, ranks)


_FLAGS = {"s": "single_word", "l": "lstrip", "r": "rstrip", "n": "normalized"}


def _added_token(index: int, token: AddedToken) -> dict[str, Any]:
    return {
        "id": index,
        "content": token.content,
        **{_FLAGS[initial]: False for initial in token.flag_order},
        "special": token.special,
    }


def tokenizer_json(table: bytes, layout: RankLayout) -> bytes:
    """Build the vendor's ``tokenizer.json`` from the rank table's bytes.

    Raises:
        ValueError: the table is not in rank order.
    """
    alphabet = _byte_alphabet()
    tokens = parse_ranks(table)
    spelled = {token: "".join(alphabet[b] for b in token) for token in tokens}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    pairs = ((spelled[left], spelled[right]) for left, right in _merges(tokens))
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
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(len(tokens) + i, token) for i, token in enumerate(layout.added_tokens)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": _PATTERN},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {**byte_level, "use_regex": False},
            ],
        },
        "post_processor": {**byte_level, "use_regex": False},
        "decoder": {**byte_level, "use_regex": False},
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False, indent=2).encode()
