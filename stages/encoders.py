"""Text to ids: the reference tokenizer, and a fast one that must agree with it.

Both encode text with special tokens off. The fast one is used only if every probe and every sampled
row of a build gives the same ids as the reference (see ``stages.tokenizers.survival``).
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import orjson

from stages import errors
from stages.late import np

if TYPE_CHECKING:  # what only names a model imports no tokenizer
    import numpy.typing as npt
    from tokenizers import Encoding, Tokenizer

Ids: TypeAlias = "npt.NDArray[np.int32]"
Offsets: TypeAlias = "npt.NDArray[np.int64]"

# Texts that tokenizers are known to disagree on: blanks, digits, marks, scripts, control look-alikes.
PROBES = (
    "", " ", "\n", "\n\n", " \n x", "a  b", "\t\tx", "3.+", " +\n", " -\n", "1234567", "x²½",
    "don't WON'T 'S", "e\u0301 é ́", "\u0958 \u1e9b\u0323", "שָׁלוֹם", "مَرْحَبًا", "ки ки\nStep", "你好，世界！",
    "こんにちは", "👩‍👩‍👧‍👦🏳️‍🌈", "\u200b\ufeff\u2028\u2029", "\x00\x07\x1b", "<|im_end|>", "<|im_start|>system",
    "<think></think><tool_call>", "<|endoftext|", "\u1ac1\u0323\u0301a", "a" * 300, "=" * 120, "\ufffd",
    *(char * n + end for char in " \n\t▁-" for n in (2, 3, 15, 16, 17, 18, 20, 31, 33, 47, 200) for end in ("", "x")),
)  # fmt: skip


class Encoder(ABC):
    """Many texts to flat ids.

    Attributes:
        name: of its library; ``version``: that of the library.
    """

    name: str

    def __init__(self) -> None:
        self.version = version_of(self.name)

    def encode(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Ids of texts inside a row, special tokens off, all texts flat; and where each starts."""
        return self._encode(texts, split=True)

    def encode_whole(self, texts: Sequence[str]) -> tuple[Ids, Offsets]:
        """Ids of whole rows, special tokens on, as a trainer encodes their text; and where each starts."""
        return self._encode(texts, split=False)

    @abstractmethod
    def _encode(self, texts: Sequence[str], split: bool) -> tuple[Ids, Offsets]:
        """Ids and starts; ``split``: the text of a special token is ordinary text."""


class Reference(Encoder):
    """Hugging Face ``tokenizers``."""

    name = "tokenizers"

    def __init__(self, tokenizer_json: bytes) -> None:
        super().__init__()
        self._plain = parsed(tokenizer_json)
        self._inner = parsed(inner(tokenizer_json))

    def _encode(self, texts: Sequence[str], split: bool) -> tuple[Ids, Offsets]:
        tokenizer = self._inner if split else self._plain
        tokenizer.encode_special_tokens = split
        ids = [e.ids for e in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(i) for i in ids], out=offsets[1:])
        flat = np.fromiter((t for i in ids for t in i), np.int32, int(offsets[-1]))
        tokenizer.encode_special_tokens = False  # the tokenizer is shared (``parsed``)
        return flat, offsets


def as_text(tokenizer: Tokenizer, text: str, other: str | None = None) -> Encoding:
    """A text, or a pair of texts as the tokenizer frames them, control tokens in it being text."""
    tokenizer.encode_special_tokens = True
    try:
        return tokenizer.encode(text, other, add_special_tokens=other is not None)
    finally:
        tokenizer.encode_special_tokens = False  # the tokenizer is shared (``parsed``)


