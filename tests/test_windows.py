"""A build that is planned by windows stores what the same build in one window stores."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from conftest import NAME
from hypothesis import given
from hypothesis import strategies as st
from support import few, files_of, raised, read_manifest, silent, table, write_rows

import pipeline.shards.plan
from expectations import contract, shard_laws, tallies
from pipeline.builder import preparation
from pipeline.builder.planning import make_parts, plan
from pipeline.options.config import Config
from pipeline.run_build import build
from pipeline.shards import collect, doubles, part
from pipeline.shards import plan as planning
from pipeline.tasks import kind_of
from stages import findings
from stages.errors import DataError
from stages.readers import jsonl

Rows = list[dict[str, Any]]
SAME = ("rows", "examples", "sides", "sources", "doubles", "filters", "rm", "format", "inputs")


def _questions(count: int, seed: int) -> Rows:
    """Rows of which some are equal, and some ask the same."""
    draw = random.Random(seed)
    rows = [
        {
            "question": f"What is {i % 70}?",
            "answer": f"It is {'so ' * draw.randrange(30)}{i % 90}.",
            "of": f"{i % 37}",
        }
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
    """The examples of each side in the order of storing; those of packs one by one."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for path in sorted(folder.glob("*/data-*.arrow")):
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        own = found.setdefault(path.parent.name, [])
        for row in table.to_pylist():
            own += _unpacked(row) if "row_ids" in row else [tuple(row.values())]
    return found


