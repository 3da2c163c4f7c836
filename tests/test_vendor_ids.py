"""Converted tokenizers give the ids of the vendors' own libraries."""

import itertools
import json
import os
import struct
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

import hard_texts
import pytest
from encoding import vocabulary_of
from peers import packages
from support import few, say, started

from stages import encoders
from stages.tokenizers import builders, builtin, profiles, sentencepiece

NAMES = (
    "qwen2-1.5b",
    "llama-3.1-8b",
    "llama-4-scout",
    "gpt-oss-20b",
    "mistral-7b-v0.1",
    "mistral-7b-v0.3",
    "ministral-8b-instruct-2410",
)
SHARES = 5  # of all characters
VENDOR = Path(__file__).parent / "vendor_ids.py"


class Subject:
    """One converted tokenizer, and the vocabulary that it was converted from."""

    def __init__(self, name: str, cache: Path) -> None:
        self.json = vocabulary_of(profiles.all_profiles()[name], cache)
        layout = profiles.all_profiles()[name].ranks
        assert layout is not None
        self.layout = layout
        table = builtin.at_hand(builtin.CARRIERS[layout.carrier], cache)
        assert table is not None
        self.table = table
        self.pieces = layout.builder == "sentencepiece"

    def words(self) -> list[str]:
        """The vocabulary's own words."""
        if self.pieces:
            found = sentencepiece.pieces(self.table)
            return [p.text.replace("▁", " ") for p in found if p.kind == sentencepiece.NORMAL]
        tokenizer = encoders.parsed(self.json)
        size = tokenizer.get_vocab_size(with_added_tokens=False)
        return [text for i in range(size) if "\ufffd" not in (text := tokenizer.decode([i]))]

    def doubled(self) -> list[str]:
        """The characters of which the vocabulary has runs."""
        return sorted({w[0] for w in self.words() if len(w) > 1 and len(set(w)) == 1})

    def vendor(self, folder: Path, texts: list[str]) -> list[list[int]]:
        """Ids by sentencepiece or tiktoken; SentencePiece puts the first space itself."""
        pattern = ""
        if self.pieces:
            texts = [text.removeprefix(" ") for text in texts]
        elif self.layout.builder == "tekken":
            pattern = json.loads(self.table)["config"]["pattern"]
        else:
            name = {"harmony": "o200k"}.get(self.layout.builder, self.layout.builder)
            pattern = getattr(builders, f"{name.upper()}_WORDS")
        if self.layout.builder == "qwen":
            texts = [unicodedata.normalize("NFC", text) for text in texts]
        path = folder / self.layout.carrier
        path.write_bytes(self.table)
        words = (VENDOR, "sentencepiece" if self.pieces else "tiktoken", path, pattern)
        env = {**os.environ, "PYTHONPATH": str(packages("sentencepiece", "tiktoken"))}
        given = "".join(json.dumps(text) + "\n" for text in texts)
        done = started(sys.executable, *words, env=env, given=given).ended()
        return [json.loads(line) for line in done.out.splitlines()]

    def led(self, texts: Iterable[str]) -> list[str]:
        """As texts stand in a row: SentencePiece's with the space that is put before them."""
        return [f" {text}" if self.pieces and text else text for text in texts]


