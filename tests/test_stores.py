"""The port to stores, parts in them and builds in them: the same laws for a folder, memory and S3.

One writer at a time, and a reader of ``current`` never sees a mixture.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from stub_memory import Watched
from stub_s3 import BUCKET, S3Stub
from support import SAMPLES, files_of, flip, raised, read_manifest

from pipeline import filesystem, object_store, stores
from pipeline.builds import lease, store_versions
from pipeline.builds.place import Place, versions_of
from pipeline.builds.store_versions import StoreVersions
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import sealed_text
from pipeline.shards import storage
from pipeline.stores import Store, address_of, open_store
from stages.errors import DataError, SurroundingsError, UsageError
from stages.files import file_hash

_numbers = itertools.count()


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request, tmp_path, monkeypatch) -> Store:
    """An empty place in each kind of store."""
    monkeypatch.setattr(filesystem, "PAUSE", 0.0)
    if request.param == "folder":
        return open_store(tmp_path / "place")
    if request.param == "memory":
        return open_store(f"memory://place-{next(_numbers)}")
    request.getfixturevalue("in_s3")
    return open_store(f"s3://{BUCKET}/place-{next(_numbers)}")


def test_an_object_is_what_was_put_last(store):
    """Whole, in ranges, as a file; and nothing where nothing is."""
    assert store.get("a/b") is None
    assert store.stat("a/b") is None
    assert dict(store.list()) == {}
    assert store.names() == ()
    store.put("a/b", b"0123456789")
    assert store.get("a/b") == b"0123456789"
    assert store.get("a/b", 2, 5) == b"234"
    first = store.stat("a/b")
    assert first.size == 10
    assert first.tag or not store.conditions
    assert first.modified
    store.put("a/b", b"other")
    second = store.stat("a/b")
    assert second != first
    store.put("top", b"")
    store.put("a/c/d", b"x")
    sizes = {name: one.size for name, one in store.list().items()}
    assert sizes == {"a/b": 5, "a/c/d": 1, "top": 0}
    assert store.list()["a/b"].tag == second.tag
    assert list(store.list("a/c")) == ["a/c/d"]
    assert store.names() == ("a", "top")
    store.delete("a/b", "a/c/d", "never")
    assert list(store.list()) == ["top"]


def test_the_mark_of_a_folder_is_no_object(in_s3):
    """Consoles of S3 make a folder as an empty object with its name, and a slash."""
    store = open_store(f"s3://{BUCKET}/marked")
    store.put("", b"")
    store.put("a/b", b"x")
    assert store.names() == ("a",)
    assert list(store.list()) == ["a/b"]


def test_a_shard_is_one_put(in_s3, tmp_path, monkeypatch):
    """Its tag is the MD5 of its bytes then, and nothing is read back. A megabyte is a byte here."""

    def scaled(filesize: int, chunksize: int | None = None, **_: Any) -> int:
        return (chunksize or 50 << 20) >> 20

    monkeypatch.setattr("s3fs.core.calculate_chunksize", scaled)
    store = open_store(f"s3://{BUCKET}/large")
    (tmp_path / "shard").write_bytes(b"x" * 120)
    there = stores.send(store, "shard", tmp_path / "shard", file_hash.sha256(tmp_path / "shard"))
    assert there.tag == hashlib.md5(b"x" * 120).hexdigest()
    asked = [(method, path) for method, path, _ in in_s3.requests if "/large/shard" in path]
    assert [method for method, _ in asked] == ["PUT", "HEAD"], asked


def test_files_go_there_and_back_with_their_hashes(store, tmp_path):
    """Other bytes of the same length are refused, and so is what is not there."""
    source = tmp_path / "file"
    source.write_bytes(b"content")
    sha256 = hashlib.sha256(b"content").hexdigest()
    there = stores.send(store, "x/file", source, sha256)
    assert stores.holds(store, "x/file", there, source, sha256)
    assert stores.sha256_of(store, "x/file", there.size) == sha256
    copy = stores.fetch(store, "x/file", tmp_path / "copy", sha256)
    assert copy.read_bytes() == b"content"
    store.put("x/file", b"CONTENT")
    other = store.stat("x/file")
    assert other is not None
    assert not stores.holds(store, "x/file", other, source, sha256)
    with pytest.raises(DataError, match="has changed"):
        stores.fetch(store, "x/file", tmp_path / "second", sha256)
    assert not (tmp_path / "second").exists()
    raised(DataError, stores.fetch, store, "never", tmp_path / "third", sha256, says="is missing")


def test_the_store_decides_who_is_first(store):
    """To create, and to replace what has a tag; a folder has locks and renames for that."""
    if not store.conditions:
        raised(UsageError, store.put_if, "lock", b"one", None, says="no conditional writes")
        return
    assert store.put_if("lock", b"one", None)
    assert not store.put_if("lock", b"two", None)
    assert store.get("lock") == b"one"
    old = store.stat("lock")
    assert store.put_if("lock", b"three", old.tag)
    assert not store.put_if("lock", b"four", old.tag)
    assert store.get("lock") == b"three"
    store.delete("lock")
    assert not store.put_if("lock", b"five", old.tag)
    assert store.get("lock") is None


def _at_once(work: Callable[[int], None], count: int) -> None:
    """So many threads do it, each with its number."""
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))


@pytest.mark.parametrize("store", ["memory", "s3"], indirect=True)
def test_nothing_is_lost_when_several_exchange(store):
    """Each of them adds to what is there; every addition is there in the end."""

    def add(number: int) -> None:
        for step in range(3):
            while not store.exchange("count", functools.partial(longer, f"{number}.{step} ")):
                pass

    def longer(word: str, old: bytes | None) -> bytes:
        return (old or b"") + word.encode()

    _at_once(add, 3)
    found = (store.get("count") or b"").split()
    assert sorted(found) == sorted(f"{n}.{s}".encode() for n in range(3) for s in range(3))


def test_an_exchange_whose_answer_was_lost_is_not_made_twice(address):
    """The store did it, and refuses the second attempt, since somebody was first: we ourselves."""

    class Lossy(Store):
        def put_if(self, name: str, content: bytes, tag: str | None) -> bool:
            super().put_if(name, content, tag)
            return False

    store = Lossy(MemoryFileSystem(), f"/{address[9:]}", address)
    store.put("current", b"1")
    assert store.exchange("current", lambda old: (old or b"") + b"+")
    assert store.get("current") == b"1+"


def test_what_a_store_cannot_do_is_one_sentence_without_secrets(monkeypatch):
    """A bucket that is not there, and a connection that is gone; neither repeats a key."""
    monkeypatch.setattr(filesystem, "PAUSE", 0.0)
    tries: list[str] = []

    class Broken(MemoryFileSystem):
        cachable = False
        error: Exception = FileNotFoundError("no such bucket")

        def pipe_file(self, path: Any, value: Any, **given: Any) -> None:
            tries.append(path)
            raise self.error

    store = Store(Broken(), "/x", "s3://bucket/x")
    raised(UsageError, store.put, "a", b"", says="no such bucket")
    assert len(tries) == 1
    Broken.error = ConnectionError("https://me:word@host/x?X-Amz-Signature=abc")
    failed = raised(SurroundingsError, store.put, "a", b"")
    assert len(tries) == 1 + filesystem.ATTEMPTS
    assert not any(secret in failed.what for secret in ("word", "abc"))


def test_an_address_survives_being_a_path():
    """Of which pathlib drops a slash; a path of this machine is none."""
    assert address_of(Path("s3://bucket/a/b")) == "s3://bucket/a/b"
    assert address_of("memory://x") == "memory://x"
    assert address_of("/data/x") == ""
    assert address_of("C:/x") == ""
    assert address_of("file:///x") == ""


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


def test_the_report_is_put_last(shared_store, tmp_path, monkeypatch):
    """Wherever a machine dies, others find the whole part or none; then it is put again."""
    put = stores.send
    for died in range(len(NAMES) + 1):
        MemoryFileSystem.store.clear()
        sent: list[str] = []

        def dying(*given: Any, sent: list[str] = sent, died: int = died) -> Any:
            if len(sent) == died:
                raise KeyboardInterrupt
            sent.append(given[1])
            return put(*given)

        with monkeypatch.context() as patch:
            patch.setattr(stores, "send", dying)
            with contextlib.suppress(KeyboardInterrupt):
                write_part(tmp_path / f"one-{died}")
        found = storage.read(part_files(tmp_path / f"two-{died}"))
        assert (found is not None) == (died == len(NAMES))
        first = write_part(tmp_path / f"three-{died}")
        assert set(shared_store.list()) == {f"ab/{KEY}.{name}" for name in NAMES}
        assert storage.read(part_files(tmp_path / f"two-{died}")) == storage.read(first)


def test_files_are_fetched_when_they_are_read(shared_store, tmp_path):
    """The report alone says that a part is there; what is here already is not asked for."""
    one, two = write_part(tmp_path / "one"), part_files(tmp_path / "two")
    report = storage.read(two)
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


def test_a_report_that_is_not_as_written_is_no_part(shared_store, tmp_path):
    """It is cut short, of another part, or somebody changed a number."""
    write_part(tmp_path / "one")
    name = f"ab/{KEY}.json"
    report = shared_store.get(name) or b""
    other = storage.PartFiles(str(tmp_path / "other"), "cd" + KEY[2:])
    storage.write(other, pa.table({"line": [0]}), ["line"], [], {"rows": 1})
    counted = report.replace(b'"rows": 3', b'"rows": 4')
    for damaged in (report[: len(report) // 2], b"[]", counted, other.report.read_bytes()):
        assert damaged != report
        shared_store.put(name, damaged)
        assert storage.read(part_files(tmp_path / "two")) is None


@pytest.mark.parametrize("suffix", NAMES[:3])
def test_a_file_that_changed_in_the_store_is_never_used(shared_store, tmp_path, suffix):
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
        refused = raised(SurroundingsError, storage.here, path, says=r"has changed|is missing")
        assert "made again" in refused.remedy
        assert not path.exists()
        assert storage.read(two) is None
        again = write_part(tmp_path / f"two-{content}")
        assert storage.here(path).read_bytes() == path.read_bytes()
        assert storage.read(part_files(tmp_path / f"three-{content}")) == storage.read(again)


def test_a_damaged_copy_is_fetched_again(shared_store, tmp_path):
    """A byte of a copy changed on the disk of a machine."""
    one, two = write_part(tmp_path / "one"), part_files(tmp_path / "two")
    storage.read(two)
    flip(storage.here(two.path))
    assert storage.read(two) == storage.read(one)
    assert storage.here(two.path).read_bytes() == one.path.read_bytes()


@pytest.fixture(scope="module")
def builds(tmp_path_factory) -> list[Path]:
    """Three folders that are builds as far as a store can tell: files, and a manifest of them."""
    made = []
    for number in range(3):
        folder = tmp_path_factory.mktemp("made") / "out"
        files = {f"train/data-{shard}.arrow": b"%d" % number * 999 for shard in range(3)}
        files |= {"serving.json": b"{}", "axolotl/manifest.json": b"%d" % number}
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        key = hashlib.sha256(b"%d" % number).hexdigest()
        write_json(folder / "manifest.json", sealed_text({"build_id": key, "files": hashes}))
        write_json(folder / "run.json", {"started": number})
        made.append(folder)
    return made


def id_of(folder: Path) -> str:
    return str(read_manifest(folder)["build_id"])


@pytest.fixture
def address() -> Iterator[str]:
    """A place in memory; it is empty."""
    MemoryFileSystem.store.clear()
    yield f"memory://out-{next(_numbers)}"
    MemoryFileSystem.store.clear()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def anywhere(request, address) -> str:
    """The same in memory and on a server of S3."""
    if request.param == "memory":
        return address
    request.getfixturevalue("in_s3")
    return f"s3://{BUCKET}/out-{next(_numbers)}"


def placed(address: str, here: Path, keep: int = 2, *, single: bool = False) -> Place:
    output, real = Path(address), here / "place"
    return Place(output, real, keep, versions_of(output, single, real))


def put(place: Place, made: Path) -> tuple[str, ...]:
    """Publish a build that was made before, as a run would."""
    with place.staging() as folder:
        shutil.copytree(made, folder, dirs_exist_ok=True)
        return place.publish(folder, id_of(made))[0]


def read(store: Store) -> str | None:
    """What a reader of ``current`` sees, file by file; the id of a whole build."""
    now = store_versions.current(store)
    if now.build_id is None:
        return None
    manifest = json.loads(store.get(f"{now.build_id}/manifest.json") or b"")
    assert manifest["build_id"] == now.build_id
    assert manifest["content_sha256"] == now.manifest_sha256
    for name, sha256 in manifest["files"].items():
        content = store.get(f"{now.build_id}/{name}") or b""
        assert hashlib.sha256(content).hexdigest() == sha256, name
    return now.build_id


@pytest.fixture
def watched(monkeypatch, address) -> Watched:
    """The store that writers use; readers see the same objects."""
    filesystem = Watched()
    monkeypatch.setattr(
        stores, "open_store", lambda at: Store(filesystem, f"/{address_of(at)[9:]}", str(at))
    )
    return filesystem


def test_builds_follow_each_other_and_old_ones_are_let_go(builds, address, tmp_path):
    """Two stay where nothing is said; the one that was replaced can be gone back to."""
    store = open_store(address)
    ids = [id_of(one) for one in builds]
    assert read(store) is None
    assert put(placed(address, tmp_path), builds[0]) == ()
    assert put(placed(address, tmp_path), builds[1]) == ()
    assert put(placed(address, tmp_path), builds[2]) == (ids[0],)
    assert read(store) == ids[2]
    assert {name.partition("/")[0] for name in store.list()} == {*ids[1:], "objects", "current"}
    before, now = StoreVersions(store).rollback(None)
    assert placed(address, tmp_path).withdrawn(ids[2])
    assert (before, now.build_id) == (ids[2], ids[1])
    assert read(store) == ids[1]
    raised(UsageError, StoreVersions(store).rollback, "0000", says="no version begins")


def test_whatever_stops_it_no_reader_sees_a_mixture_and_the_next_call_finishes(
    builds, address, watched, tmp_path
):
    """At each change of the store. Files that arrived are not put again."""
    reader = open_store(address)
    ids = [id_of(one) for one in builds]
    put(placed(address, tmp_path, 1), builds[0])
    watched.look = lambda: read(reader)
    watched.changes = 0
    put(placed(address, tmp_path, 1), builds[1])
    total = watched.changes
    assert total > 15  # files put, and those of the version before removed
    for stop in range(total):
        MemoryFileSystem.store.clear()
        watched.left, watched.look = None, lambda: None
        put(placed(address, tmp_path, 1), builds[0])
        watched.left, watched.look = stop, lambda: read(reader)
        raised(KeyboardInterrupt, put, placed(address, tmp_path, 1), builds[1])
        assert read(reader) in ids[:2]
        watched.left, watched.changes = None, 0
        reader.delete("lock")  # of a process that was killed; its lease is another test's
        put(placed(address, tmp_path, 1), builds[1])
        assert read(reader) == ids[1]
        assert watched.changes <= total + 1
        assert StoreVersions(reader).manifest_of(ids[1]) is not None
        assert "lock" not in reader.names()


def test_a_stopped_run_has_not_put_in_vain(builds, address, watched, tmp_path):
    """The next one puts what is missing, and no more."""
    put(placed(address, tmp_path), builds[1])
    store = open_store(address)
    store.put(f"{id_of(builds[1])}/serving.json", b"damaged")
    assert StoreVersions(store).manifest_of(id_of(builds[1])) is None
    watched.sent.clear()
    put(placed(address, tmp_path), builds[1])
    assert [path.rpartition("/")[2] for path in watched.sent] == ["serving.json"]
    assert read(store) == id_of(builds[1])


def _dead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes until every lock that is not renewed is over."""
    monkeypatch.setattr(lease, "LEASE", 0.05)
    held = json.loads(store.get("lock") or b"{}")
    store.put("lock", json.dumps({**held, "lease": 0.05}).encode())
    time.sleep(0.2)