def _unpacked(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    ends = [0, *np.cumsum(row["seq_lengths"]).tolist()]
    return [
        (name, row["input_ids"][a:b], row["labels"][a:b])
        for name, (a, b) in zip(row["row_ids"], pairwise(ends), strict=True)
    ]


class Shop:
    """Builds of inputs of many small parts."""

    def __init__(self, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.cache = folder, cache
        self._patch = monkeypatch
        monkeypatch.setattr(jsonl, "SPLIT_BYTES", 700)
        monkeypatch.setattr(pipeline.shards.plan, "SHARD_TOKENS", 700)

    def windows(self, parts: int) -> None:
        self._patch.setattr(planning, "WINDOW_PARTS", parts)

    def write(self, name: str, rows: Rows) -> str:
        return str(write_rows(self.folder / name, rows))

    def config(self, task: str, data: list[str], output: str, **options: Any) -> Config:
        fixed = {"cache_dir": self.cache, "workers": 1, "max_reject": 1.0, "max_length": 256}
        return Config.of(task, tuple(data), NAME, self.folder / output, **{**fixed, **options})

    def build(self, task: str, data: list[str], output: str, parts: int, **options: Any) -> Path:
        self.windows(parts)
        build(self.config(task, data, output, **options), silent)
        return self.folder / output


@pytest.fixture
def shop(tmp_path, cache, monkeypatch) -> Shop:
    """With a cache of its own."""
    return Shop(tmp_path, cache, monkeypatch)


def _require_same(one: Path, other: Path) -> None:
    """Both store the same examples on the same sides, and say the same of every row."""
    mine, theirs = (
        {side: Counter(map(repr, own)) for side, own in _stored(folder).items()}
        for folder in (one, other)
    )
    assert mine == theirs
    said, known = read_manifest(one), read_manifest(other)
    assert {name: said.get(name) for name in SAME} == {name: known.get(name) for name in SAME}
    for name in ("total", "trained", "truncated"):
        assert said["tokens"][name] == known["tokens"][name]
    assert (one / "rejects.jsonl").read_bytes() == (other / "rejects.jsonl").read_bytes()


OPTIONS: list[tuple[str, dict[str, Any]]] = [*map(tuple, table("windows.jsonl"))]


@given(
    counts=st.lists(st.integers(0, 9), max_size=30), more=st.lists(st.integers(0, 9), max_size=5)
)
def test_a_window_is_as_long_as_its_two_limits_allow(counts, more):
    """Parts, and examples unless it has one part; parts that are appended change the last alone."""
    with (
        mock.patch.object(planning, "WINDOW_PARTS", 3),
        mock.patch.object(planning, "WINDOW_EXAMPLES", 8),
    ):
        bounds = _cut(counts)
        longer = _cut(counts + more)
    pieces = [counts[first:end] for first, end in pairwise(bounds)]
    assert [one for piece in pieces for one in piece] == counts
    for piece, after in pairwise([*pieces, []]):
        assert 1 <= len(piece) <= 3
        assert len(piece) == 1 or sum(piece) <= 8
        assert not after or len(piece) == 3 or sum(piece) + after[0] > 8
    assert longer[: len(bounds) - 1] == bounds[:-1]


def _cut(examples: list[int]) -> list[int]:
    """The part with which each window begins, and the number of parts."""
    reports = [part.PartReport(lines=count, examples=count) for count in examples]
    works: Any = [SimpleNamespace(files=SimpleNamespace(plan=Path()), source=0) for _ in examples]
    sources = [collect.PartSource("", "", 0) for _ in examples]
    bounds = [0]
    for one in planning.windows_of(works, reports, sources):
        assert one.first == sum(examples[: bounds[-1]])
        bounds.append(bounds[-1] + len(one.members))
    return bounds


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("task", "options"), few(OPTIONS, 1))
def test_windows_store_what_one_stores(task, options, shop):
    """The same examples, sides and counts; without an order to keep, the same order."""
    rows = _pairs(80, 3) if task == "rm" else _questions(80, 2)
    data = [shop.write("a.jsonl", rows[:50]), shop.write("b.jsonl", rows[50:])]
    one = shop.build(task, data, "one", 64, **options)
    parts = random.Random(repr(options)).randrange(1, 9)
    many = shop.build(task, data, "many", parts, **options)
    _require_same(many, one)
    if options["layout"] != "packed":
        assert _stored(many) == _stored(one)


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(shop, tmp_path, monkeypatch):
    """One worker and three."""
    monkeypatch.setattr(pipeline.shards.plan, "SHARD_TOKENS", 1 << 23)  # as other processes have it
    data = [shop.write("a.jsonl", _questions(110, 5))]
    options = {"layout": "packed", "shuffle": True, "dedup": True, "test_size": 0.2}
    for workers in (1, 3):
        shop.build("sft", data, f"w{workers}", 3, workers=workers, **options)
    assert files_of(tmp_path / "w1") == files_of(tmp_path / "w3")
    assert not (shop.cache / "builds").exists()


def test_equal_examples_of_two_windows_are_not_put_apart(shop):
    """A column that puts them on both sides is refused, whichever windows they are in."""
    rows = [
        {"question": f"q{i % 40}", "answer": f"so {i % 40}", "of": f"{i // 40}"} for i in range(120)
    ]
    data = [shop.write("a.jsonl", rows)]
    options = {"layout": "ragged", "test_size": 0.4, "group_by": "of", "seed": 1}
    said = []
    for parts in (64, 2):
        with pytest.raises(DataError, match="equal to an example in the other split") as caught:
            shop.build("sft", data, f"out{parts}", parts, **options)
        said.append(caught.value.what)
    assert said[0] == said[1]


def test_a_shared_digest_is_looked_into(shop, monkeypatch):
    """``--dedup`` leaves nothing out for its digest alone."""
    data = [shop.write("a.jsonl", _questions(60, 9))]
    shop.windows(2)
    prepared = preparation.prepare(shop.config("sft", data, "out", layout="ragged", dedup=True))
    made = make_parts(prepared, silent)
    same = np.zeros(1, doubles.DIGEST)[0]
    read = doubles.digests_of

    def forged(column: pa.ChunkedArray) -> doubles.Digests:
        found = read(column).copy()
        found[:1] = same
        return found

    monkeypatch.setattr(doubles, "digests_of", forged)
    raised(DataError, plan, prepared, made, says="differ, and have the same digest")


# Parts to shards: a shard holds what is picked, and nothing is left out for its digest alone.


def test_rows_that_decide_break_what_any_row_breaks(model):
    """On any metrics, in any pieces: a check that any row breaks is broken by a row that is kept,
    and by all that break it where these are few."""
    context = contract.Context(kind_of("sft"), "ragged", 64, model, contract.PLANNED)
    checks, bounds = tallies.checks_of(context, contract.EXAMPLE), contract.parameters(context)
    names = dict.fromkeys(name for check in checks for name in check.columns)
    odd = [-(2**63), -1, 0, 1, 2, 99, 2**63 - 1]
    for seed in range(60):
        draw = np.random.default_rng(seed)
        rows, share, usual = int(draw.integers(1, 60)), [0.0, 0.1, 1.0][seed % 3], seed % 2
        metrics = {
            name: np.where(draw.random(rows) < share, draw.choice(odd, rows), usual)
            for name in names
        }
        cut = int(draw.integers(0, rows))
        pieces = [{n: v[s] for n, v in metrics.items()} for s in (slice(cut), slice(cut, None))]
        kept = [tallies.tally(piece, checks) for piece in pieces if len(piece["n_tokens"])]
        found, whole = tallies.joined(kept, checks), tallies.tally(metrics, checks)
        assert found.rows == whole.rows
        assert found.at.tolist() == whole.at.tolist()
        for check in checks:
            bad = set(np.flatnonzero(check.broken(metrics, bounds)).tolist())
            shown = set(found.at[check.broken(found.shown, bounds)].tolist())
            assert shown == bad if len(bad) <= findings.NAMED else len(shown) >= findings.NAMED
        for name, column in found.shown.items():
            assert column.tolist() == metrics[name][found.at].tolist()


@given(
    rows=st.lists(st.tuples(*[st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])] * 3), max_size=9)
)
def test_distinct_rows_are_counted(rows):
    """Also of numbers too large to be joined into one."""
    a, b, c = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    assert shard_laws.n_distinct(shard_laws.as_one(a, b, c)) == len(set(rows))
    assert shard_laws.n_distinct_pairs(a, b) == len({row[:2] for row in rows})
