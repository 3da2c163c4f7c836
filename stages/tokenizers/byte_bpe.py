"""From a rank table to the merges of byte-level byte-pair encoding.

A rank table lists the bytes of every token in merge order. ``tokenizer.json`` needs the merges
themselves, in the printable alphabet of byte-level BPE.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Pair: TypeAlias = tuple[bytes, bytes]


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
