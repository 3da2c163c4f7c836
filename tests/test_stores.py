"""The port to stores, and parts in them: the same laws for a folder, for memory and for S3."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from stub_s3 import BUCKET, S3Stub
from support import SAMPLES, files_of, flip, own_cache, silent

from pipeline.builder.build import build
from pipeline.options.config import Config
from pipeline.shards import part, storage
from pipeline.stores import Store, address_of, exchange, filesystem, objects, open_store
from pipeline.stores.objects import ObjectStore
from stages.errors import DataError, SurroundingsError, UsageError
from stages.files import file_hash
from stages.readers import jsonl

_numbers = itertools.count()


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty place in each kind of store."""
    monkeypatch.setattr(filesystem, "PAUSE", 0.0)
    if request.param == "folder":
        return open_store(tmp_path / "place")
    if request.param == "memory":
        return open_store(f"memory://place-{next(_numbers)}")
    request.getfixturevalue("in_s3")
    return open_store(f"s3://{BUCKET}/place-{next(_numbers)}")


def test_an_object_is_what_was_put_last(store: Store) -> None:
    """Whole, in ranges, as a file; and nothing where nothing is."""
    assert store.get("a/b") is None
    assert store.stat("a/b") is None
    assert dict(store.list()) == {}
    assert store.names() == ()
    store.put("a/b", b"0123456789")
    assert store.get("a/b") == b"0123456789"
    assert store.get("a/b", 2, 5) == b"234"
    first = store.stat("a/b")
    assert first is not None
    assert first.size == 10
    assert first.tag
    assert first.modified
    store.put("a/b", b"other")
    second = store.stat("a/b")
    assert second is not None
    assert second.tag != first.tag
    store.put("top", b"")
    store.put("a/c/d", b"x")
    assert {name: one.size for name, one in store.list().items()} == {
        "a/b": 5,
        "a/c/d": 1,
        "top": 0,
    }
    assert store.list()["a/b"].tag == second.tag
    assert list(store.list("a/c")) == ["a/c/d"]
    assert store.names() == ("a", "top")
    store.delete("a/b", "a/c/d", "never")
    assert store.names() == ("top",)


def test_the_mark_of_a_folder_is_no_object(in_s3: S3Stub) -> None:
    """Consoles of S3 make a folder as an empty object with its name, and a slash."""
    store = open_store(f"s3://{BUCKET}/marked")
    store.put("", b"")
    store.put("a/b", b"x")
    assert store.names() == ("a",)
    assert list(store.list()) == ["a/b"]