class Fast(Encoder):
    """``fastokens``."""

    name = "fastokens"

    def __init__(self, tokenizer_json: bytes) -> None:
        from fastokens import Tokenizer as FastTokenizer

        super().__init__()
        content = inner(tokenizer_json)
        self._leads = content != tokenizer_json
        self._specials = tuple(_specials(tokenizer_json)) if self._leads else ()
        self._tokenizer = FastTokenizer.from_json_str(content.decode())

    def _encode(self, texts: Sequence[str], split: bool) -> tuple[Ids, Offsets]:
        if self._leads and not split:
            texts = [self._led(text) for text in texts]
        ids, offsets = self._tokenizer.encode_batch_flat(list(texts), split_special_tokens=split)
        return np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.uint64).astype(np.int64)

    def _led(self, text: str) -> str:
        """The text with the space that the tokenizer puts at the start of a row."""
        return text if not text or text.startswith((" ", "▁", *self._specials)) else f" {text}"


BACKENDS: dict[str, Callable[[bytes], Encoder]] = {"fastokens": Fast, "tokenizers": Reference}


def version_of(backend: str) -> str:
    """The version of an encoder's library, before it is loaded; empty where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(backend)
    except PackageNotFoundError:
        return ""


def inner(tokenizer_json: bytes) -> bytes:
    """The tokenizer for text inside a row.

    Some tokenizers put a space before a text. Text inside a row must not get one, so for these it is
    the same tokenizer without that step; for others it is the given one.
    """
    if b'"Metaspace"' not in tokenizer_json:
        return tokenizer_json
    document = orjson.loads(tokenizer_json)
    before = document.get("pre_tokenizer") or {}
    if before.get("type") != "Metaspace" or before.get("prepend_scheme") != "first":
        return tokenizer_json
    if before.get("split", True) or document.get("normalizer"):
        return orjson.dumps({**document, "pre_tokenizer": {**before, "prepend_scheme": "never"}})
    replace = {
        "type": "Replace",
        "pattern": {"String": " "},
        "content": before.get("replacement", "▁"),
    }
    return orjson.dumps({**document, "normalizer": replace, "pre_tokenizer": None})


def _specials(tokenizer_json: bytes) -> list[str]:
    return [t["content"] for t in orjson.loads(tokenizer_json)["added_tokens"]]


@functools.lru_cache(maxsize=3)
def parsed(tokenizer_json: bytes) -> Tokenizer:
    """The reference tokenizer, parsed once per process (a third of a second).

    Raises:
        ModelError: the bytes are not text.
        Exception: exactly this class, from the library: the bytes are not a tokenizer.
    """
    try:
        text = tokenizer_json.decode()
    except UnicodeDecodeError as error:
        raise errors.ModelError(f"The tokenizer.json is not UTF-8: {error}.") from error
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@functools.lru_cache(maxsize=4)
def load(backend: str, tokenizer_json: bytes) -> Encoder:
    """An encoder, once per process."""
    return BACKENDS[backend](tokenizer_json)


@contextmanager
def without_threads() -> Iterator[None]:
    """Until the block ends, the reference encodes in the thread that asks."""
    name, before = "TOKENIZERS_PARALLELISM", os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ[name] = "false"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def agree(one: Encoder, other: Encoder, texts: Sequence[str]) -> bool:
    """Whether two encoders give the same ids for every text, special tokens off and on."""
    for method in ("encode", "encode_whole"):
        a, b = getattr(one, method)(texts), getattr(other, method)(texts)
        if not (np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])):
            return False
    return True


def _own_probes(tokenizer_json: bytes) -> list[str]:
    """Texts with the tokenizer's own added tokens, which ordinary text must not become."""
    added = parsed(tokenizer_json).get_added_tokens_decoder().values()
    return [text for t in added for text in (t.content, f"a {t.content}\n", f"x{t.content} ")]


def choose(tokenizer_json: bytes) -> str:
    """The fast backend where it is installed, loads this tokenizer and passes the probes."""
    try:
        fast = load("fastokens", tokenizer_json)
    except (ImportError, ValueError, RuntimeError, errors.ModelError):
        return "tokenizers"
    same = agree(fast, load("tokenizers", tokenizer_json), [*PROBES, *_own_probes(tokenizer_json)])
    return "fastokens" if same else "tokenizers"