def test_the_lock_of_a_writer_that_died_is_taken_over(builds, address, tmp_path, monkeypatch):
    """By rule, and written down; what it left half done goes when the next build is there."""
    store = open_store(address)
    lock = json.dumps({"owner": "elsewhere, process 7", "call": "x", "lease": 60}).encode()
    store.put("lock", lock)
    store.put(f"{'0' * 64}/train/data.arrow", b"half")
    with pytest.raises(SurroundingsError, match="elsewhere, process 7"):
        put(placed(address, tmp_path), builds[0])
    _dead(store, monkeypatch)
    monkeypatch.setattr(lease, "LEASE", 60.0)
    put(placed(address, tmp_path), builds[0])
    assert read(store) == id_of(builds[0])
    assert not any(name.startswith("0" * 64) for name in store.list())
    assert any(
        "elsewhere, process 7" in str(one)
        for one in lease.lines_of(store.get(lease.HISTORY) or b"")
    )


def test_a_writer_that_was_only_slow_changes_nothing_that_is_read(
    builds, address, tmp_path, monkeypatch
):
    """Another took it for dead, and has put its build; or is still putting it."""
    store = open_store(address)
    monkeypatch.setattr(lease, "RENEWAL", 1000.0)
    slow, quick = placed(address, tmp_path / "slow"), placed(address, tmp_path / "quick")
    with slow.staging() as folder:
        shutil.copytree(builds[0], folder, dirs_exist_ok=True)
        _dead(store, monkeypatch)
        monkeypatch.setattr(lease, "LEASE", 60.0)  # it thinks that its lock is still good
        with quick.staging() as other:
            with monkeypatch.context() as blind:  # it asked for its lock a moment too early
                blind.setattr(lease.Lease, "require", lambda self, ask=False: None)
                with pytest.raises(SurroundingsError, match="was taken over"):
                    slow.publish(folder, id_of(builds[0]))
            assert store_versions.current(store).build_id is None
            shutil.copytree(builds[1], other, dirs_exist_ok=True)
            quick.publish(other, id_of(builds[1]))
        raised(SurroundingsError, slow.publish, folder, id_of(builds[0]), says="was lost")
    assert read(store) == id_of(builds[1])