def test_a_shard_is_one_put(in_s3: S3Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tag is the MD5 of its bytes then, and nothing is read back. A megabyte is a byte here."""

    def scaled(filesize: int, chunksize: int | None = None, **_: Any) -> int:
        return (chunksize or 50 << 20) >> 20

    monkeypatch.setattr("s3fs.core.calculate_chunksize", scaled)
    store = open_store(f"s3://{BUCKET}/large")
    (tmp_path / "shard").write_bytes(b"x" * 120)
    sha256 = file_hash.sha256(tmp_path / "shard")
    there = objects.send(store, "shard", tmp_path / "shard", sha256)
    assert there.tag == hashlib.md5(b"x" * 120).hexdigest()
    asked = [(method, path) for method, path, _ in in_s3.requests if "/large/shard" in path]
    assert [method for method, _ in asked] == ["PUT", "HEAD"], asked


def test_files_go_there_and_back_with_their_hashes(store: Store, tmp_path: Path) -> None:
    """Other bytes of the same length are refused, and so is what is not there."""
    source = tmp_path / "file"
    source.write_bytes(b"content")
    sha256 = hashlib.sha256(b"content").hexdigest()
    there = objects.send(store, "x/file", source, sha256)
    assert objects.holds(store, "x/file", there, source, sha256)
    assert objects.sha256_of(store, "x/file", there.size) == sha256
    copy = objects.fetch(store, "x/file", tmp_path / "copy", sha256)
    assert copy.read_bytes() == b"content"
    store.put("x/file", b"CONTENT")
    other = store.stat("x/file")
    assert other is not None
    assert not objects.holds(store, "x/file", other, source, sha256)
    with pytest.raises(DataError, match="has changed"):
        objects.fetch(store, "x/file", tmp_path / "second", sha256)
    assert not (tmp_path / "second").exists()
    with pytest.raises(DataError, match="is missing"):
        objects.fetch(store, "never", tmp_path / "third", sha256)


def test_the_store_decides_who_is_first(store: Store) -> None:
    """To create, and to replace what has a tag."""
    assert store.conditions
    assert store.put_if_absent("lock", b"one")
    assert not store.put_if_absent("lock", b"two")
    assert store.get("lock") == b"one"
    old = store.stat("lock")
    assert old is not None
    assert store.put_if_match("lock", b"three", old.tag)
    assert not store.put_if_match("lock", b"four", old.tag)
    assert store.get("lock") == b"three"
    store.delete("lock")
    assert not store.put_if_match("lock", b"five", old.tag)
    assert store.get("lock") is None


def test_nothing_is_lost_when_several_exchange(store: Store) -> None:
    """Each of them adds to what is there; every addition is there in the end."""

    def add(number: int) -> None:
        for step in range(3):
            while not exchange(store, "count", functools.partial(longer, f"{number}.{step} ")):
                pass

    def longer(word: str, old: bytes | None) -> bytes:
        return (old or b"") + word.encode()

    threads = [threading.Thread(target=add, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = (store.get("count") or b"").split()
    assert sorted(found) == sorted(f"{n}.{s}".encode() for n in range(3) for s in range(3))


def test_an_exchange_whose_answer_was_lost_is_not_made_twice(tmp_path: Path) -> None:
    """The store did it, and refuses the second attempt, since somebody was first: we ourselves."""

    class Lossy(type(open_store(tmp_path))):  # type: ignore[misc]
        def put_if_match(self, name: str, content: bytes, tag: str) -> bool:
            super().put_if_match(name, content, tag)
            return False

    store = Lossy(tmp_path)
    store.put("current", b"1")
    assert exchange(store, "current", lambda old: (old or b"") + b"+")
    assert store.get("current") == b"1+"


def test_a_store_that_cannot_decide_says_so() -> None:
    """And how to go on."""

    class Cloud(MemoryFileSystem):
        protocol = "gs"
        cachable = False

    store = ObjectStore(Cloud(), "/cloud", "gs://bucket/cloud")
    assert not store.conditions
    with pytest.raises(UsageError, match="cannot decide") as refused:
        store.put_if_absent("lock", b"")
    assert "--single-writer" in refused.value.remedy


def test_what_a_store_cannot_do_is_one_sentence_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bucket that is not there, and a connection that is gone; neither repeats a key."""
    monkeypatch.setattr(filesystem, "PAUSE", 0.0)
    tries: list[str] = []

    class Broken(MemoryFileSystem):
        cachable = False
        error: Exception = FileNotFoundError("no such bucket")

        def pipe_file(self, path: Any, value: Any, **given: Any) -> None:
            tries.append(path)
            raise self.error

    store = ObjectStore(Broken(), "/x", "s3://bucket/x")
    with pytest.raises(UsageError, match="no such bucket"):
        store.put("a", b"")
    assert len(tries) == 1
    Broken.error = ConnectionError("https://me:word@host/x?X-Amz-Signature=abc")
    with pytest.raises(SurroundingsError) as failed:
        store.put("a", b"")
    assert len(tries) == 1 + filesystem.ATTEMPTS
    assert not any(secret in failed.value.what for secret in ("word", "abc"))


def test_an_address_survives_being_a_path() -> None:
    """Of which pathlib drops a slash; a path of this machine is none."""
    assert address_of(Path("s3://bucket/a/b")) == "s3://bucket/a/b"
    assert address_of("memory://x") == "memory://x"
    assert address_of("/data/x") == ""
    assert address_of("C:/x") == ""
    assert address_of("file:///x") == ""


PROBLEMS = SAMPLES / "sft" / "word_problems.jsonl"


class Machines:
    """Each has a cache of its own, and all of them share one in memory."""

    def __init__(self, root: Path, cache_dir: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self._cache_dir, self._patch = root, cache_dir, patch
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
            *("sft", (str(PROBLEMS),), "qwen2-1.5b", output),
            cache_dir=Path(cache),
            workers=1,
            test_size=0.3,
        )
        own_cache(config.run.cache, self._cache_dir)
        build(config, silent)
        return files_of(output)


@pytest.fixture
def machines(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machines]:
    """None has made anything."""
    MemoryFileSystem.store.clear()
    yield Machines(tmp_path, cache_dir, monkeypatch)
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
def shared_store() -> Iterator[Store]:
    """An empty one, in memory."""
    MemoryFileSystem.store.clear()
    yield open_store("memory://shared/parts")
    MemoryFileSystem.store.clear()


def part_files(machine: Path) -> storage.PartFiles:
    """A part's files on a machine that shares its parts."""
    storage.share(machine, "memory://shared/parts")
    return storage.PartFiles(str(machine), KEY)


def write_part(machine: Path) -> storage.PartFiles:
    """A part of two examples, and one refused row."""
    files = part_files(machine)
    table = pa.table({"line": [0, 1], "ids": [[1], [2, 3]]})
    storage.write(files, table, ["line"], [b"{}"], {"rows": 3})
    return files


def test_the_report_is_put_last(
    shared_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a machine dies, others find the whole part or none; then it is put again."""
    put = objects.send
    for died in range(len(NAMES) + 1):
        MemoryFileSystem.store.clear()
        sent: list[str] = []

        def dying(*given: Any, sent: list[str] = sent, died: int = died) -> Any:
            if len(sent) == died:
                raise KeyboardInterrupt
            sent.append(given[1])
            return put(*given)

        with monkeypatch.context() as patch:
            patch.setattr(objects, "send", dying)
            with contextlib.suppress(KeyboardInterrupt):
                write_part(tmp_path / f"one-{died}")
        found = storage.read(part_files(tmp_path / f"two-{died}"))
        assert (found is not None) == (died == len(NAMES))
        first = write_part(tmp_path / f"three-{died}")
        assert set(shared_store.list()) == {f"ab/{KEY}.{name}" for name in NAMES}
        assert storage.read(part_files(tmp_path / f"two-{died}")) == storage.read(first)


def test_files_are_fetched_when_they_are_read(shared_store: Store, tmp_path: Path) -> None:
    """The report alone says that a part is there; what is here already is not asked for."""
    one, two = write_part(tmp_path / "one"), part_files(tmp_path / "two")
    report = storage.read(two)
    assert report is not None
    assert report["rows"] == 3
    assert [path.is_file() for path in two.all] == [False, False, False, True]
    storage.use(two)
    assert storage.here(two.plan).read_bytes() == one.plan.read_bytes()
    assert [path.is_file() for path in two.all] == [False, True, False, True]
    for name in shared_store.list():
        shared_store.delete(name)
    assert storage.here(two.plan) == two.plan
    assert storage.read(one) == report
    assert storage.read(part_files(tmp_path / "three")) is None


@pytest.mark.parametrize("damage", ["half", "other", "seal", "key"])
def test_a_report_that_is_not_as_written_is_no_part(
    shared_store: Store, tmp_path: Path, damage: str
) -> None:
    """It is cut short, of another part, or somebody changed a number."""
    write_part(tmp_path / "one")
    name = f"ab/{KEY}.json"
    report = shared_store.get(name) or b""
    other = storage.PartFiles(str(tmp_path / "other"), "cd" + KEY[2:])
    storage.write(other, pa.table({"line": [0]}), ["line"], [], {"rows": 1})
    damaged = {
        "half": report[: len(report) // 2],
        "other": b"[]",
        "seal": report.replace(b'"rows": 3', b'"rows": 4'),
        "key": other.report.read_bytes(),
    }[damage]
    assert damaged != report
    shared_store.put(name, damaged)
    assert storage.read(part_files(tmp_path / "two")) is None


@pytest.mark.parametrize("suffix", NAMES[:3])
def test_a_file_that_changed_in_the_store_is_never_used(
    shared_store: Store, tmp_path: Path, suffix: str
) -> None:
    """Who finds it stops, and from then on the part is none, so that it is made again."""
    for content in (b"other bytes", None):
        write_part(tmp_path / f"one-{content}")
        two = part_files(tmp_path / f"two-{content}")
        assert storage.read(two) is not None
        name = f"ab/{KEY}.{suffix}"
        shared_store.delete(name)
        if content is not None:
            shared_store.put(name, content)
        path = next(path for path in two.all if path.name.endswith(suffix))
        with pytest.raises(SurroundingsError, match=r"has changed|is missing") as refused:
            storage.here(path)
        assert "made again" in refused.value.remedy
        assert not path.exists()
        assert storage.read(two) is None
        again = write_part(tmp_path / f"two-{content}")
        assert storage.here(path).read_bytes() == path.read_bytes()
        assert storage.read(part_files(tmp_path / f"three-{content}")) == storage.read(again)


def test_a_damaged_copy_is_fetched_again(shared_store: Store, tmp_path: Path) -> None:
    """A byte of a copy changed on the disk of a machine."""
    one, two = write_part(tmp_path / "one"), part_files(tmp_path / "two")
    storage.read(two)
    flip(storage.here(two.path))
    assert storage.read(two) == storage.read(one)
    assert storage.here(two.path).read_bytes() == one.path.read_bytes()


def test_who_shares_nothing_asks_no_store(tmp_path: Path) -> None:
    """A cache in a folder is as it was."""
    storage.share(tmp_path, "")
    files = storage.PartFiles(str(tmp_path), KEY)
    assert storage.read(files) is None
    assert storage.here(files.path) == files.path
    assert list(tmp_path.iterdir()) == []
