"""Parts in a store: made by one machine, fetched by another, and never half there."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support import SAMPLES

from pipeline.builder.build import build
from pipeline.options.config import Config
from pipeline.shards import part, shared, storage
from pipeline.stores import Store, filesystem, open_store, transfer
from stages.errors import SurroundingsError
from stages.readers import jsonl

DATA = SAMPLES / "sft" / "word_problems.jsonl"


def quiet(what: str, done: int, total: int) -> None:
    """No progress."""


class Machines:
    """Each has a cache of its own, and all of them share one in memory."""

    def __init__(self, root: Path, tokenizers: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self._tokenizers, self._patch = root, tokenizers, patch
        self._numbers = itertools.count()
        self.made: list[str] = []
        patch.setattr(jsonl, "SPLIT_BYTES", 1000)
        patch.setattr(filesystem, "PAUSE", 0.0)
        real = part._made

        def noted(recipe: Any, work: Any) -> Any:
            self.made.append(work.key)
            return real(recipe, work)

        patch.setattr(part, "_made", noted)

    def build(self, machine: str, cache: str = "memory://cache") -> dict[str, bytes]:
        """What a machine builds: the bytes of all files but ``run.json``."""
        self.made.clear()
        home = self.root / machine
        self._patch.setenv("XDG_CACHE_HOME", str(home))
        output = self.root / f"out-{next(self._numbers)}"
        config = Config.of(
            "sft",
            (str(DATA),),
            "qwen2-1.5b",
            output,
            cache_dir=Path(cache),
            workers=1,
            test_size=0.3,
        )
        tokenizers = config.run.cache / "tokenizers"
        if not tokenizers.exists():
            tokenizers.parent.mkdir(parents=True, exist_ok=True)
            tokenizers.symlink_to(self._tokenizers)
        build(config, quiet)
        files = (path for path in output.rglob("*") if path.is_file() and path.name != "run.json")
        return {path.relative_to(output).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def machines(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machines]:
    """None has made anything."""
    MemoryFileSystem.store.clear()
    (cache_dir / "tokenizers").mkdir(parents=True, exist_ok=True)
    yield Machines(tmp_path, cache_dir / "tokenizers", monkeypatch)
    MemoryFileSystem.store.clear()


@pytest.mark.slow
def test_what_one_machine_made_no_other_makes_again(machines: Machines) -> None:
    """And all build the same bytes, as from a cache in a folder."""
    first = machines.build("one")
    assert len(machines.made) > 1
    parts = open_store("memory://cache").list("parts")
    assert len(parts) == 4 * len(machines.made)
    assert machines.build("two") == first
    assert machines.made == []
    assert machines.build("three", str(machines.root / "folder")) == first
    assert len(machines.made) > 1


KEY = "ab" + "0" * 62
NAMES = ("arrow", "plan", "rejects.jsonl", "json")


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty one, in memory."""
    MemoryFileSystem.store.clear()
    yield open_store("memory://shared/parts")
    MemoryFileSystem.store.clear()


def files_of(machine: Path) -> storage.PartFiles:
    """A part's files on a machine that shares its parts."""
    shared.share(machine, "memory://shared/parts")
    return storage.PartFiles(str(machine), KEY)


def write(machine: Path) -> storage.PartFiles:
    """A part of two examples, and one refused row."""
    files = files_of(machine)
    table = pa.table({"line": [0, 1], "ids": [[1], [2, 3]]})
    storage.write(files, table, ["line"], [b"{}"], {"rows": 3})
    return files


