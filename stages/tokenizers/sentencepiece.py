"""Mistral's SentencePiece tokenizers, converted from the vendor's own model file.

The file is a protocol buffer; only its pieces are read. A piece's place in the merge order is its
score, and every pair of pieces that joins to a piece is a merge. A space is written ``▁``, and one
is put before a text; unknown characters fall back to the tokens of their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stages.profile import AddedToken, RankLayout
from stages.tokenizers import byte_bpe

_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # SentencePiece's types of pieces
_SPACE = "▁"


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    score: float
    kind: int


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a protocol buffer message: number, and bytes or an integer."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if size is None:
            if wire != 2:
                raise ValueError(f"protocol buffer: wire type {wire}")
            size, at = _varint(data, at)
        yield number, data[at : at + size]
        at += size


def _piece(data: memoryview) -> _Piece:
    text, score, kind = "", 0.0, _NORMAL
    for number, value in _fields(data):
        if number == 1 and not isinstance(value, int):
            text = bytes(value).decode()
        elif number == 2 and not isinstance(value, int):
            score = struct.unpack("<f", value)[0]
        elif number == 3 and isinstance(value, int):
            kind = value
    return _Piece(text, score, kind)


def pieces(model: bytes) -> list[_Piece]:
    """The pieces of a SentencePiece model, by id."""
    found = _fields(memoryview(model))
    return [_piece(value) for number, value in found if number == 1 and not isinstance(value, int)]


def _merges(found: list[_Piece]) -> list[list[str]]:
    """Every pair of pieces that joins to an ordinary piece, the best first."""
    ids = {piece.text: index for index, piece in enumerate(found)}
    merges: list[tuple[float, int, int, str, str]] = []
    for piece in found:
        if piece.kind != _NORMAL:
            continue
        text = piece.text
        for i in range(1, len(text)):
            left, right = text[:i], text[i:]
            if left in ids and right in ids:
                merges.append((-piece.score, ids[left], ids[right], left, right))
    return [[left, right] for *_, left, right in sorted(merges)]


def tokenizer_json(table: bytes, layout: RankLayout) -> bytes:
    """Build a ``tokenizer.json`` that gives the ids of the vendor's encoder.

    Raises:
        ValueError: the file is no SentencePiece model.
    """
    found = pieces(table)
    special = [i for i, piece in enumerate(found) if piece.kind in (_UNKNOWN, _CONTROL)]
    model: dict[str, Any] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": found[0].text,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": {piece.text: index for index, piece in enumerate(found)},
        "merges": _merges(found),
    }
    decoders = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    return byte_bpe.dump(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                byte_bpe.added_token(index, AddedToken(found[index].text)) for index in special
            ],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Metaspace",
                "replacement": _SPACE,
                "prepend_scheme": "first",
                "split": False,
            },
            "post_processor": byte_bpe.leading_token(found[1].text, 1),
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": model,
        }
    )