def test_a_lock_is_renewed_while_it_is_used(address, tmp_path, monkeypatch):
    """So nobody takes it over, however long the build."""
    monkeypatch.setattr(lease, "LEASE", 0.3)
    monkeypatch.setattr(lease, "RENEWAL", 0.03)
    store = open_store(address)
    with placed(address, tmp_path / "one").staging():
        first = store.get("lock")
        time.sleep(0.6)
        assert store.get("lock") != first
        with pytest.raises(SurroundingsError, match="another run") as refused:
            placed(address, tmp_path / "two").staging().__enter__()
        assert "process" in refused.value.what
        assert "its lock is over in" in refused.value.remedy
    assert store.get("lock") is None


def test_two_writers_at_once_leave_one_whole_build(builds, anywhere, tmp_path):
    """One wins; the other is refused, or comes after it."""
    refused: list[SurroundingsError] = []

    def write(number: int) -> None:
        try:
            put(placed(anywhere, tmp_path / str(number)), builds[number])
        except SurroundingsError as error:
            refused.append(error)

    for _ in range(5):
        refused.clear()
        _at_once(write, 2)
        assert len(refused) < 2
        assert read(open_store(anywhere)) in {id_of(one) for one in builds[:2]}
        assert "lock" not in open_store(anywhere).names()


