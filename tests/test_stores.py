"""The port to stores: the same laws for a folder, for a store in memory and for S3."""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from stub_s3 import BUCKET, S3Stub, serve_s3

from pipeline.stores import Store, address_of, exchange, filesystem, open_store, transfer
from pipeline.stores.objects import ObjectStore
from stages.errors import DataError, SurroundingsError, UsageError
from stages.files import file_hash

_numbers = itertools.count()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Stub]:
    """A store on the loopback."""
    with serve_s3(tmp_path_factory.mktemp("s3")) as stub:
        yield stub


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty place in each kind of store."""
    monkeypatch.setattr(filesystem, "PAUSE", 0.0)
    if request.param == "folder":
        return open_store(tmp_path / "place")
    if request.param == "memory":
        return open_store(f"memory://place-{next(_numbers)}")
    for name, value in request.getfixturevalue("s3").environment.items():
        monkeypatch.setenv(name, value)
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


def test_the_mark_of_a_folder_is_no_object(s3: S3Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consoles of S3 make a folder as an empty object with its name, and a slash."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{BUCKET}/marked")
    store.put("", b"")
    store.put("a/b", b"x")
    assert store.names() == ("a",)
    assert list(store.list()) == ["a/b"]


def test_a_shard_is_one_put(s3: S3Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tag is the MD5 of its bytes then, and nothing is read back. A megabyte is a byte here."""

    def scaled(filesize: int, chunksize: int | None = None, **_: Any) -> int:
        return (chunksize or 50 << 20) >> 20

    monkeypatch.setattr("s3fs.core.calculate_chunksize", scaled)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{BUCKET}/large")
    (tmp_path / "shard").write_bytes(b"x" * 120)
    sha256 = file_hash.sha256(tmp_path / "shard")
    there = transfer.send(store, "shard", tmp_path / "shard", sha256)
    assert there.tag == hashlib.md5(b"x" * 120).hexdigest()
    asked = [(method, path) for method, path, _ in s3.requests if "/large/shard" in path]
    assert [method for method, _ in asked] == ["PUT", "HEAD"], asked


def test_files_go_there_and_back_with_their_hashes(store: Store, tmp_path: Path) -> None:
    """Other bytes of the same length are refused, and so is what is not there."""
    source = tmp_path / "file"
    source.write_bytes(b"content")
    sha256 = hashlib.sha256(b"content").hexdigest()
    there = transfer.send(store, "x/file", source, sha256)
    assert transfer.holds(store, "x/file", there, source, sha256)
    assert transfer.sha256_of(store, "x/file", there.size) == sha256
    copy = transfer.fetch(store, "x/file", tmp_path / "copy", sha256)
    assert copy.read_bytes() == b"content"
    store.put("x/file", b"CONTENT")
    other = store.stat("x/file")
    assert other is not None
    assert not transfer.holds(store, "x/file", other, source, sha256)
    with pytest.raises(DataError, match="has changed"):
        transfer.fetch(store, "x/file", tmp_path / "second", sha256)
    assert not (tmp_path / "second").exists()
    with pytest.raises(DataError, match="is missing"):
        transfer.fetch(store, "never", tmp_path / "third", sha256)


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
