"""``--index-only``: examples are stored once, and packs are an index of them."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from support import noted, raised, rows_to, silent

import pipeline.shards.plan
from pipeline.builder.exporting import export_build
from pipeline.builds.build import Build
from pipeline.builds.limits import Built
from pipeline.builds.packs import Packs
from pipeline.builds.summary import summary
from pipeline.options.config import Config
from pipeline.options.recipe import builds_of
from pipeline.publish.check import check
from pipeline.report import difference, numbers
from pipeline.run_build import build
from pipeline.shards import gather, pack_index, plan
from stages.errors import DataError, UsageError
from stages.readers import jsonl

NAME = "qwen2-1.5b"
Rows = list[dict[str, Any]]


def questions(lengths: list[int], start: int = 0) -> Rows:
    """Questions whose answers have about so many tokens."""
    return [
        {"question": f"q{start + i}", "answer": " ".join(["w"] * length)}
        for i, length in enumerate(lengths)
    ]


class Bench:
    """Builds from rows, in a folder of their own."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        folder.mkdir(exist_ok=True)

    def write(self, name: str, rows: Rows) -> str:
        path = self.folder / name
        rows_to(path, *rows)
        return str(path)

    def build(self, output: str, data: str, task: str = "sft", **options: Any) -> Build:
        common = {"workers": 1, "max_length": 64, "max_reject": 1.0, "cache_dir": self.cache}
        config = Config.of(task, (data,), NAME, self.folder / output, **{**common, **options})
        build(config, silent)
        return Build.open(self.folder / output)

    def both(self, data: str, task: str = "sft", **options: Any) -> tuple[Build, Build]:
        """The same recipe as packed rows, and as an index."""
        packed = self.build("packed", data, task, layout="packed", **options)
        return packed, self.build("indexed", data, task, index_only=True, **options)

    def of_recipe(self, output: str, layout: str, *sources: str) -> Built:
        """A build of a recipe, of which each source is lines of TOML."""
        recipe = self.folder / f"{output}.toml"
        recipe.write_text(
            f'task = "sft"\nmodel = "{NAME}"\noutput = "{self.folder / output}"\n{layout}\n'
            f'max-length = 64\nworkers = 1\ncache-dir = "{self.cache}"\n'
            + "".join(f"[[source]]\n{one}\n" for one in sources)
        )
        (config,) = builds_of(recipe)
        return build(config, silent)


@pytest.fixture
def bench(tmp_path, cache_dir, monkeypatch) -> Bench:
    monkeypatch.setattr(pipeline.shards.plan, "SHARD_TOKENS", 512)
    return Bench(tmp_path / "bench", cache_dir)


def same_rows(packed: Build, indexed: Build) -> None:
    """Every pack of the index, however it is read, is the packed row: ids, columns and types."""
    assert list(indexed.manifest.packs) == list(packed.splits)
    for name, split in packed.splits.items():
        table = pa.concat_tables(list(split.tables()))
        packs = Packs(indexed, name)
        assert packs.schema == table.schema
        assert packs.column_names == table.schema.names
        assert len(packs) == packs.num_rows == len(table)
        assert packs.table(0, len(packs)).equals(table.combine_chunks())
        plain = [{n: _plain(v) for n, v in row.items()} for row in packs]
        assert plain == table.to_pylist()
        assert [_plain(v) for v in packs[-1].values()] == [_plain(v) for v in plain[-1].values()]
        some = packs[1:3]
        assert {n: [_plain(v) for v in some[n]] for n in some} == table.slice(1, 2).to_pydict()


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def shard_bytes(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for side in ("train", "test")
        for path in sorted((folder / side).glob("*.arrow"))
    }


def inodes(build: Build) -> dict[str, int]:
    """Which file each shard is."""
    return {one.path: (build.folder / one.path).stat().st_ino for one in build.manifest.shards}


def exported(packed: Build, indexed: Build, bench: Bench) -> None:
    """Both are sound, and an export of the index writes the shards that the packed build has."""
    assert check(indexed.folder, bench.cache).faults == []
    rows = bench.folder / "rows"
    export_build("transformers", indexed.folder, rows)
    assert shard_bytes(rows) == shard_bytes(packed.folder)
    assert check(rows, bench.cache).faults == []


SLOW = pytest.mark.slow
OPTIONS = [
    pytest.param(1, {"shuffle": True, "test_size": 0.25, "seed": 3}, id="sides"),
    pytest.param(1, {"dedup": True, "pack_within": "part"}, id="parts", marks=SLOW),
    pytest.param(1, {"filter": ("n_tokens > 20",)}, id="filter", marks=SLOW),
    pytest.param(9, {"test_size": 0.25}, id="windows", marks=SLOW),
    pytest.param(9, {"dedup": True, "filter": ("n_tokens > 9",)}, id="windows_filter", marks=SLOW),
]