def test_the_report_is_put_last(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a machine dies, others find the whole part or none; then it is put again."""
    put = transfer.send
    for died in range(len(NAMES) + 1):
        MemoryFileSystem.store.clear()
        sent: list[str] = []

        def dying(*given: Any, sent: list[str] = sent, died: int = died) -> Any:
            if len(sent) == died:
                raise KeyboardInterrupt
            sent.append(given[1])
            return put(*given)

        with monkeypatch.context() as patch:
            patch.setattr(transfer, "send", dying)
            with contextlib.suppress(KeyboardInterrupt):
                write(tmp_path / f"one-{died}")
        found = storage.read(files_of(tmp_path / f"two-{died}"))
        assert (found is not None) == (died == len(NAMES))
        first = write(tmp_path / f"three-{died}")
        assert set(store.list()) == {f"ab/{KEY}.{name}" for name in NAMES}
        assert storage.read(files_of(tmp_path / f"two-{died}")) == storage.read(first)


def test_files_are_fetched_when_they_are_read(store: Store, tmp_path: Path) -> None:
    """The report alone says that a part is there; what is here already is not asked for."""
    one, two = write(tmp_path / "one"), files_of(tmp_path / "two")
    report = storage.read(two)
    assert report is not None
    assert report["rows"] == 3
    assert [path.is_file() for path in two.all] == [False, False, False, True]
    storage.use(two)
    assert shared.here(two.plan).read_bytes() == one.plan.read_bytes()
    assert [path.is_file() for path in two.all] == [False, True, False, True]
    for name in store.list():
        store.delete(name)
    assert shared.here(two.plan) == two.plan
    assert storage.read(one) == report
    assert storage.read(files_of(tmp_path / "three")) is None


@pytest.mark.parametrize("damage", ["half", "other", "seal", "key"])
def test_a_report_that_is_not_as_written_is_no_part(
    store: Store, tmp_path: Path, damage: str
) -> None:
    """It is cut short, of another part, or somebody changed a number."""
    write(tmp_path / "one")
    name = f"ab/{KEY}.json"
    report = store.get(name) or b""
    other = storage.PartFiles(str(tmp_path / "other"), "cd" + KEY[2:])
    storage.write(other, pa.table({"line": [0]}), ["line"], [], {"rows": 1})
    damaged = {
        "half": report[: len(report) // 2],
        "other": b"[]",
        "seal": report.replace(b'"rows": 3', b'"rows": 4'),
        "key": other.report.read_bytes(),
    }[damage]
    assert damaged != report
    store.put(name, damaged)
    assert storage.read(files_of(tmp_path / "two")) is None


@pytest.mark.parametrize("suffix", NAMES[:3])
def test_a_file_that_changed_in_the_store_is_never_used(
    store: Store, tmp_path: Path, suffix: str
) -> None:
    """Who finds it stops, and from then on the part is none, so that it is made again."""
    for content in (b"other bytes", None):
        write(tmp_path / f"one-{content}")
        two = files_of(tmp_path / f"two-{content}")
        assert storage.read(two) is not None
        name = f"ab/{KEY}.{suffix}"
        store.delete(name)
        if content is not None:
            store.put(name, content)
        path = next(path for path in two.all if path.name.endswith(suffix))
        with pytest.raises(SurroundingsError, match=r"has changed|is missing") as refused:
            shared.here(path)
        assert "made again" in refused.value.remedy
        assert not path.exists()
        assert storage.read(two) is None
        again = write(tmp_path / f"two-{content}")
        assert shared.here(path).read_bytes() == path.read_bytes()
        assert storage.read(files_of(tmp_path / f"three-{content}")) == storage.read(again)


def test_a_damaged_copy_is_fetched_again(store: Store, tmp_path: Path) -> None:
    """A byte of a copy changed on the disk of a machine."""
    one, two = write(tmp_path / "one"), files_of(tmp_path / "two")
    storage.read(two)
    data = bytearray(shared.here(two.path).read_bytes())
    data[len(data) // 2] ^= 1
    two.path.write_bytes(data)
    assert storage.read(two) == storage.read(one)
    assert shared.here(two.path).read_bytes() == one.path.read_bytes()


def test_who_shares_nothing_asks_no_store(tmp_path: Path) -> None:
    """A cache in a folder is as it was."""
    shared.share(tmp_path, "")
    files = storage.PartFiles(str(tmp_path), KEY)
    assert storage.read(files) is None
    assert shared.here(files.path) == files.path
    assert list(tmp_path.iterdir()) == []