def test_a_store_that_cannot_decide_needs_a_promise(builds, address, tmp_path, monkeypatch):
    """Without it nothing is put; with it, a lock that is there is still respected."""

    class Cloud(MemoryFileSystem):
        protocol = "gs"
        cachable = False

    store = Store(Cloud(), f"/{address[9:]}", "gs://bucket/x")
    monkeypatch.setattr(stores, "open_store", lambda at: store)
    with pytest.raises(UsageError, match="without conditional writes") as refused:
        placed("gs://bucket/x", tmp_path)
    assert "--single-writer" in refused.value.remedy
    single = placed("gs://bucket/x", tmp_path / "one", single=True)
    put(single, builds[0])
    assert read(store) == id_of(builds[0])
    with single.staging(), pytest.raises(SurroundingsError, match="another run"):
        placed("gs://bucket/x", tmp_path / "two", single=True).staging().__enter__()


def test_a_store_that_ignores_conditions_is_found_out(address, tmp_path, monkeypatch):
    """Some take the headers and overwrite all the same."""

    def blind(filesystem: Any, path: str, content: bytes, tag: str | None) -> bool:
        return filesystem.pipe_file(path, content) is None

    monkeypatch.setitem(object_store._DECIDING, "memory", blind)
    raised(UsageError, placed(address, tmp_path).staging().__enter__, says="no conditional writes")
    assert open_store(address).get("lock") is None
    with pytest.raises(UsageError, match="no conditional writes"):
        StoreVersions(open_store(address)).rollback(None)
    with pytest.raises(UsageError, match="no earlier version"):  # the promise lets it go on
        StoreVersions(open_store(address), single=True).rollback(None)