def same_to_diff(packed: Build, indexed: Build) -> None:
    """Both train the same examples, copies included, and ``diff`` names each as stored."""
    rows, of_packs = numbers.read(packed), numbers.read(indexed)
    matched = numbers.match(rows, of_packs)
    assert len(matched.same) == len(rows) == len(of_packs)
    places = matched.same.one[::7], matched.same.other[::7]
    each = list(map(difference.examples_at, (packed, indexed), places))
    assert each[0] == each[1]
    assert len(each[0]) > 1


@pytest.mark.parametrize(("windows", "options"), OPTIONS)
def test_an_index_is_read_as_the_packed_build(bench, monkeypatch, windows, options):
    """Of one window, or of many, which cannot be shuffled."""
    if windows > 1:
        monkeypatch.setattr(plan, "WINDOW_PARTS", 2)
        monkeypatch.setattr(jsonl, "SPLIT_BYTES", 1000)
    rows = questions([(7 * i) % 40 + 1 for i in range(120)])
    data = bench.write("a.jsonl", [*rows, *rows[:10]])
    packed, indexed = bench.both(data, **options)
    assert packed.manifest.packing == indexed.manifest.packing
    assert packed.manifest.examples == indexed.manifest.examples
    assert (packed.manifest.windows is None) == (windows == 1)
    same_rows(packed, indexed)
    same_to_diff(packed, indexed)
    exported(packed, indexed, bench)
    if windows > 1:
        raised(UsageError, bench.both, data, shuffle=True, says="Leave --shuffle out")


def test_an_export_of_large_shards_has_the_bytes_of_the_packed_build(bench, monkeypatch):
    """Shards of several record batches: a batch has buffers of its own, not slices."""
    monkeypatch.setattr(pipeline.shards.plan, "SHARD_TOKENS", 1 << 23)
    data = bench.write("a.jsonl", questions([i % 9 + 1 for i in range(1400)]))
    packed, indexed = bench.both(data)
    assert packed.manifest.packing.packs > 512
    export_build("transformers", indexed.folder, bench.folder / "rows")
    assert shard_bytes(bench.folder / "rows") == shard_bytes(packed.folder)


@pytest.mark.slow
def test_steps_and_weights_are_read_as_in_packed_rows(bench):
    steps = [
        {"prompt": f"q{i}", "completions": ["a " * (i % 5 + 1), "b"], "labels": [True, i % 2 == 0]}
        for i in range(40)
    ]
    same_rows(*bench.both(bench.write("steps.jsonl", steps), "prm"))


def test_the_trained_share_of_an_index_is_of_its_packs(bench):
    """With copies more is trained than is stored; every page says what the packed build says."""
    data = bench.write("a.jsonl", questions([1, 2, 3, 4, 5, 6]))
    source = f'name = "a"\ndata = "{data}"\nepochs = 9'
    packed = bench.of_recipe("packed", 'layout = "packed"', source)
    indexed = bench.of_recipe("indexed", "index-only = true", source)
    stored = indexed.build.manifest.tokens.total
    total, trained = packed.build.manifest.tokens.total, packed.build.manifest.tokens.trained
    assert indexed.build.manifest.tokens.trained == trained > stored
    assert indexed.build.manifest.tokens_in_rows == total == 9 * stored
    of_stored = f"; {stored:,} stored, each example once"
    (said,) = [one for one in summary(packed) if one.startswith("tokens ")]
    assert said + of_stored in summary(indexed)
    files = [one.build.folder / "audits.json" for one in (packed, indexed)]
    audits = [audit for one in files for audit in json.loads(one.read_text())["audits"]]
    figures = (figure for audit in audits for figure in audit["figures"])
    whole = [figure for figure in figures if figure["name"] == "all turns"]
    assert whole[0] == whole[1]
    assert whole[0]["value"] == round(trained / total, 6)
    card = (indexed.build.folder / "README.md").read_text()
    assert f"| tokens in packs | {total:,} |" in card
    assert f"| tokens stored | {stored:,} |" in card
    page = (indexed.build.folder / "report.html").read_text()
    assert f"{stored:,} stored, each example once" in page
    assert f"{100 * trained / total:.1f}% of all" in page


@pytest.mark.slow
def test_another_length_writes_the_index_alone(bench, monkeypatch):
    """No shard is made, every file is the one that was there, and its rows are judged."""
    data = bench.write("a.jsonl", questions([(5 * i) % 40 + 1 for i in range(150)]))
    before = inodes(bench.build("indexed", data, index_only=True))
    assert len(before) > 3
    judged = noted(monkeypatch, gather, "read_back", lambda shared, shard, *_: shard.path)
    again = bench.build("indexed", data, index_only=True, max_length=256)
    assert sorted(judged) == sorted(before)
    assert inodes(again) == before
    same_rows(bench.build("scratch", data, layout="packed", max_length=256), again)


