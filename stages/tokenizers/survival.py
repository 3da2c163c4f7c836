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

from tokenizers import Tokenizer

from stages import encoders, profile

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
