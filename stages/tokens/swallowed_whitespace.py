"""Control tokens that swallow the whitespace beside them.

A tokenizer may register a token with ``rstrip`` or ``lstrip`` (Phi-3 does): the whitespace behind
or before the token then becomes part of it and gets no id of its own. Here text is encoded
separately from control tokens, so the same whitespace is removed from the text first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages.chat_template.segments import CONTROL
from stages.columns import Ints
from stages.encoders import parsed

# Unicode's White_Space, which the tokenizer uses; Python's own strip removes more characters.
WHITESPACE = (
    "".join(map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))))
    + "\u2028\u2029\u202f\u205f\u3000"
)

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Swallowed:
    """The texts as they are encoded.

    Attributes:
        texts: without the whitespace that control tokens swallow.
        behind: which texts follow a token that swallows the whitespace behind it.
    """

    texts: pa.StringArray
    behind: Bools

    def joined(self, joint: pa.StringArray, cuts: Ints) -> pa.StringArray:
        """Texts joined across cuts (indices of their second halves), as one text would be."""
        behind = self.behind[cuts - 1]
        if not behind.any():
            return joint
        return pc.if_else(pa.array(behind), pc.utf8_ltrim(joint, characters=WHITESPACE), joint)


class Edges:
    """Which control tokens of a tokenizer swallow whitespace; most tokenizers have none."""

    def __init__(self, tokenizer_json: bytes, names: Iterable[str]) -> None:
        added = parsed(tokenizer_json).get_added_tokens_decoder().values()
        flags = {token.content: token for token in added}
        known = [flags[name] for name in names]
        self._left = pa.array([t.content for t in known if t.lstrip], pa.string())
        self._right = pa.array([t.content for t in known if t.rstrip], pa.string())
        self.swallow = bool(len(self._left) or len(self._right))

    def __call__(
        self, texts: pa.StringArray, kinds: npt.NDArray[np.uint8], offsets: Ints
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
