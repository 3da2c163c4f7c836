"""Cuts inside a text across which the tokenizer would have merged.

Where training starts inside a text (``assistant\\n`` | ``Hello!``), both sides are encoded apart,
because inference encodes the prompt alone. Encoded as one text they could give other ids. Such cuts
are counted, so that who compares a row knows whether the ids of its whole text must be equal.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns, encoders
from stages.chat_template.segments import CONTROL
from stages.columns import Ids

# Beginnings of text by which it is tested whether letters and digits merge with the text before.
_STARTS = ("a", "The", "I", "0", "12", "é", "я", "好", "한", "ا")
_MOST_LEFT = 4096  # texts before a cut whose test is remembered
_ALNUM = np.zeros(256, bool)
_ALNUM[
    np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)
] = True


def may_merge(texts: pa.StringArray, which: columns.Ints) -> npt.NDArray[np.bool_]:
    """Which texts begin with something that is neither a letter nor a digit."""
    # The first bytes are read from Arrow's buffers (32-bit offsets and UTF-8), without a Python
    # string per text. A slice keeps the buffers of the whole array, so its offsets are skipped to.
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int32)[texts.offset :][: len(texts) + 1]
    content = np.frombuffer(data or b"\0", np.uint8)  # never empty
    filled = starts[which + 1] > starts[which]
    odd = filled & ~_ALNUM[content[np.where(filled, starts[which], 0)]]
    # Letters beyond ASCII begin with a byte that is not in the table; a regex looks at those texts.
    unsure = np.flatnonzero(odd)
    if len(unsure):
        letters = pc.match_substring_regex(texts.take(pa.array(which[unsure])), "^[\\p{L}\\p{N}]")
        odd[unsure] = ~letters.to_numpy(zero_copy_only=False)
    return odd


class MergedCuts:
    """Counts merged cuts; remembers after which texts letters and digits never merge."""

    def __init__(self, encoder: encoders.Encoder) -> None:
        self._encoder = encoder
        self._safe: dict[str, bool] = {}

    def _safe_behind(self, left: str) -> bool:
        """Whether no letter or digit merges with the text before it."""
        if left not in self._safe:
            if len(self._safe) > _MOST_LEFT:
                self._safe.clear()
            # Nothing merges if every joined text has as many tokens as its two sides together.
            apart = self._encoder.encode([left, *_STARTS])[1]
            joint = self._encoder.encode([left + start for start in _STARTS])[1]
            alone = np.diff(apart)
            self._safe[left] = bool((np.diff(joint) == alone[0] + alone[1:]).all())
        return self._safe[left]

    def _merges_letters(self, texts: pa.StringArray, cuts: columns.Ints) -> npt.NDArray[np.bool_]:
        """At which cuts a letter or a digit would merge with the text before."""
        if not len(cuts):
            return np.zeros(0, bool)
        before = texts.take(pa.array(cuts - 1)).dictionary_encode()
        verdicts = [not self._safe_behind(left) for left in before.dictionary.to_pylist()]
        merges: npt.NDArray[np.bool_] = np.array(verdicts, bool)[before.indices.to_numpy()]
        return merges

    def behind(
        self,
        left: str,
        left_ids: Ids,
        texts: pa.StringArray,
        odd: npt.NDArray[np.bool_],
        which: columns.Ints,
        pieces: tuple[Ids, columns.Ints],
    ) -> columns.Ints:
        """For each of some texts behind the same text: 1 where both as one text give other ids.

        Args:
            left, left_ids: the text before the cut, and its ids.
            odd: ``may_merge`` of all texts.
            which: indices of the texts behind the cut.
            pieces: ids of all texts, flat, and where each text's start.
        """
        merged = np.zeros(len(which), np.int64)
        again = np.flatnonzero(odd[which] | (not self._safe_behind(left)))
        if len(again):
            rights = texts.take(pa.array(which[again])).to_pylist()
            flat, starts = pieces
            own = [flat[starts[i] : starts[i + 1]] for i in which[again].tolist()]
            apart = [np.concatenate([left_ids, ids]) for ids in own]
            merged[again] = self._merges([left + right for right in rights], apart)
        return merged

    def _merges(self, joint: Sequence[str], apart: Sequence[Ids]) -> npt.NDArray[np.bool_]:
        """Which texts have other ids than their two sides have apart."""
        ids, starts = self._encoder.encode(joint)
        each = zip(itertools.pairwise(starts.tolist()), apart, strict=True)
        return np.array([not np.array_equal(ids[a:b], one) for (a, b), one in each], bool)

    def per_row(
        self,
        swallowed: "Swallowed",
        kinds: npt.NDArray[np.uint8],
        pieces: tuple[Ids, columns.Ints],
        offsets: columns.Ints,
    ) -> columns.Ints:
        """Per row, the cuts at which encoding both sides as one text would give other ids.

        Args:
            swallowed, kinds: texts and kinds of all segments.
            pieces: ids of all segments, flat, and where each segment's start.
            offsets: where each row's segments start.
        """
        texts = swallowed.texts
        plain = (kinds & CONTROL) == 0
        # A cut is a text segment right behind another text segment of the same row.
        starts = plain.copy()
        starts[1:] &= plain[:-1]
        starts[offsets[:-1][offsets[:-1] < len(starts)]] = False
        cuts = np.flatnonzero(starts)
        rows = np.searchsorted(offsets, cuts, side="right") - 1  # the last row that starts before
        # Encoding again is slow, and most answers begin with a letter that does not merge with the
        # prompt: only the others are encoded once more, together with the text before them.
        odd = may_merge(texts, cuts) | self._merges_letters(texts, cuts)
        cuts, rows = cuts[odd], rows[odd]
        if len(cuts):
            left = texts.take(pa.array(cuts - 1))
            joint = pc.binary_join_element_wise(left, texts.take(pa.array(cuts)), "")
            joint = swallowed.joined(joint, cuts)
            ids, bounds = pieces
            apart = [ids[bounds[cut - 1] : bounds[cut + 1]] for cut in cuts.tolist()]
            rows = rows[self._merges(joint.to_pylist(), apart)]
        return np.bincount(rows, minlength=len(offsets) - 1)


# Control tokens that swallow the whitespace beside them.
#
# A tokenizer may register a token with ``rstrip`` or ``lstrip`` (Phi-3 does): the whitespace behind
# or before the token then becomes part of it and gets no id of its own. Here text is encoded
# separately from control tokens, so the same whitespace is removed from the text first.


# Unicode's White_Space, which the tokenizer uses; Python's own strip removes more characters.
WHITESPACE = (
    "".join(map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))))
    + "\u2028\u2029\u202f\u205f\u3000"
)

Bools = npt.NDArray[np.bool_]


class Swallowed(NamedTuple):
    """The texts as they are encoded.

    Attributes:
        texts: without the whitespace that control tokens swallow.
        behind: which texts follow a token that swallows the whitespace behind it.
    """

    texts: pa.StringArray
    behind: Bools

    def joined(self, joint: pa.StringArray, cuts: columns.Ints) -> pa.StringArray:
        """Texts joined across cuts (indices of their second halves), as one text would be."""
        behind = self.behind[cuts - 1]
        if not behind.any():
            return joint
        return pc.if_else(pa.array(behind), pc.utf8_ltrim(joint, characters=WHITESPACE), joint)


class Edges:
    """Which control tokens of a tokenizer swallow whitespace; most tokenizers have none."""

    def __init__(self, tokenizer_json: bytes, names: Iterable[str]) -> None:
        added = encoders.parsed(tokenizer_json).get_added_tokens_decoder().values()
        flags = {token.content: token for token in added}
        known = [flags[name] for name in names]
        self._left = pa.array([t.content for t in known if t.lstrip], pa.string())
        self._right = pa.array([t.content for t in known if t.rstrip], pa.string())
        self.swallow = bool(len(self._left) or len(self._right))

    def __call__(
        self, texts: pa.StringArray, kinds: npt.NDArray[np.uint8], offsets: columns.Ints
    ) -> Swallowed:
        """Remove the whitespace that the control tokens beside a text swallow.

        Args:
            texts, kinds: of all segments; ``offsets``: where each row's segments start.
        """
        none = np.zeros(len(texts), bool)
        if not len(texts) or not self.swallow:
            return Swallowed(texts, none)
        control = (kinds & CONTROL) > 0
        first, last = none.copy(), none.copy()
        filled = np.diff(offsets) > 0
        first[offsets[:-1][filled]] = True
        last[offsets[1:][filled] - 1] = True
        # Shifted by one, the mask of swallowing tokens marks their neighbours. The first and the
        # last segment of a row are excluded, since that neighbour belongs to another row.
        behind = np.roll(_among(texts, control, self._right), 1) & ~first & ~control
        before = np.roll(_among(texts, control, self._left), -1) & ~last & ~control
        texts = pc.if_else(pa.array(behind), pc.utf8_ltrim(texts, characters=WHITESPACE), texts)
        texts = pc.if_else(pa.array(before), pc.utf8_rtrim(texts, characters=WHITESPACE), texts)
        return Swallowed(texts, behind)


def _among(texts: pa.StringArray, control: Bools, names: pa.StringArray) -> Bools:
    listed: Bools = pc.is_in(texts, value_set=names).to_numpy(zero_copy_only=False)
    return listed & control
