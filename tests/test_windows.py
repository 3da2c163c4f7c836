"""A build that is planned by windows stores what the same build in one window stores."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import NAME

import pipeline.shards.plan
from pipeline.build import build
from pipeline.options.config import Config
from pipeline.windows import window
from stages.readers import jsonl

Rows = list[dict[str, Any]]
SAME = ("rows", "examples", "sides", "sources", "doubles", "filters", "rm", "format", "inputs")


def _silent(what: str, done: int, total: int) -> None:
    return


def _questions(count: int, seed: int) -> Rows:
    """Rows of which some are equal, and some ask the same."""
    draw = random.Random(seed)
    rows = [
        {"question": f"What is {i % 70}?", "answer": f"It is {'so ' * draw.randrange(30)}{i % 90}."}
        for i in range(count)
    ]
    rows += draw.sample(rows, count // 6)
    draw.shuffle(rows)
    return [*rows, {"question": 7}]  # which is refused


def _pairs(count: int, seed: int) -> Rows:
    draw = random.Random(seed)
    return [
        {
            "prompt": f"q{i % 50}",
            "chosen": draw.choice("cdr") + " so" * draw.randrange(20) + draw.choice("xyz"),
            "rejected": draw.choice("cdr") + " no" * draw.randrange(20) + draw.choice("xyz"),
        }
        | ({"margin": i % 7 - 1.5} if i % 3 else {})
        for i in range(count)
    ]


def _stored(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The examples of each side in the order of storing, whatever the layout."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for path in sorted(folder.glob("*/data-*.arrow")):
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        own = found.setdefault(path.parent.name, [])
        for row in table.to_pylist():
            own += _examples(row)
    return found


def _examples(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    if "row_ids" in row:
        ends = np.cumsum(row["seq_lengths"]).tolist()
        cuts = list(zip([0, *ends[:-1]], ends, strict=True))
        return [
            (name, row["input_ids"][a:b], row["labels"][a:b])
            for name, (a, b) in zip(row["row_ids"], cuts, strict=True)
        ]
    masks = {name: row.pop(name) for name in list(row) if name.endswith("attention_mask")}
    if not masks:
        return [tuple(row.values())]
    there = next(iter(masks.values()))
    kept = {
        name: [one for one, mask in zip(value, there, strict=True) if mask]
        if isinstance(value, list) and len(masks) == 1
        else value
        for name, value in row.items()
    }
    return [tuple(kept.values())]


def _multiset(examples: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, examples))


class Shop:
    """Builds of inputs of many small parts."""

    def __init__(self, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.cache = folder, cache
        self._patch = monkeypatch
        monkeypatch.setattr(jsonl, "SPLIT_BYTES", 700)
        monkeypatch.setattr(pipeline.shards.plan, "SHARD_TOKENS", 700)

    def windows(self, parts: int) -> None:
        self._patch.setattr(window, "WINDOW_PARTS", parts)

    def write(self, name: str, rows: Rows) -> str:
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return str(path)

    def config(self, task: str, data: list[str], output: str, **options: Any) -> Config:
        fixed = {"cache_dir": self.cache, "workers": 1, "max_reject": 1.0, "max_length": 256}
        return Config.of(task, tuple(data), NAME, self.folder / output, **{**fixed, **options})

    def build(self, task: str, data: list[str], output: str, parts: int, **options: Any) -> Path:
        self.windows(parts)
        build(self.config(task, data, output, **options), _silent)
        return self.folder / output


@pytest.fixture
def shop(tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """With a cache of its own."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache_dir / "tokenizers").mkdir(parents=True, exist_ok=True)
    (cache / "tokenizers").symlink_to(cache_dir / "tokenizers")
    return Shop(tmp_path, cache, monkeypatch)


def _manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return content


def _require_same(one: Path, other: Path) -> None:
    """Both store the same examples on the same sides, and say the same of every row."""
    mine, theirs = _stored(one), _stored(other)
    assert {side: _multiset(own) for side, own in mine.items()} == {
        side: _multiset(own) for side, own in theirs.items()
    }
    said, known = _manifest(one), _manifest(other)
    assert {name: said.get(name) for name in SAME} == {name: known.get(name) for name in SAME}
    for name in ("total", "trained", "truncated"):
        assert said["tokens"][name] == known["tokens"][name]
    assert (one / "rejects.jsonl").read_bytes() == (other / "rejects.jsonl").read_bytes()


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("sft", {"layout": "packed"}),
    ("sft", {"layout": "packed", "dedup": True, "test_size": 0.2}),
    ("sft", {"layout": "packed", "pack_within": "part"}),
    ("sft", {"layout": "padded", "test_size": 0.3, "padding_side": "right"}),
    ("sft", {"layout": "ragged", "dedup": True}),
    ("rm", {"layout": "ragged", "dedup": True, "test_size": 0.2}),
    ("rm", {"layout": "padded"}),
    ("sft", {"layout": "packed", "shuffle": True, "seed": 3, "dedup": True, "test_size": 0.2}),
    ("sft", {"layout": "ragged", "shuffle": True}),
    ("sft", {"layout": "packed", "shuffle": True, "pack_within": "part"}),
    ("rm", {"layout": "padded", "shuffle": True}),
    ("sft", {"layout": "ragged", "shuffle": True, "total": 3000}),
    # What needs all examples in one memory is laid out by windows all the same.
    ("sft", {"layout": "packed", "total": 2000, "test_size": 0.2}),
    ("sft", {"layout": "ragged", "filter": ("n_tokens < 60",)}),
]


@pytest.mark.parametrize(("task", "options"), OPTIONS)
def test_windows_store_what_one_window_stores(
    task: str, options: dict[str, Any], shop: Shop
) -> None:
    """The same examples, sides and counts; without an order to keep, the same order."""
    rows = _pairs(110, 3) if task == "rm" else _questions(130, 2)
    data = [shop.write("a.jsonl", rows[:70]), shop.write("b.jsonl", rows[70:])]
    one = shop.build(task, data, "one", 64, **options)
    many = shop.build(task, data, "many", 3, **options)
    _require_same(many, one)
    if options["layout"] != "packed":
        assert _stored(many) == _stored(one)
