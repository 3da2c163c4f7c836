"""Helpers for the byte-level tokenizers that are rebuilt from a rank table.

A rank table lists the bytes of every token in merge order. ``tokenizer.json`` needs the merges
themselves, in the printable alphabet of byte-level BPE.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import orjson

from stages.models.profile import AddedToken

Pair: TypeAlias = tuple[bytes, bytes]

_FLAGS = {"s": "single_word", "l": "lstrip", "r": "rstrip", "n": "normalized"}


def parse_ranks(table: bytes) -> list[bytes]:
    """Read a rank table (``base64(token) rank`` a line) into tokens, in rank order."""
    words = table.split()
    encoded, ranks = words[::2], words[1::2]
    read = list(map(int, ranks))
    if read != list(range(len(read))):
        number = next(number for number, rank in enumerate(read) if rank != number)
        raise ValueError(f"rank table: line {number + 1} holds rank {read[number]}")
    if not len(encoded) == len(ranks) == len(table.splitlines()):
        raise ValueError("rank table: a line does not hold a token and its rank")
    return list(map(binascii.a2b_base64, encoded))


def _byte_alphabet() -> list[str]:
    """The printable character that byte-level BPE writes for each of the 256 byte values.

    Printable Latin-1 bytes stand for themselves; the others take code points from 256 up, in
    order (Radford et al. 2019, GPT-2).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def spell(tokens: Iterable[bytes]) -> dict[bytes, str]:
    """Each token in the printable alphabet."""
    alphabet = dict(enumerate(_byte_alphabet()))
    return {token: token.decode("latin-1").translate(alphabet) for token in tokens}


def _last_merge(token: bytes, ranks: dict[bytes, int]) -> Pair:
    """The pair that merges to ``token`` when its bytes are encoded with the ranks below its own."""
    limit, rank_of = ranks[token], ranks.get
    parts = [token[i : i + 1] for i in range(len(token))]
    pairs = [rank_of(token[i : i + 2], limit) for i in range(len(token) - 1)]
    while len(parts) > 2:
        best = pairs.index(min(pairs))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
        del pairs[best]
        # Only the pairs of the joined part with its neighbours have changed.
        if best < len(pairs):
            pairs[best] = rank_of(parts[best] + parts[best + 1], limit)
        if best:
            pairs[best - 1] = rank_of(parts[best - 1] + parts[best], limit)
    return parts[0], parts[1]


def last_merges(tokens: list[bytes]) -> Iterator[Pair]:
    """One merge for each token: the last one when byte-pair encoding builds it."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    rank_of = ranks.get
    for rank, token in enumerate(tokens):
        if len(token) == 1:
            continue
        splits = [
            i
            for i in range(1, len(token))
            if rank_of(token[:i], rank) < rank and rank_of(token[i:], rank) < rank
        ]
        if len(splits) == 1:  # only one way to make it: the common case, and ten times cheaper
            yield token[: splits[0]], token[splits[0] :]
        else:
            yield _last_merge(token, ranks)


def all_merges(tokens: list[bytes]) -> Iterator[Pair]:
    """Every pair of tokens that joins to a token, best ranks first for each token."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    for token in tokens:
        pairs = [
            (token[:i], token[i:])
            for i in range(1, len(token))
            if token[:i] in ranks and token[i:] in ranks
        ]
        yield from sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


def added_token(index: int, token: AddedToken) -> dict[str, Any]:
    """An entry of ``added_tokens``."""
    return {
        "id": index,
        "content": token.content,
        **{_FLAGS[initial]: False for initial in token.flag_order},
        "special": token.special,
    }


def byte_level(add_prefix_space: bool, trim_offsets: bool, use_regex: bool) -> dict[str, Any]:
    """A ``ByteLevel`` component."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": trim_offsets,
        "use_regex": use_regex,
    }


def split_by(pattern: str, level: dict[str, Any]) -> dict[str, Any]:
    """The pre-tokenizer: split by a pattern, then spell bytes."""
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, level]}


def leading_token(token: str, index: int) -> dict[str, Any]:
    """A post-processor that puts a token before a text."""
    piece = {"SpecialToken": {"id": token, "type_id": 0}}
    other = {"SpecialToken": {"id": token, "type_id": 1}}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [piece, first],
        "pair": [piece, first, other, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }


def dump(document: dict[str, Any]) -> bytes:
    """The document as the library ``tokenizers`` writes its files."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)
