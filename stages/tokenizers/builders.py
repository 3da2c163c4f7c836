"""``tokenizer.json`` built from a vendor's vocabulary: one function a family, see ``BUILDERS``.

A vendor's file is a function of the vocabulary and a few constants, so nothing is downloaded: the
file is built once, and refused unless its sha256 is the expected one.
"""

import base64
import binascii
import functools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from stages.profile import AddedToken, RankLayout
from stages.tokenizers import sentencepiece

_FLAGS = {"s": "single_word", "l": "lstrip", "r": "rstrip", "n": "normalized"}
_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# The split of text into words, as the vendors' files spell it.
QWEN_WORDS = _WORD % r"\p{N}" + _REST
LLAMA3_WORDS = _WORD % r"\p{N}{1,3}" + _REST
_BEFORE, _BEHIND = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K_WORDS = (
    f"{_BEFORE}{_UPPER}*{_LOWER}+{_BEHIND}{_BEFORE}{_UPPER}+{_LOWER}*{_BEHIND}"
    r"\p{N}{1,3}" + _REST.replace(r"[\r\n]*", r"[\r\n/]*", 1)
)


@functools.cache
def _components() -> dict[str, dict[str, Any]]:
    return dict(json.loads(Path(__file__).with_name("components.json").read_bytes()))


def _part(name: str, **own: Any) -> dict[str, Any]:
    """A component, spelled as the library ``tokenizers`` does; ``own``: what differs from usual."""
    return {**_components()[name], **own}


def _file(
    added: Iterable[tuple[int, AddedToken]],
    model: dict[str, Any],
    merges: tuple[dict[str, int], list[Any]],
    **parts: dict[str, Any],
) -> bytes:
    """The file as the library ``tokenizers`` writes it.

    Args:
        added: the added tokens with their ids.
        model: what differs from the usual one; ``merges``: its vocabulary and merges.
        parts: normalizer (none by default), pre_tokenizer, post_processor and decoder.
    """
    tokens = [
        {
            "id": index,
            "content": token.content,
            **{_FLAGS[initial]: False for initial in token.flag_order},
            "special": token.special,
        }
        for index, token in added
    ]
    bpe = _part("bpe", **model, vocab=merges[0], merges=merges[1])
    document = _part("file", added_tokens=tokens, **parts, model=bpe)
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _vocabulary(
    tokens: list[bytes], pairs: "Iterable[Pair]", as_pairs: bool, first: int = 0
) -> tuple[dict[str, int], list[Any]]:
    """Ids by printable text, and the merges in the same texts.

    Args:
        as_pairs: each merge is a list of two texts, not both in one; ``first``: the id of rank 0.
    """
    spelled = spell(tokens)
    merges = ((spelled[left], spelled[right]) for left, right in pairs)
    listed = [list(pair) if as_pairs else " ".join(pair) for pair in merges]
    return {spelled[token]: index for index, token in enumerate(tokens, first)}, listed


def _split(pattern: str, **level: bool) -> dict[str, Any]:
    """The pre-tokenizer: split by a pattern, then spell bytes."""
    steps = [_part("split", pattern={"Regex": pattern}), _part("bytes", **level)]
    return {"type": "Sequence", "pretokenizers": steps}


def _leading(token: str, index: int) -> dict[str, Any]:
    """A post-processor that puts a token before a text."""
    (piece, first), (other, second) = (
        (
            {"SpecialToken": {"id": token, "type_id": kind}},
            {"Sequence": {"id": text, "type_id": kind}},
        )
        for kind, text in enumerate("AB")
    )
    return {
        "type": "TemplateProcessing",
        "single": [piece, first],
        "pair": [piece, first, other, second],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }


def _qwen(table: bytes, layout: RankLayout) -> bytes:
    """A merge for each token of the table: the two of lower rank that it was last joined from."""
    tokens = parse_ranks(table)
    own = {"ignore_merges": False} if layout.merges_as_pairs else {}
    return _file(
        enumerate(layout.added_tokens, len(tokens)),
        {"continuing_subword_prefix": "", "end_of_word_suffix": "", **own},
        _vocabulary(tokens, last_merges(tokens), layout.merges_as_pairs),
        normalizer={"type": "NFC"},
        pre_tokenizer=_split(QWEN_WORDS),
        post_processor=_part("bytes"),
        decoder=_part("bytes"),
    )


def _llama3(table: bytes, layout: RankLayout, words: str = LLAMA3_WORDS, led: bool = True) -> bytes:
    """Every pair of tokens that joins to a token: a rank table does not say which were merged.

    With ``ignore_merges``, a word of the vocabulary is one token without any merge.

    Args:
        words: the pattern that splits words; ``led``: the first added token begins a text.
    """
    tokens = parse_ranks(table)
    level = _part("bytes", add_prefix_space=True, use_regex=True)
    steps = [level, _leading(layout.added_tokens[0].content, len(tokens))] if led else [level]
    return _file(
        enumerate(layout.added_tokens, len(tokens)),
        {"ignore_merges": True},
        _vocabulary(tokens, all_merges(tokens), layout.merges_as_pairs),
        pre_tokenizer=_split(words, trim_offsets=True),
        post_processor={"type": "Sequence", "processors": steps},
        decoder=_part("bytes", add_prefix_space=True, trim_offsets=True, use_regex=True),
    )