def test_somebody_elses_objects_are_left_alone(address, tmp_path):
    """Nothing is put beside them."""
    for name, says in (("notes.txt", "not of a build"), ("manifest.json", "published copy")):
        open_store(f"{address}/{name}").put(name, b"mine")
        raised(UsageError, placed(f"{address}/{name}", tmp_path).staging().__enter__, says=says)
        assert open_store(f"{address}/{name}").names() == (name,)


def test_an_object_of_somebody_in_a_version_is_never_removed(builds, address, tmp_path):
    """Its version stays, and is not written to."""
    store, ids = open_store(address), [id_of(one) for one in builds]
    put(placed(address, tmp_path, 1), builds[0])
    store.put(f"{ids[0]}/notes.txt", b"mine")
    place = placed(address, tmp_path, 1)
    with place.staging() as folder:
        shutil.copytree(builds[1], folder, dirs_exist_ok=True)
        removed, notes = place.publish(folder, ids[1])
    assert removed == ()
    assert "stays" in notes[0]
    assert store.get(f"{ids[0]}/notes.txt") == b"mine"
    assert len(store.list(ids[0])) == len(store.list(ids[1])) + 1
    raised(UsageError, put, placed(address, tmp_path), builds[0], says=r"notes\.txt")
    assert read(store) == ids[1]


