"""Any conversation, however odd: ids and labels are those of Hugging Face, on both ways of ours.

``PARITY_ROWS=100000 pytest -m slow tests/test_adversarial.py -s`` reads so many for each tokenizer
and prints what was found.
"""

import functools
import io
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import adversarial
import pyarrow as pa
import pytest
from encoding import model_of
from rows import normalizing
from support import say
from transformers import AutoTokenizer
from whole_rendering import Expected, WholeRendering

from pipeline.serving.serving import write_tokenizer
from pipeline.shards.chain import Refusal, refusals, through
from stages import encoders, profile
from stages.chat_template.render import Render, Renderer
from stages.contract import Row
from stages.readers import jsonl
from stages.rows import stop_text
from stages.tokenizers.profiles import all_profiles
from stages.tokens import folded_labels, segment_encoder
from stages.tokens.encode import COLUMNS, Encode
from stages.tokens.outline_tokens import OutlineEncoder

ROWS = int(os.environ.get("PARITY_ROWS", "3000"))
BATCH = 2000
FEW = 240
_COMPARED = ("line", "sequence", "input_ids", "labels", "merged_cuts", "controls", "digest")


def _names() -> list[str]:
    """One profile for each built-in tokenizer and chat template."""
    found = {
        (profile.ranks.sha256, profile.chat_template): name
        for name, profile in sorted(all_profiles().items(), reverse=True)
        if profile.ranks is not None
    }
    return sorted(found.values())


NAMES = _names()
QUICK = "qwen2-0.5b"  # the others are slow to load


class Options(NamedTuple):
    """What a build is told: the system text of conversations without one, and what is trained."""

    system: str | None = None
    train_on: str = "assistant"


class Build:
    """A build from lines of JSON to ids, as columns or row by row."""

    def __init__(self, model: profile.TargetModel, options: Options, columnar: bool) -> None:
        by_turn = model.profile.one_example_per_turn
        encoder = encoders.load(encoders.choose(model.tokenizer_json), model.tokenizer_json)
        train_on = options.train_on
        self._normalize = normalizing("sft", "openai", train_on, by_turn)
        render = Render(Renderer(model, train_on), system=options.system)
        encode = Encode(segment_encoder.SegmentEncoder(model, encoder, 1 << 20, "reject"))
        if not columnar:
            vars(self._normalize)["_may_be_plain"] = False
            vars(render)["_shapes"] = lambda batch, column: []
            encode.encoder.outlines = None
        self._stages = (render, encode)

    def __call__(self, rows: list[Row]) -> tuple[pa.Table, list[Refusal], int]:
        """The sequences that stay, those that are refused, and how many went as columns."""
        lines = (json.dumps(row, ensure_ascii=i % 2 > 0).encode() for i, row in enumerate(rows))
        (read,) = jsonl.records(io.BytesIO(b"".join(line + b"\n" for line in lines)), at_start=True)
        made, gone = through(self._normalize(read.records), self._stages)
        fast = sum(way == COLUMNS for way in made.column("encoded").to_pylist())
        kept = pa.Table.from_batches([folded_labels.unfold(made).select(_COMPARED)])
        return kept, sorted(refusals(gone), key=lambda one: (one.line, one.sequence)), fast


def _both(model: profile.TargetModel, options: Options) -> tuple[Options, Build, Build]:
    return options, Build(model, options, columnar=True), Build(model, options, columnar=False)


def _blank(turns: list[dict[str, str]], detail: str) -> bool:
    return any(not turn["content"].strip() for turn in turns if turn["role"] == "assistant")


def _said(*texts: str) -> Callable[[list[dict[str, str]], str], bool]:
    return lambda turns, detail: any(text in t["content"] for t in turns for text in texts)


# By code, what must be so of a row that Hugging Face prints.
REASONS: dict[str, Callable[[list[dict[str, str]], str], bool]] = {
    "empty_answer": _blank,
    "begins_with_assistant": lambda turns, detail: "assistant" in [t["role"] for t in turns][:2],
    "unclosed_reasoning": _said("<think>"),
    "control_text": _said("[INST]", "[/INST]"),
    "already_templated": lambda turns, detail: any(
        stop_text.opens(turn["content"]) is not None for turn in turns
    ),
    # Judged by the shape: between two answers in a row some templates ask what the first one says.
    "not_prefix_stable": lambda turns, detail: any(
        a["role"] == b["role"] == "assistant" for a, b in itertools.pairwise(turns)
    ),
    # A template may leave out reasoning, and print one of several system texts.
    "lost_in_template": lambda turns, detail: (
        "system" in [turn["role"] for turn in turns[1:]] or _said("</think>")(turns, detail)
    ),
}