@pytest.mark.slow
def test_another_budget_writes_the_index_alone(bench):
    """What only another budget would use is stored; what is used twice is named twice."""
    one = bench.write("one.jsonl", questions([(3 * i) % 30 + 1 for i in range(60)]))
    two = bench.write("two.jsonl", questions([(7 * i) % 30 + 1 for i in range(60)], start=100))

    def mixed(output: str, budget: str, layout: str) -> Build:
        twice = f'name = "one"\ndata = "{one}"\nepochs = 2'
        bench.of_recipe(output, layout, twice, f'name = "two"\ndata = "{two}"\n{budget}')
        return Build.open(bench.folder / output / "current")

    first = mixed("indexed", "rows = 20", "index-only = true")
    packed = mixed("packed", "rows = 20", 'layout = "packed"')
    same_rows(packed, first)
    assert sum(split.record.examples for split in first.splits.values()) == 120
    same_to_diff(packed, first)
    exported(packed, first, bench)
    before = inodes(first)
    again = mixed("indexed", "rows = 50", "index-only = true")
    assert inodes(again) == before
    assert again.manifest.packs["train"].examples == first.manifest.packs["train"].examples + 30
    found = difference.difference(first, again)
    assert (found["examples"]["same"], found["examples"]["added"]) == (140, 30)
    assert {one["row_id"].split(":")[0] for one in found["shown"]["added"]} == {"two.jsonl"}
    for side, built in (("a", first), ("b", again)):
        train = found["splits"][side]["train"]
        assert train["tokens"] == built.manifest.packs["train"].tokens
        assert train["trained"] == built.manifest.tokens.trained


@pytest.fixture(scope="module")
def indexed(tmp_path_factory, cache_dir) -> Build:
    """A build that tests look at, or damage and mend."""
    bench = Bench(tmp_path_factory.mktemp("index"), cache_dir)
    data = bench.write("a.jsonl", questions([3, 9, 4, 20, 7] * 40))
    return bench.build("indexed", data, index_only=True)


def test_others_read_the_examples_and_are_told_how_to_get_rows(indexed):
    rows = datasets.load_from_disk(str(indexed.folder))["train"]
    assert rows["row_id"] == [f"a.jsonl:{i}" for i in range(1, 201)]
    trl = indexed.manifest.trainers["trl"]
    assert not trl.supported
    assert "pipeline export trl DIR -o OUT" in trl.detail


def test_no_row_is_pickled(indexed):
    """Beside the build, whose manifest says how many there are, hardly anything is."""
    packs = Packs(indexed.folder)
    packs[0]
    content = pickle.dumps(packs)
    # 200 rows: 6,700 with them
    assert len(content) - len(pickle.dumps(Build.open(indexed.folder))) < 3_000
    assert pickle.loads(content)[0]["row_ids"] == packs[0]["row_ids"]


def _without(rows: Rows) -> Rows:
    return rows[:-1]


def _twice(rows: Rows) -> Rows:
    rows[0]["examples"][0] = rows[1]["examples"][0]
    return rows


def _absent(rows: Rows) -> Rows:
    rows[0]["examples"][0] = 10_000
    return rows


def _shorter(rows: Rows) -> Rows:
    rows[0]["tokens"] -= 1
    return rows


def _joined(rows: Rows) -> Rows:
    first, second, *rest = rows
    return [{name: first[name] + second[name] for name in first}, *rest]


def test_a_damaged_index_is_found(indexed):
    """By its hash, and by the law that it breaks; one that does not open, by whoever reads it."""
    path = indexed.folder / indexed.manifest.packs["train"].path
    sound, table = path.read_bytes(), pack_index.read(path)

    def codes() -> set[str]:
        return {fault.code for fault in check(indexed.folder, Path("cache")).faults}

    for change, law in (
        (_without, "index_complete"),
        (_twice, "index_complete"),
        (_absent, "index_names_stored_examples"),
        (_shorter, "index_tokens_match"),
        (_joined, "pack_within_max_length"),
    ):
        rows = change(copy.deepcopy(table.to_pylist()))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, pack_index.SCHEMA) as out:
            out.write_table(pa.Table.from_pylist(rows, schema=pack_index.SCHEMA))
        assert {"hash", law} <= codes(), change
    path.write_bytes(sound[:50])
    assert "unjudged" in codes()
    raised(DataError, Packs, indexed.folder, says="cannot be read")
    path.write_bytes(sound)


def test_the_layout_of_an_index_is_no_choice(bench):
    data = bench.write("a.jsonl", [{"question": "q", "answer": "a"}])
    raised(UsageError, bench.build, "out", data, layout="indexed", says="Give --index-only instead")