# Outputs in a store on the loopback, by the commands: the same bytes, and few requests.

DATA = SAMPLES / "sft" / "word_problems.jsonl"
COMMAND = ("run", "sft", DATA, "--model", "qwen2-1.5b", "--test-size", "0.3", "--quiet")


@pytest.fixture
def commands_store(in_s3, request) -> Store:
    """A place for the test."""
    return open_store(f"s3://{BUCKET}/{request.node.name}")


def contents(store: Store) -> dict[str, bytes]:
    """The files of the current version but ``run.json``, each as its manifest says."""
    now = store_versions.current(store).build_id
    files = {name: store.get(name) or b"" for name in store.list(str(now))}
    found = {name.partition("/")[2]: content for name, content in files.items()}
    manifest = json.loads(found["manifest.json"])
    for name, sha256 in manifest["files"].items():
        assert hashlib.sha256(found[name]).hexdigest() == sha256
    assert set(found) == {*manifest["files"], "manifest.json", "run.json"}
    return {name: content for name, content in found.items() if name != "run.json"}


def asked(s3: S3Stub, place: str, since: int) -> Counter[str]:
    """How often each kind of object was asked for, by method: ``PUT shard``."""
    kinds: Counter[str] = Counter()
    for method, path, _ in s3.requests[since:]:
        if "list-type" in path:
            kinds["LIST whole" if "max-keys=1&" not in path else "LIST one"] += 1
        elif place in path:
            name = path.rpartition("/")[2]
            kinds[f"{method} {'shard' if name.endswith('.arrow') else 'other'}"] += 1
    return kinds