class Parity:
    """Compares rows of one model, and counts."""

    def __init__(self, name: str, cache: Path, folder: Path) -> None:
        self.model = model_of(name, cache)
        folder.mkdir(exist_ok=True)
        write_tokenizer(folder / name, self.model)
        self._whole = WholeRendering(self.model, AutoTokenizer.from_pretrained(folder / name))
        parsed = encoders.parsed(self.model.tokenizer_json)
        words = (parsed.decode([i]) for i in range(0, self.model.profile.vocab_size, 37))
        self.family = adversarial.family(self.model, [word for word in words if word])
        self.counted: Counter[str] = Counter()
        system = f" Be {self.model.profile.end_of_turn}brief.\n"
        every = (Options(), Options(system), Options(train_on="last"))
        self.builds = [_both(self.model, one) for one in every]

    def __call__(self, rows: list[Row], turn: int) -> None:
        """Both ways are equal, and what Hugging Face gives; each turn with other options.

        Raises:
            AssertionError: a row differs; the message has it.
        """
        options, columnar, careful = self.builds[turn % len(self.builds)]
        made, refused, fast = columnar(rows)
        made_too, refused_too, slow = careful(rows)
        assert not slow
        assert refused == refused_too
        assert made.equals(made_too), _first(made, made_too, rows)
        self.counted.update(rows=len(rows), sequences=made.num_rows, columnar=fast)
        last = options.train_on == "last"
        expected = [self._whole.sequences(row["messages"], options.system, last) for row in rows]
        left = {(i, n): one for i, some in enumerate(expected) for n, one in enumerate(some)}
        for row in made.to_pylist():
            self._same(row, left.pop((row["line"], max(row["sequence"], 0))), rows[row["line"]])
        for one in refused:
            self._refused(one, left, rows[one.line])
        assert not left, rows[min(left)[0]]

    def _same(self, row: Row, found: Expected | None, source: Row) -> None:
        assert found is not None, ("Hugging Face does not print it", source)
        wanted = (found.ids, found.labels, found.merged)
        assert (row["input_ids"], row["labels"], row["merged_cuts"]) == wanted, source
        if found.whole is None:
            self.counted["with control text"] += 1
        else:
            assert (found.whole == found.ids) == (not found.merged), source
            self.counted["equal to the whole text"] += found.whole == found.ids
        self.counted["with merged cuts"] += found.merged > 0
        self.counted["merged cuts"] += found.merged

    def _refused(self, one: Refusal, left: dict[tuple[int, int], Any], source: Row) -> None:
        """A refusal has a reason: the row cannot be printed, or is as its code says."""
        whole = one.stage == "normalize"  # which refuses all sequences of an example as one
        gone = [at for at in left if at[0] == one.line and (whole or at[1] == max(one.sequence, 0))]
        printed = [at for at in gone if left.pop(at) is not None]
        if printed:
            assert REASONS[one.code](source["messages"], one.detail), (one, source)
        self.counted[f"refused: {one.code}"] += 1


def _first(one: pa.Table, other: pa.Table, rows: list[Row]) -> Any:
    pairs = itertools.zip_longest(one.to_pylist(), other.to_pylist())
    return next((rows[a["line"]], a, b) for a, b in pairs if a != b)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where tokenizers are written."""
    return tmp_path_factory.mktemp("adversarial")


@functools.cache
def _parity(name: str, cache: Path, folder: Path) -> Parity:
    return Parity(name, cache, folder)


def judge(parity: Parity, seed: int, count: int) -> Counter[str]:
    """What was counted over so many rows."""
    parity.counted.clear()
    rows = itertools.islice(adversarial.conversations(parity.family, seed), count)
    size = min(BATCH, -(-count // 3))
    for turn in range(-(-count // size)):
        parity(list(itertools.islice(rows, size)), turn)
    return parity.counted


def _require_all_kinds(counted: Counter[str], count: int) -> None:
    """Most rows are compared, and odd ones are among them."""
    assert counted["rows"] == count
    assert counted["sequences"] > 0.6 * count
    assert counted["with control text"] > 0.1 * count
    assert counted["with merged cuts"] + counted["equal to the whole text"] > 0.3 * count


def test_ids_and_labels_are_those_of_huggingface(cache_dir, folder):
    """A few hundred rows."""
    _require_all_kinds(judge(_parity(QUICK, cache_dir, folder), 1, FEW), FEW)


@pytest.mark.sweep(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ids_and_labels_of_many_rows(name, cache_dir, folder):
    """As many as ``PARITY_ROWS`` says."""
    started = time.process_time()
    counted = judge(Parity(name, cache_dir, folder / "many"), 2, ROWS)
    say(f"{name}: {time.process_time() - started:.0f} s, {dict(sorted(counted.items()))}")
    _require_all_kinds(counted, ROWS)


def _another_id(encoded: Any) -> Any:
    folded = encoded.folded.copy()
    folded[-3] ^= 1
    return replace(encoded, folded=folded)


def _forged(self: Any, real: Callable[..., Any], *texts: Any) -> Any:
    """Encodes texts with the control tokens in them."""
    kept, self._encoder = self._encoder, SimpleNamespace(encode=self._encoder.encode_whole)
    try:
        return real(self, *texts)
    finally:
        self._encoder = kept


def _columns_alone(patch: pytest.MonkeyPatch) -> None:
    real = OutlineEncoder.__call__
    patch.setattr(OutlineEncoder, "__call__", lambda *given: _another_id(real(*given)))


def _controls_forged(patch: pytest.MonkeyPatch) -> None:
    for kind, name in ((segment_encoder.SegmentEncoder, "_pieces"), (OutlineEncoder, "_own")):
        patch.setattr(kind, name, functools.partialmethod(_forged, getattr(kind, name)))


@pytest.mark.parametrize("plant", [_columns_alone, _controls_forged])
def test_a_planted_fault_is_found(plant, cache_dir, folder, monkeypatch):
    """In one way of the build or in both, as Hugging Face shares neither."""
    parity = _parity(QUICK, cache_dir, folder)
    plant(monkeypatch)
    fresh = [_both(parity.model, options) for options, _, _ in parity.builds]
    monkeypatch.setattr(parity, "builds", fresh)
    with pytest.raises(AssertionError):
        judge(parity, 1, FEW)
