"""A build holds one version of each input, with its hash in the manifest, or ends with 5.

Each input is changed right before each of the times that a build opens it. What comes out must be
what a build of the old file gives, or what a build of the new file gives, to the last byte.
"""

import functools
import gzip
import hashlib
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from support import few, noted, own_cache, raised, sweep, table_bytes

from pipeline.builder import planning, preparation
from pipeline.inputs import recipe as recipes
from pipeline.inputs import scan
from pipeline.options.config import Config
from pipeline.run_build import build
from stages import errors, readers
from stages.files import file_hash, file_version
from stages.readers import jsonl

ROWS: list[dict[str, Any]] = [{"question": f"q{i}", "answer": f"a{i} " * 9} for i in range(60)]
ROWS[7] = {"question": "without an answer", "answer": None}
OTHERS: list[dict[str, Any]] = [{**row, "question": row["question"].upper()} for row in ROWS]
CHATS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": f"u{i}"}, {"role": "assistant", "content": "b" * i}]}
    for i in range(1, 40)
]
Rows = list[dict[str, Any]]
Outcome = tuple[Any, ...]


def _lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _table(rows: Rows, kind: str) -> bytes:
    return table_bytes(pa.Table.from_pylist(rows), kind, 25)


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    "rows.jsonl": _lines,
    "rows.jsonl.gz": lambda rows: gzip.compress(_lines(rows), mtime=0),
    "rows.jsonl.zst": lambda rows: zstandard.compress(_lines(rows)),
    "packed.jsonl": lambda rows: gzip.compress(_lines(rows), mtime=0),  # told by its first bytes
    "rows.json": lambda rows: json.dumps(rows).encode(),
    "values.json": lambda rows: b"\n".join(json.dumps(r, indent=1).encode() for r in rows),
    "rows.parquet": lambda rows: _table(rows, "parquet"),
    "rows.arrow": lambda rows: _table(rows, "file"),
    "stream.arrow": lambda rows: _table(rows, "stream"),
}
SAVED = ("saved/data-00000-of-00002.arrow", "saved/data-00001-of-00002.arrow", "saved/state.json")