@pytest.mark.slow
def test_a_build_in_a_store_is_the_build_of_a_folder(pipeline, s3, commands_store, tmp_path):
    """Its bytes; two requests for each file that is put, and none for a shard of an equal build."""
    pipeline(*COMMAND, "-o", tmp_path / "here", "--workers", "1").ended()
    before = len(s3.requests)
    said = pipeline(*COMMAND, "-o", commands_store.shown, "--workers", "1", "--json").ended().told
    assert said["paths"]["build"] == f"{commands_store.shown}/{said['build_id']}"
    files = contents(commands_store)
    assert files == files_of(tmp_path / "here")
    shards = [name for name in files if name.endswith(".arrow")]
    kinds = asked(s3, commands_store.shown[5:], before)
    reading = len(files)  # by this test, in one GET and one HEAD each
    assert kinds["PUT shard"] == len(shards)
    assert kinds["LIST whole"] <= 8
    assert kinds.total() <= 2 * (len(files) + 1) + 2 * (reading + 1) + 40, kinds
    before = len(s3.requests)
    again = pipeline(*COMMAND, "-o", commands_store.shown, "--workers", "1", "--json")
    assert json.loads(again.out)["status"] == "unchanged", again.err
    kinds = asked(s3, commands_store.shown[5:], before)
    assert [kind for kind in kinds if "shard" in kind] == []
    assert kinds["LIST whole"] == 1
    assert kinds.total() <= 20, kinds
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.slow
def test_versions_in_a_store_are_listed_and_gone_back_to(pipeline, commands_store, tmp_path):
    """A recipe keeps seven; what a rollback took back is not published again by itself."""
    rows = DATA.read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "r.toml").write_text(
        'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "rows.jsonl"\n'
        f'output = "{commands_store.shown}"\n'
    )
    build = ("build", "r.toml", "--json", "--quiet")
    ids = []
    for count in (4, 8):
        (tmp_path / "rows.jsonl").write_text("".join(rows[:count]))
        ids.append(pipeline(*build).ended().told["build_id"])
    listed = pipeline("versions", commands_store.shown, "--json").told
    assert [one["build_id"] for one in listed["versions"]] == ids[::-1]
    assert listed["current"] == ids[1]
    assert pipeline("rollback", commands_store.shown, "--json").ended().told["build_id"] == ids[0]
    ran = pipeline(*build).ended()
    assert ran.told["build_id"] == ids[0]
    assert "rolled back" in ran.out
    assert pipeline(*build, "--replace").ended().told["build_id"] == ids[1]
    pipeline("versions", "hold", commands_store.shown, "current").refused(2, "cannot be held")
    said = [line["status"] for line in lease.lines_of(commands_store.get(lease.HISTORY) or b"")]
    assert said == ["built", "built", "rolled back", "unchanged", "unchanged"]
    (tmp_path / "rows.jsonl").write_text("".join(rows[:1]))
    pipeline(*build, "--drift", "rows=0.1").ended(3)  # it is compared with what the store has
    assert contents(commands_store)
    pipeline(*COMMAND[:4], "qwen2.5-0.5b", "-o", commands_store.shown).refused(2, "qwen2-1.5b")


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_named(pipeline, commands_store):
    """Before anything is made; and where another writes, who holds the lock."""
    for output, option, says in (
        (f"s3://no-such-{BUCKET}/x", "--quiet", "no such bucket"),
        ("memory://x", "--quiet", "is an address"),
        ("out", "--single-writer", "for an output in a store"),
    ):
        pipeline(*COMMAND, "-o", output, option).refused(2, says)
    lock = {"owner": "node-7, process 12", "call": "x", "lease": 600}
    commands_store.put("lock", json.dumps(lock).encode())
    ran = pipeline(*COMMAND, "-o", commands_store.shown).refused(5, "node-7, process 12")
    assert re.search(r"its lock is over in \d+ seconds", ran.err)
    assert set(commands_store.list()) == {"lock"} | {
        n for n in commands_store.list() if n.startswith("history")
    }


@pytest.mark.slow
def test_builds_in_a_store_are_read_in_place(pipeline, commands_store, tmp_path):
    """By every command that reads one, and from Python; damage is found where it is."""
    pipeline(*COMMAND, "-o", commands_store.shown).ended()
    pipeline(*COMMAND, "-o", tmp_path / "here").ended()
    pipeline("check", commands_store.shown).ended()
    for command in (("show", "--random", "2", "--seed", "1"), ("report", "-o", "page.html")):
        there = pipeline(command[0], commands_store.shown, *command[1:]).ended()
        page = (tmp_path / "page.html").read_text("utf-8") if "-o" in command else ""
        page = re.sub(
            rf"{re.escape(commands_store.shown)}(/[0-9a-f]{{64}})?", str(tmp_path / "here"), page
        )
        same = pipeline(command[0], tmp_path / "here", *command[1:])
        assert there.out.replace(commands_store.shown, str(tmp_path / "here")) == same.out
        assert page == ((tmp_path / "page.html").read_text("utf-8") if "-o" in command else "")
    for name, build in (("a", commands_store.shown), ("b", tmp_path / "here")):
        pipeline("export", "trl", build, "-o", name, "--layout", "ragged").ended()
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    ran = pipeline("diff", commands_store.shown, tmp_path / "here", "--json")
    assert json.loads(ran.out)["examples"]["changed"] == 0, ran.err
    pipeline("report", commands_store.shown).refused(2, "in a store")
    now = store_versions.current(commands_store).build_id
    shard = next(name for name in commands_store.list(str(now)) if name.endswith(".arrow"))
    data = bytearray(commands_store.get(shard) or b"")
    data[-40] ^= 1
    commands_store.put(shard, bytes(data))
    pipeline("check", commands_store.shown).refused(3, "sha256")
    pipeline(
        "export", "trl", commands_store.shown, "-o", "c", XDG_CACHE_HOME=str(tmp_path / "new")
    ).refused(3, "has changed since the build")
    pipeline(*COMMAND, "-o", commands_store.shown).ended()
    assert contents(commands_store) == files_of(tmp_path / "here")
