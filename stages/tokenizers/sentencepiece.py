"""Mistral's SentencePiece tokenizers, converted from the vendor's own model file.

The file is a protocol buffer; only its pieces are read. A space is written ``▁``, and one is put
before a text; unknown characters fall back to the tokens of their bytes.

SentencePiece repeatedly joins the two neighbours whose piece has the best score, the leftmost of
equal ones. ``tokenizer.json`` ranks pairs, and no two pairs have the same rank. The ids of any text
are the same nevertheless, for two reasons:

* Where no two pieces have the same score, a piece is always joined from the same pair. Until its
  last merge nothing has been joined across its ends, so its inside was joined as if the piece were
  a text by itself, and such a text has two parts just once. Pairs that tie are therefore the same
  pair, and both encoders take the leftmost of them.
* The only pieces with equal scores are runs of spaces. They score lowest, and no other piece
  contains two spaces, so they are joined last and among themselves. SentencePiece grows such a run
  from the left, up to the longest piece. Doubling first and then joining the longest left side
  gives the same: 16 and 2 for 18 spaces.

``_require_ranks`` checks that a model is of this kind.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # SentencePiece's types of pieces
SPACE = "▁"


class _Piece(NamedTuple):
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
    text, score, kind = "", 0.0, NORMAL
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
    fields = _fields(memoryview(model))
    return [_piece(value) for number, value in fields if number == 1 and not isinstance(value, int)]


def _is_run(text: str) -> bool:
    return len(text) > 1 and set(text) == {SPACE}


def _require_ranks(model_pieces: list[_Piece]) -> None:
    """Check that ranked merges can give this model's ids.

    Raises:
        ValueError: pieces other than runs of spaces have equal scores or hold two spaces, a run
            does not score lowest, a piece holds a character that is no piece, or there are pieces
            of kinds that are matched before any merge.
    """
    if {piece.kind for piece in model_pieces} - {NORMAL, UNKNOWN, CONTROL, BYTE}:
        raise ValueError("SentencePiece: pieces that users defined, or that are unused")
    normal = {piece.text: piece.score for piece in model_pieces if piece.kind == NORMAL}
    joined = {text: score for text, score in normal.items() if len(text) > 1}
    runs = {score for text, score in joined.items() if _is_run(text)}
    others = {text: score for text, score in joined.items() if not _is_run(text)}
    if len(set(others.values())) < len(others) or any(2 * SPACE in text for text in others):
        raise ValueError(
            "SentencePiece: two pieces other than runs of spaces have equal scores: a tie"
        )
    if len(runs) > 1 or (runs and max(runs) >= min(others.values(), default=0.0)):
        raise ValueError("SentencePiece: runs of spaces are not joined last")
    if any(char not in normal for text in joined for char in text):
        raise ValueError("SentencePiece: a piece holds a character that is not a piece")


def _place(left: str, right: str) -> tuple[bool, int]:
    """The order of merges of one score: of runs, doublings come first, then long left sides."""
    if not _is_run(left + right):
        return False, 0
    uneven = len(left) != len(right)
    return uneven, -len(left) if uneven else len(left)


def merges(model_pieces: list[_Piece]) -> list[list[str]]:
    """Every pair of pieces that joins to an ordinary piece, the best first.

    Raises:
        ValueError: ranked merges cannot give the ids of this model.
    """
    _require_ranks(model_pieces)
    ids = {piece.text: index for index, piece in enumerate(model_pieces)}
    found: list[tuple[float, tuple[bool, int], int, int, str, str]] = []
    for piece in model_pieces:
        if piece.kind != NORMAL:
            continue
        text = piece.text
        for i in range(1, len(text)):
            left, right = text[:i], text[i:]
            if left in ids and right in ids:
                place = _place(left, right)
                found.append((-piece.score, place, ids[left], ids[right], left, right))
    return [[left, right] for *_, left, right in sorted(found)]