def _changed(path: Path, how: str, write: Callable[[Rows], bytes]) -> None:
    """One of the ways in which somebody changes a file."""
    match how:
        case "append":
            with path.open("ab") as file:
                file.write(write(OTHERS[:5]))
        case "truncate":
            os.truncate(path, path.stat().st_size // 2)
        case "overwrite":
            content = write(OTHERS)
            with path.open("r+b") as file:
                file.write(content)
                file.truncate()
        case "replace":
            path.with_name("new.tmp").write_bytes(write(CHATS))
            path.with_name("new.tmp").replace(path)
        case "vanish":
            path.unlink()


CHANGES = ("append", "truncate", "overwrite", "replace")


class _Opens:
    """Counts how often a file is opened, and changes it right before one of the times."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.count = self.at = 0
        self.change: Callable[[], None] = lambda: None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.path is not None and str(arguments[0]) == self.path:
            self.count += 1
            if self.count == self.at:
                path, self.path = self.path, None  # the change itself opens it too
                self.change()
                self.path = path

    def watch(
        self, path: Path | None, at: int = 0, change: Callable[[], None] = lambda: None
    ) -> None:
        self.path, self.count = None if path is None else str(path), 0
        self.at, self.change = at, change


OPENS = _Opens()


@pytest.fixture(scope="module", autouse=True)
def _hooked() -> None:
    """Python tells a hook of every file that it opens; Arrow's own opens are told by hand."""
    sys.addaudithook(OPENS)


@pytest.fixture(autouse=True)
def _small(monkeypatch, cache_dir) -> Iterator[None]:
    """Several splits in a small file, one model for all builds, and Arrow's opens counted."""
    monkeypatch.setattr(jsonl, "SPLIT_BYTES", 2000)
    find = recipes.find_model
    model = functools.cache(lambda: find(_config(Path(), cache_dir, Path())))
    monkeypatch.setattr(recipes, "find_model", lambda config: model())

    def told(function: Any) -> Any:
        def opened(path: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, str):
                OPENS("open", (path,))
            return function(path, *args, **kwargs)

        return opened

    monkeypatch.setattr(pa, "memory_map", told(pa.memory_map))
    monkeypatch.setattr(pq, "ParquetFile", told(pq.ParquetFile))
    yield
    OPENS.watch(None)


def _config(data: Path, cache: Path, output: Path) -> Config:
    given: dict[str, Any] = {"max_reject": 1.0, "workers": 1, "model": "qwen2-1.5b"}
    return Config.of(task="sft", data=(str(data),), output=output, cache_dir=cache, **given)


def _parts(config: Config) -> Outcome:
    """What a build reads: inputs, formats with evidence, and every byte of the parts."""
    try:
        prepared = preparation.prepare(config)
        made = planning.make_parts(prepared, lambda *_: None)
        prepared = prepared.having_read(made.reports)
    except (errors.PipelineError, OSError) as error:
        return "error", getattr(error, "exit_code", 5)
    found = [(i.name, i.bytes, i.sha256) for i in prepared.inputs]
    works = planning.works_of(prepared, made.backend)
    recipe = prepared.recipe
    content = [(w.path.read_bytes(), w.files.rejects.read_bytes()) for w in works]
    return found, recipe.formats, recipe.evidence, content, made.reports


# Of a file that changes behind a build, the manifest says that the witness could not look again;
# and these have a hash of it.
_OF_THE_WITNESS = ("run.json", "manifest.json", "README.md", "report.html")


def _built(config: Config) -> Outcome:
    """A whole build: every file of it, and the manifest but for what the witness read."""
    try:
        build(config, lambda *_: None)
    except (errors.PipelineError, OSError) as error:
        return "error", getattr(error, "exit_code", 5)
    every = sorted(p for p in config.run.output.rglob("*") if p.is_file())
    files = [path for path in every if path.name not in _OF_THE_WITNESS]
    described = json.loads((config.run.output / "manifest.json").read_bytes())
    for name in ("witness", "files", "content_sha256"):
        del described[name]
    return [(p.name, hashlib.sha256(p.read_bytes()).hexdigest()) for p in files], described


class _Sweep:
    """Changes one file of an input at each of its opens, in every way."""

    def __init__(self, folder: Path, data: Path, cache_dir: Path, run: Any) -> None:
        self.folder, self.data, self.run = folder, data, run
        self.kept = folder / "kept"
        shutil.copytree(data.parent, self.kept)
        self.warm = own_cache(folder / "warm", cache_dir)
        self.tokenizers = cache_dir
        self.points = 0

    def _restore(self) -> None:
        shutil.rmtree(self.data.parent)
        shutil.copytree(self.kept, self.data.parent)

    def _run(self, cache: Path) -> Outcome:
        output = self.folder / "out"
        shutil.rmtree(output, ignore_errors=True)
        return self.run(_config(self.data, cache, output))

    def change(self, target: Path, change: Callable[[], None], warm: bool) -> None:
        """Before the first open, before the second, and so on to the last."""
        self._restore()
        old = self._run(self.warm)
        change()
        new = self._run(self.warm)
        at = 0
        while True:
            at += 1
            self._restore()
            OPENS.watch(target, at, change)
            cache = self.warm if warm else own_cache(self.folder / "fresh", self.tokenizers)
            outcome = self._run(cache)
            opens = OPENS.count
            OPENS.watch(None)
            if not warm:
                shutil.rmtree(cache)
            if opens < at:
                return
            self.points += 1
            assert outcome in (old, new, ("error", 5)), f"{target.name} before open {at}"


def _sweep(folder: Path, name: str, cache_dir: Path, run: Any, warm: tuple[bool, ...]) -> None:
    """All changes in the slow tier, which asks for caches with parts and without; else three."""
    (folder / "inputs").mkdir()
    path = folder / "inputs" / name
    path.write_bytes(WRITERS[name](ROWS))
    sweep = _Sweep(folder, path, cache_dir, run)
    changes = CHANGES if len(warm) > 1 or run is _built else CHANGES[2:]
    for change, is_warm in (*itertools.product(changes, warm), ("vanish", False)):
        sweep.change(path, functools.partial(_changed, path, change, WRITERS[name]), is_warm)
    assert sweep.points > len(changes)


def _cases(fast: str, *slow: str) -> list[Any]:
    """A container of the fast tier, where no cache has its parts, and those of the other one."""
    wide = [pytest.param(name, (False, True), marks=pytest.mark.slow) for name in slow]
    return [pytest.param(fast, (False,)), *wide]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("name", "warm"), _cases("rows.jsonl", *WRITERS))
def test_one_version_is_read(tmp_path, cache_dir, tokenizer_json, name, warm):
    """Old or new, at every open, whether parts of either are in the cache or not."""
    _sweep(tmp_path, name, cache_dir, _parts, warm)


@sweep(1)
@pytest.mark.parametrize("name", WRITERS)
def test_one_version_is_built(tmp_path, cache_dir, tokenizer_json, name):
    """The same for every file of whole builds, manifests included."""
    _sweep(tmp_path, name, cache_dir, _built, (False,))


@pytest.mark.parametrize("name", few(SAVED, 1))
def test_one_version_of_a_saved_dataset_is_read(tmp_path, cache_dir, tokenizer_json, name):
    """Of each of its shards, and of the file that lists them."""
    inputs = tmp_path / "inputs"
    datasets.Dataset.from_list(ROWS).save_to_disk(str(inputs / "saved"), num_shards=2)
    path = inputs / name
    listed = json.loads((inputs / "saved" / "state.json").read_bytes())

    def write(rows: Rows) -> bytes:
        if path.suffix == ".arrow":
            return _table(rows, "stream")
        files = listed["_data_files"][: 1 if rows is CHATS else 2]
        return json.dumps({**listed, "_data_files": files[::-1]}).encode()

    sweep = _Sweep(tmp_path, inputs / "saved", cache_dir, _parts)
    for change in CHANGES[2:] if name == SAVED[0] else CHANGES:
        sweep.change(path, functools.partial(_changed, path, change, write), warm=False)