def ids(encoder: encoders.Encoder, texts: list[str]) -> list[list[int]]:
    """Ids of each text."""
    flat, offsets = encoder.encode(texts)
    return [flat[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def _hard(subject: Subject) -> Iterator[str]:
    """Runs, pairs, code and vocabulary words."""
    yield from hard_texts.runs(hard_texts.CHARS)
    yield from hard_texts.runs(subject.doubled(), range(1, 201))
    yield from hard_texts.pairs()
    yield from hard_texts.indented(2000)
    yield from hard_texts.drawn(subject.words(), 5000)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        inside = value.values() if isinstance(value, dict) else value
        yield from itertools.chain.from_iterable(map(_strings, inside))


def _real(cases: Path) -> list[str]:
    """Every text of every real input file, GSM8K among them."""
    found: set[str] = set()
    for path in sorted(cases.rglob("*.json*")):
        lines = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
        for line in filter(None, lines):
            found.update(_strings(json.loads(line)))
    assert len(found) > 20_000
    return sorted(text for text in found if text.isprintable() or text.isascii())


def _same_as_the_vendors(subject: Subject, texts: Iterable[str], folder: Path) -> None:
    """Both encoders of a build give the vendor's ids; with ``-s`` it prints of how many texts."""
    texts = subject.led(texts)
    wanted = subject.vendor(folder, texts)
    for backend in encoders.BACKENDS:
        ours = ids(encoders.load(backend, subject.json), texts)
        assert [t for t, a, b in zip(texts, ours, wanted, strict=True) if a != b] == []
    say(f"{len(texts)} texts")


@pytest.mark.parametrize("name", few(["qwen2-1.5b", "mistral-7b-v0.3"], 1))
def test_some_ids_are_those_of_the_vendors_library(
    name: str, cache_dir: Path, tmp_path: Path
) -> None:
    """Of a small share of the hard texts."""
    some = (
        hard_texts.runs(hard_texts.CHARS, (1, 2, 3, 15, 16, 17, 18, 33, 64)),
        hard_texts.runs(" ", range(1, 201)),
        hard_texts.pairs(hard_texts.CHARS[:9], lengths=(1, 18)),
        hard_texts.indented(50),
    )
    texts = itertools.chain.from_iterable(some)
    _same_as_the_vendors(Subject(name, cache_dir), texts, tmp_path)


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_vendors_library(name: str, cache_dir: Path, tmp_path: Path) -> None:
    """Of sentencepiece or tiktoken, over texts that are hard."""
    subject = Subject(name, cache_dir)
    _same_as_the_vendors(subject, _hard(subject), tmp_path)


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "first"), [*itertools.product(NAMES, range(SHARES))])
def test_every_character_has_the_ids_of_the_vendors_library(
    name: str, first: int, cache_dir: Path, tmp_path: Path
) -> None:
    """Every code point, in several contexts; a commit asks for a share of them."""
    texts = hard_texts.every_character(first, SHARES)
    _same_as_the_vendors(Subject(name, cache_dir), texts, tmp_path)


@pytest.mark.sweep(2)
@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("name", NAMES)
def test_real_texts_have_the_ids_of_the_vendors_library(
    name: str, cases: Path, cache_dir: Path, tmp_path: Path
) -> None:
    """GSM8K among them."""
    _same_as_the_vendors(Subject(name, cache_dir), _real(cases), tmp_path)


def _model(*pieces: tuple[str, float, int]) -> bytes:
    """A SentencePiece model of these pieces: text, score, kind."""
    found = b""
    for text, score, kind in pieces:
        data = text.encode()
        inner = b"\x0a" + bytes([len(data)]) + data + b"\x15" + struct.pack("<f", score)
        inner += b"\x18" + bytes([kind])
        found += b"\x0a" + bytes([len(inner)]) + inner
    return found


def test_a_model_that_ranked_merges_cannot_follow_is_refused() -> None:
    """The conversion refuses what it could not convert exactly."""
    singles = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), *((c, -9.0, 1) for c in "ab▁")]
    layout = profiles.all_profiles()["mistral-7b-v0.1"].ranks
    assert layout is not None
    assert builders.BUILDERS["sentencepiece"](_model(*singles, ("ab", -1.0, 1)), layout)
    for words, *pieces in (
        ("tie", ("ab", -1.0, 1), ("ba", -1.0, 1)),
        ("users defined", ("ab", -1.0, 4)),
        ("joined last", ("▁▁", -1.0, 1), ("ab", -2.0, 1)),
        ("tie", ("▁▁a", -1.0, 1)),
        ("not a piece", ("az", -1.0, 1)),
    ):
        with pytest.raises(ValueError, match=words):
            builders.BUILDERS["sentencepiece"](_model(*singles, *pieces), layout)
