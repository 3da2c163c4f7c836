"""The text of every token id and what it contains, computed once per tokenizer.

Audits look tokens up in tables as long as the vocabulary, so no text is decoded per row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from stages.columns import Ints
from stages.models.encoders import parsed
from stages.models.profile import TargetModel

Bools = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]

SCRIPTS = {
    "Han": r"\p{Han}",
    "Kana": r"\p{Hiragana}|\p{Katakana}",
    "Hangul": r"\p{Hangul}",
    "Cyrillic": r"\p{Cyrillic}",
    "Arabic": r"\p{Arabic}",
    "Hebrew": r"\p{Hebrew}",
    "Devanagari": r"\p{Devanagari}",
    "Thai": r"\p{Thai}",
    "Greek": r"\p{Greek}",
    "Latin": r"\p{Latin}",
    "other letters": r"\p{L}",
}


class Vocabulary:
    """Lookup tables of one tokenizer, each as long as its vocabulary."""

    def __init__(self, tokenizer_json: bytes, controls: tuple[int, ...]) -> None:
        self._tokenizer = parsed(tokenizer_json)
        self._controls = np.array(controls, np.int64)
        self.size = max(self._tokenizer.get_vocab_size(), *(index + 1 for index in controls))
        ids = [[index] for index in range(self.size)]
        texts = self._tokenizer.decode_batch(ids, skip_special_tokens=False)
        self.texts = pl.Series(texts, dtype=pl.String)
        self._having: dict[str, Bools] = {}

    def having(self, pattern: str) -> Bools:
        """Whether the text of each id matches a regular expression; control tokens never do."""
        if pattern not in self._having:
            matching: Bools = self.texts.str.contains(pattern).to_numpy().copy()
            matching[self._controls] = False
            self._having[pattern] = matching
        return self._having[pattern]

    @functools.cached_property
    def scripts(self) -> npt.NDArray[np.uint8]:
        """Index into ``SCRIPTS`` of each id's letters; ``len(SCRIPTS)`` where it has none."""
        # In reverse order, so that the first script that matches is the one that stays.
        script_of = np.full(self.size, len(SCRIPTS), np.uint8)
        for index, pattern in reversed(list(enumerate(SCRIPTS.values()))):
            script_of[self.having(pattern)] = index
        return script_of

    def text(self, index: int) -> str:
        """The text of one id."""
        return str(self.texts[index]) if 0 <= index < self.size else f"id {index}"

    def spelled(self, phrase: str, inner: bool = False) -> set[tuple[int, ...]]:
        """The ids of a phrase in ordinary text, after various beginnings.

        Args:
            inner: without the first and last id, which may merge with the text around.
        """
        self._tokenizer.encode_special_tokens = True
        spellings = set()
        for before in ("", " ", "\n"):
            ids = self._tokenizer.encode(before + phrase, add_special_tokens=False).ids
            blank = self._tokenizer.encode(before, add_special_tokens=False).ids if before else []
            ids = ids[len(blank) :] if ids[: len(blank)] == blank else ids
            spellings.add(tuple(ids[1:-1] if inner and len(ids) > 3 else ids))
        self._tokenizer.encode_special_tokens = False  # the tokenizer is shared
        return {ids for ids in spellings if ids}


@functools.lru_cache(maxsize=2)
def _of(tokenizer_json: bytes, controls: tuple[int, ...]) -> Vocabulary:
    return Vocabulary(tokenizer_json, controls)


def of(model: TargetModel) -> Vocabulary:
    """The model's vocabulary, decoded once per process (a fifth of a second)."""
    return _of(model.tokenizer_json, tuple(model.controls.values()))


def places(ids: Ids, phrases: Sequence[tuple[int, ...]], size: int) -> Ints:
    """The flat indices at which any of some id sequences begins, ascending.

    Args:
        size: of the vocabulary.
    """
    # Candidates are the places of a first id; only these are compared id by id.
    begins = np.zeros(size, bool)
    begins[[phrase[0] for phrase in phrases]] = True
    at = np.flatnonzero(begins[np.clip(ids, 0, size - 1)])
    if not len(at):
        return at
    padded = np.append(ids, np.full(max(map(len, phrases)), -1, ids.dtype))
    hit = np.zeros(len(at), bool)
    for phrase in phrases:
        here = np.ones(len(at), bool)
        for step, index in enumerate(phrase):
            here &= padded[at + step] == index
        hit |= here
    return at[hit]