def tekken_ranks(table: bytes) -> tuple[list[bytes], int, str]:
    """The tokens of a ``tekken.json`` in rank order, the number of control tokens, and the pattern
    that splits words. The control tokens take the first ids; a table larger than the model is cut.

    Raises:
        ValueError: the file is not in rank order.
    """
    document = json.loads(table)
    config = document["config"]
    controls = config["default_num_special_tokens"]
    tokens = []
    for number, entry in enumerate(document["vocab"][: config["default_vocab_size"] - controls]):
        if entry["rank"] != number:
            raise ValueError(f"tekken file: entry {number} has rank {entry['rank']}")
        tokens.append(base64.b64decode(entry["token_bytes"]))
    return tokens, controls, config["pattern"]


def _tekken(table: bytes, layout: RankLayout) -> bytes:
    """Mistral's Tekken, from the vendor's own ``tekken.json``."""
    tokens, controls, pattern = tekken_ranks(table)
    named = len(layout.added_tokens)
    spare = (AddedToken(f"<SPECIAL_{index}>") for index in range(named, controls))
    added = [*layout.added_tokens, *spare]
    vocab, merges = _vocabulary(tokens, all_merges(tokens), True, first=controls)
    vocab = {token.content: index for index, token in enumerate(added)} | vocab
    return _file(
        enumerate(added),
        {"ignore_merges": True},
        (vocab, merges),
        pre_tokenizer=_split(pattern, trim_offsets=True),
        post_processor=_leading(added[1].content, 1),
        decoder=_part("bytes", add_prefix_space=True, trim_offsets=True, use_regex=True),
    )


def _sentencepiece(table: bytes, layout: RankLayout) -> bytes:
    """Mistral's older tokenizers, converted from a SentencePiece model."""
    pieces = sentencepiece.pieces(table)
    kinds = (sentencepiece.UNKNOWN, sentencepiece.CONTROL)
    special = [(i, AddedToken(piece.text)) for i, piece in enumerate(pieces) if piece.kind in kinds]
    own = {"unk_token": pieces[0].text, "fuse_unk": True, "byte_fallback": True}
    return _file(
        special,
        {**own, "ignore_merges": False},
        ({p.text: i for i, p in enumerate(pieces)}, sentencepiece.merges(pieces)),
        pre_tokenizer=_part("spaces"),
        post_processor=_leading(pieces[1].text, 1),
        decoder=_part("spaced"),
    )


# By ``RankLayout.builder``. Each raises ValueError where the vocabulary is not in the order of its
# ranks, or is no model that ranked merges can follow.
BUILDERS: dict[str, Callable[[bytes, RankLayout], bytes]] = {
    "harmony": functools.partial(_llama3, words=O200K_WORDS, led=False),
    "llama3": _llama3,
    "o200k": functools.partial(_llama3, words=O200K_WORDS),
    "qwen": _qwen,
    "sentencepiece": _sentencepiece,
    "tekken": _tekken,
    "whole": lambda content, layout: content,  # the package has the vendor's file itself
}


# From a rank table to the merges of byte-level byte-pair encoding.
#
# A rank table lists the bytes of every token in merge order. ``tokenizer.json`` needs the merges
# themselves, in the printable alphabet of byte-level BPE.


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


def last_merges(tokens: list[bytes]) -> Iterator[Pair]:
    """One merge for each token: the last one when byte-pair encoding builds it.

    Of two parts of lower rank, these are the ones that encoding leaves beside each other: no
    pair across their border joins first, however far both are taken apart again (van Antwerpen
    and Neubeck 2024, "So many tokens, so little time").
    """
    rank_of = {token: rank for rank, token in enumerate(tokens)}.get
    left, right = list(range(len(tokens))), list(range(len(tokens)))  # a byte is its own part
    joined: dict[tuple[int, int], int] = {}

    def stay(first: int, second: int, limit: int) -> bool:
        while joined.get((first, second), limit) >= limit:
            # Take apart what was joined last; a byte stays, and the other is taken apart.
            if (first > second or second == left[second]) and first != right[first]:
                first, limit = right[first], first
            elif second != left[second]:
                second, limit = left[second], second + 1
            else:
                return True
        return False

    for rank, token in enumerate(tokens):
        for i in range(len(token) - 1, 0, -1):
            first, second = rank_of(token[:i], rank), rank_of(token[i:], rank)
            if first < rank and second < rank and stay(first, second, rank):
                left[rank], right[rank] = first, second
                joined[first, second] = rank
                yield token[:i], token[i:]
                break


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
