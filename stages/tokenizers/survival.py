"""Whether a text survives the tokenizer: what its ids decode to is the text that was given.

What is allowed to differ is what the tokenizer declares: its normalizer and its pre-tokenizer are
applied to the text, and its decoder puts the pieces together as it does tokens. What only the
vocabulary decides is lost: an unknown token, or characters that no token has.

A model that answers has to write what it learns, so its tokenizer may change spaces, and what
Unicode calls compatible (NFKC), and nothing else. An encoder only reads: its tokenizer may also
declare that it drops case, accents and less than half of the letters, and what the vocabulary
lacks may be anything but letters and digits.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from stages import encoders, profile
from stages.contract import Batch
from stages.errors import ParityError

MOST = 1 << 16  # characters of a text that are looked at
_SHOWN = 24  # characters of a difference in messages
_SPACES = str.maketrans("", "", " ▁")


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", unicodedata.normalize("NFKC", text))


def _declared(tokenizer: Tokenizer, text: str) -> str:
    """The text as normalizer, pre-tokenizer and decoder leave it, if every piece is a token."""
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    pieces = [text]
    if tokenizer.pre_tokenizer is not None:
        pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    return "".join(pieces) if tokenizer.decoder is None else str(tokenizer.decoder.decode(pieces))


def _shown(text: str, other: str) -> str:
    """Two texts where they begin to differ."""
    pairs = enumerate(zip(text, other, strict=False))
    same = next((i for i, (a, b) in pairs if a != b), min(len(text), len(other)))
    at = max(0, same - _SHOWN // 3)
    one, two = (side[at : at + _SHOWN] for side in (text, other))
    return f"{one!r} is read as {two!r}"


def loss(model: profile.TargetModel, text: str) -> str | None:
    """Where the tokenizer loses something of a text, as a clause; None where all of it survives."""
    tokenizer, text = encoders.parsed(model.tokenizer_json), text[:MOST].strip()
    ids = encoders.as_text(tokenizer, text).ids
    found, declared = tokenizer.decode(ids, skip_special_tokens=False), _declared(tokenizer, text)
    if model.profile.pair is None:
        changed = _letters(text) != _letters(declared)
        lost = declared.translate(_SPACES) != found.translate(_SPACES)
    else:
        half = len(_letters(text)) / 2
        changed = bool(text and not declared) or len(_letters(declared)) < half
        lost = bool(Counter(_letters(declared)) - Counter(_letters(found)))
    return _shown(text, declared) if changed else _shown(declared, found) if lost else None


# Sized by tokens, since that is what a fault would train.
HEAD = 2048  # tokens at the start of a split, all of whose rows are sampled
LEAST = 4  # rows at the start of a split, however long
EVERY = 1 << 19  # and then a row wherever so many tokens have passed


@dataclass
class Sample:
    """Some rows of a split, whose texts are encoded by the reference as well.

    Attributes:
        encoder: of the build; ``reference``: Hugging Face ``tokenizers``.
        texts: the columns of a row that hold its texts.
        sampled: rows; ``lost``: those whose texts the tokenizer does not give back; ``loss``: what
            the first one lost.
    """

    model: profile.TargetModel
    encoder: encoders.Encoder
    reference: encoders.Encoder
    texts: Sequence[str]
    sampled: int = 0
    lost: int = 0
    loss: str = ""
    _rows: int = 0
    _tokens: int = 0

    def restart(self) -> None:
        """Begin another split: which rows are sampled depends on the split alone."""
        self.sampled = self.lost = self._rows = self._tokens = 0
        self.loss = ""

    def _chosen(self, batch: Batch) -> list[int]:
        lengths = batch.column("length").to_numpy().astype(np.int64)
        number = np.arange(self._rows, self._rows + batch.num_rows)
        ends = self._tokens + np.cumsum(lengths)
        chosen = (ends <= HEAD) | (number < LEAST) | (ends // EVERY > (ends - lengths) // EVERY)
        self._rows += batch.num_rows
        self._tokens = int(ends[-1]) if len(ends) else self._tokens
        return np.flatnonzero(chosen).tolist()

    def __call__(self, batch: Batch, place_of: Callable[[int], str] = "row {}".format) -> None:
        """Compare a sample of a batch that has been encoded.

        Args:
            place_of: gives a line its name in messages.

        Raises:
            ParityError: the reference gives other ids.
        """
        names = [name for name in ("line", *self.texts) if name in batch.schema.names]
        chosen = pa.array(self._chosen(batch), pa.int64())
        for row in pa.table(batch).select(names).take(chosen).to_pylist():
            said = [text for name in names[1:] for text in _said(row[name])]
            ids, theirs = (one.encode(said)[0] for one in (self.encoder, self.reference))
            if not np.array_equal(ids, theirs):
                raise ParityError(f"{place_of(row['line'])}: the reference gives other ids")
            lost = loss(self.model, "\n".join(said))
            self.sampled += 1
            self.lost += lost is not None
            self.loss = self.loss or lost or ""


def _said(value: Any) -> Iterator[str]:
    """The texts of a column's value: a text, some, or turns."""
    for one in value if isinstance(value, list) else [value]:
        text = one.get("content") if isinstance(one, dict) else one
        if text:
            yield text