def test_a_shard_that_is_cut_off_while_it_is_read_kills_nobody(tmp_path, monkeypatch):
    """A table is not mapped into memory: such a process would die when the file is cut off."""
    path = tmp_path / "rows.arrow"
    path.write_bytes(_table(ROWS * 2000, "file"))
    reader = readers.load("arrow")
    monkeypatch.setattr(file_version, "PIECE", 5000)
    (split,) = reader.splits(str(path))
    found = reader.read(replace(split, version=file_version.take(str(path))))
    next(found)
    os.truncate(path, 4096)
    raised(errors.SurroundingsError, list, found, says="changed")


def test_bytes_that_are_only_counted_are_hashed_again_where_the_file_has_changed(
    tmp_path, monkeypatch
):
    """Size and times tell; a file that was just written may change without them, and is hashed."""
    path = tmp_path / "rows.jsonl"
    content = _lines(ROWS)
    path.write_bytes(content)
    assert not file_version.take(str(path)).settled
    now = time.time_ns
    monkeypatch.setattr(file_hash.time, "time_ns", lambda: now() + 10**10)
    version = file_version.take(str(path))
    assert version.settled
    hashed = noted(monkeypatch, file_version, "xxh3_128_digest", len)
    assert version.open(again=True).read() == content
    assert not hashed
    assert version.open().read() == content
    assert sum(hashed) == len(content)
    with path.open("r+b") as file:
        file.write(content.swapcase())
    modified = version.state.modified  # which anybody can set, and the time of change stays
    os.utime(path, ns=(modified, modified))
    raised(errors.SurroundingsError, version.open(again=True).read, says="changed while")


def test_a_large_file_has_the_hash_of_the_hashes_of_its_pieces(tmp_path, monkeypatch):
    """As the documents say it; a file of one piece has the hash of its bytes."""
    monkeypatch.setattr(jsonl, "SPLIT_BYTES", 1000)
    path = tmp_path / "rows.jsonl"
    for rows in (ROWS[:1], ROWS, ROWS * 20):
        path.write_bytes(_lines(rows))
        hashes = []
        with path.open("rb") as file:
            while piece := file.read(1000):
                hashes.append(hashlib.sha256(piece + file.readline()).hexdigest())
        one = len(hashes) == 1
        expected = hashes[0] if one else hashlib.sha256("".join(hashes).encode()).hexdigest()
        config = _config(path, tmp_path, tmp_path)
        for hash_now in (True, False):
            (found,) = scan.scan(config, hash_now=hash_now)
            assert found.sha256 == expected
            assert [split.sha256 for split in found.splits] == hashes


def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files look as if they had been left alone for a while, and no input is small."""
    now = time.time_ns
    monkeypatch.setattr(file_hash.time, "time_ns", lambda: now() + 10**10)
    monkeypatch.setattr(scan, "SMALL", 0)


@pytest.mark.parametrize(("name", "warm"), _cases("rows.json", "rows.jsonl", "rows.jsonl.gz"))
def test_one_version_is_read_by_those_who_hash_it(
    tmp_path, cache_dir, tokenizer_json, monkeypatch, name, warm
):
    """The same where nothing is hashed before parts are made."""
    _settled(monkeypatch)
    _sweep(tmp_path, name, cache_dir, _parts, warm)


@pytest.mark.parametrize("name", few([name for name in WRITERS if name != "stream.arrow"], 4))
def test_whoever_hashes_the_inputs_the_parts_are_the_same(
    tmp_path, cache_dir, tokenizer_json, monkeypatch, name
):
    """And the build's id, which is known late then."""
    path = tmp_path / name
    path.write_bytes(WRITERS[name](ROWS))
    one, other = (own_cache(tmp_path / name, cache_dir) for name in ("one", "other"))
    early = preparation.prepare(_config(path, one, tmp_path))
    made = planning.make_parts(early, lambda *_: None)
    _settled(monkeypatch)
    late = preparation.prepare(_config(path, other, tmp_path))
    reads = noted(monkeypatch, file_version.VersionBytes, "read", lambda _, *ends: ends[:2])
    found = planning.make_parts(late, lambda *_: None)
    assert found == made
    assert early.is_read
    assert early.build_id == late.having_read(made.reports).build_id
    assert late.build_id != early.build_id
    if name != "rows.parquet":  # whose end is read with each row group
        assert sum(stop - start for start, stop in reads) == path.stat().st_size
        assert all(one[1] == two[0] for one, two in itertools.pairwise(sorted(reads)))
