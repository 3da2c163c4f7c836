"""Builds in a store: one writer at a time, and a reader of ``current`` never sees a mixture."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from stub_memory import Watched
from stub_s3 import BUCKET

from pipeline.builds import lease, store_place, store_versions
from pipeline.builds.store_place import StorePlace
from pipeline.manifest.dataset_files import write_json
from pipeline.manifest.json_records import sealed_text
from pipeline.stores import Store, open_store
from pipeline.stores.objects import ObjectStore
from stages.errors import SurroundingsError, UsageError

_numbers = itertools.count()


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
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
    return str(json.loads((folder / "manifest.json").read_bytes())["build_id"])


@pytest.fixture
def address() -> Iterator[str]:
    """A place in memory; it is empty."""
    MemoryFileSystem.store.clear()
    yield f"memory://out-{next(_numbers)}"
    MemoryFileSystem.store.clear()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def anywhere(request: pytest.FixtureRequest, address: str) -> str:
    """The same in memory and on a server of S3."""
    if request.param == "memory":
        return address
    request.getfixturevalue("in_s3")
    return f"s3://{BUCKET}/out-{next(_numbers)}"


def placed(address: str, here: Path, keep: int = 2, *, single: bool = False) -> StorePlace:
    return StorePlace.at(address, here / "place", keep, single)


def put(place: StorePlace, made: Path) -> tuple[str, ...]:
    """Publish a build that was made before, as a run would."""
    with place.staging() as folder:
        shutil.copytree(made, folder, dirs_exist_ok=True)
        return place.publish(folder, id_of(made))[0]


def read(store: Store) -> str | None:
    """What a reader of ``current`` sees, file by file; the id of a whole build.

    It begins anew where the version that it reads is removed because newer ones were put.
    """
    for _ in range(50):
        now = store_versions.current(store)
        if now.build_id is None:
            return None
        data = store.get(f"{now.build_id}/manifest.json")
        if data is None:
            assert store_versions.current(store) != now, "the current version has no manifest"
            continue
        manifest = json.loads(data)
        assert manifest["build_id"] == now.build_id
        assert manifest["content_sha256"] == now.manifest_sha256
        for name, sha256 in manifest["files"].items():
            content = store.get(f"{now.build_id}/{name}")
            if content is None:
                assert store_versions.current(store) != now, f"{name} is missing"
                break
            assert hashlib.sha256(content).hexdigest() == sha256, name
        else:
            return now.build_id
    raise AssertionError("fifty versions came and went while it read")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, address: str) -> Watched:
    """The store that writers use; readers see the same objects."""
    filesystem = Watched()
    monkeypatch.setattr(
        store_place, "open_store", lambda at: ObjectStore(filesystem, f"/{at[9:]}", str(at))
    )
    return filesystem


def test_builds_follow_each_other_and_old_ones_are_let_go(
    builds: list[Path], address: str, tmp_path: Path
) -> None:
    """Two stay where nothing is said; the one that was replaced can be gone back to."""
    store = open_store(address)
    ids = [id_of(one) for one in builds]
    assert read(store) is None
    assert put(placed(address, tmp_path), builds[0]) == ()
    assert put(placed(address, tmp_path), builds[1]) == ()
    assert put(placed(address, tmp_path), builds[2]) == (ids[0],)
    assert read(store) == ids[2]
    assert {name.partition("/")[0] for name in store.list()} == {*ids[1:], "objects", "current"}
    before, now = store_versions.rollback(store, None)
    assert placed(address, tmp_path).withdrawn(ids[2])
    assert (before, now.build_id) == (ids[2], ids[1])
    assert read(store) == ids[1]
    with pytest.raises(UsageError, match="no version begins"):
        store_versions.rollback(store, "0000")


def test_whatever_stops_it_no_reader_sees_a_mixture_and_the_next_call_finishes(
    builds: list[Path], address: str, watched: Watched, tmp_path: Path
) -> None:
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
        with pytest.raises(KeyboardInterrupt):
            put(placed(address, tmp_path, 1), builds[1])
        assert read(reader) in ids[:2]
        watched.left, watched.changes = None, 0
        reader.delete("lock")  # of a process that was killed; its lease is another test's
        put(placed(address, tmp_path, 1), builds[1])
        assert read(reader) == ids[1]
        assert watched.changes <= total + 1
        assert store_versions.whole(reader, ids[1]) is not None
        assert "lock" not in reader.names()


def test_a_stopped_run_has_not_put_in_vain(
    builds: list[Path], address: str, watched: Watched, tmp_path: Path
) -> None:
    """The next one puts what is missing, and no more."""
    put(placed(address, tmp_path), builds[1])
    store = open_store(address)
    name = f"{id_of(builds[1])}/serving.json"
    store.put(name, b"damaged")
    assert store_versions.whole(store, id_of(builds[1])) is None
    watched.sent.clear()
    put(placed(address, tmp_path), builds[1])
    assert [path.rpartition("/")[2] for path in watched.sent] == ["serving.json"]
    assert read(store) == id_of(builds[1])


def test_a_second_writer_is_told_who_writes(
    builds: list[Path], address: str, tmp_path: Path
) -> None:
    """And when it may; the first one is not disturbed."""
    with placed(address, tmp_path / "one").staging() as folder:
        assert folder.is_dir()
        with (
            pytest.raises(SurroundingsError, match="being built by another run") as refused,
            placed(address, tmp_path / "two").staging(),
        ):
            pass
        assert "process" in refused.value.what
        assert "its lock is over in" in refused.value.remedy
    put(placed(address, tmp_path / "two"), builds[0])
    assert read(open_store(address)) == id_of(builds[0])


def _dead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes until every lock that is not renewed is over."""
    monkeypatch.setattr(lease, "LEASE", 0.05)
    held = json.loads(store.get("lock") or b"{}")
    store.put("lock", json.dumps({**held, "lease": 0.05}).encode())
    time.sleep(0.2)


def test_the_lock_of_a_writer_that_died_is_taken_over(
    builds: list[Path], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    builds: list[Path], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another took it for dead, and has put its build; or is still putting it."""
    store = open_store(address)
    monkeypatch.setattr(lease, "RENEWAL", 1000.0)
    slow, quick = placed(address, tmp_path / "slow"), placed(address, tmp_path / "quick")
    with slow.staging() as folder:
        shutil.copytree(builds[0], folder, dirs_exist_ok=True)
        _dead(store, monkeypatch)
        monkeypatch.setattr(lease, "LEASE", 60.0)  # it thinks that its lock is still good
        with quick.staging() as other:
            writer = slow.now.writer
            assert writer is not None
            manifest = (builds[0] / "manifest.json").read_bytes()
            with monkeypatch.context() as blind:  # it asked for its lock a moment too early
                blind.setattr(lease.Lease, "require", lambda self, ask=False: None)
                with pytest.raises(SurroundingsError, match="was taken over"):
                    writer.point(id_of(builds[0]), manifest)
            assert store_versions.current(store).build_id is None
            shutil.copytree(builds[1], other, dirs_exist_ok=True)
            quick.publish(other, id_of(builds[1]))
        with pytest.raises(SurroundingsError, match="was lost"):
            slow.publish(folder, id_of(builds[0]))
    assert read(store) == id_of(builds[1])


def test_a_lock_is_renewed_while_it_is_used(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So nobody takes it over, however long the build."""
    monkeypatch.setattr(lease, "LEASE", 0.5)
    monkeypatch.setattr(lease, "RENEWAL", 0.05)
    store = open_store(address)
    with placed(address, tmp_path / "one").staging():
        first = store.get("lock")
        time.sleep(1.2)
        assert store.get("lock") != first
        with pytest.raises(SurroundingsError, match="another run"):
            placed(address, tmp_path / "two").staging().__enter__()
    assert store.get("lock") is None


def test_readers_hammer_current_while_builds_replace_each_other(
    builds: list[Path], anywhere: str, tmp_path: Path
) -> None:
    """Each time they find one build, whole."""
    address = anywhere
    stop, seen, wrong = threading.Event(), set(), []

    def hammer() -> None:
        store = open_store(address)
        while not stop.is_set():
            try:
                seen.add(read(store))
            except BaseException as error:
                wrong.append(error)
                return

    readers = [threading.Thread(target=hammer) for _ in range(3)]
    for one in readers:
        one.start()
    for turn in range(9):
        put(placed(address, tmp_path), builds[turn % 3])
    stop.set()
    for one in readers:
        one.join()
    assert wrong == []
    assert len(seen - {None}) > 1


def test_two_writers_at_once_leave_one_whole_build(
    builds: list[Path], anywhere: str, tmp_path: Path
) -> None:
    """One wins; the other is refused, or comes after it."""
    address = anywhere
    refused: list[SurroundingsError] = []

    def write(number: int) -> None:
        try:
            put(placed(address, tmp_path / str(number)), builds[number])
        except SurroundingsError as error:
            refused.append(error)

    for _ in range(5):
        refused.clear()
        writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for one in writers:
            one.start()
        for one in writers:
            one.join()
        assert len(refused) < 2
        assert read(open_store(address)) in {id_of(one) for one in builds[:2]}
        assert "lock" not in open_store(address).names()


def test_a_store_that_cannot_decide_needs_a_promise(
    builds: list[Path], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it nothing is put; with it, a lock that is there is still respected."""

    class Cloud(MemoryFileSystem):
        protocol = "gs"
        cachable = False

    store = ObjectStore(Cloud(), f"/{address[9:]}", "gs://bucket/x")
    monkeypatch.setattr(store_place, "open_store", lambda at: store)
    with pytest.raises(UsageError, match="cannot decide") as refused:
        placed("gs://bucket/x", tmp_path)
    assert "--single-writer" in refused.value.remedy
    single = placed("gs://bucket/x", tmp_path / "one", single=True)
    put(single, builds[0])
    assert read(store) == id_of(builds[0])
    with (
        single.staging(),
        pytest.raises(SurroundingsError, match="another run"),
    ):
        placed("gs://bucket/x", tmp_path / "two", single=True).staging().__enter__()


def test_a_store_that_ignores_conditions_is_found_out(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some take the headers and overwrite all the same."""
    monkeypatch.setattr(
        "pipeline.stores.objects._Memory.create",
        lambda self, filesystem, path, content: filesystem.pipe_file(path, content) is None,
    )
    with pytest.raises(UsageError, match="ignores conditions"):
        placed(address, tmp_path).staging().__enter__()
    assert open_store(address).get("lock") is None
    with pytest.raises(UsageError, match="ignores conditions"):
        store_versions.rollback(open_store(address), None)
    with pytest.raises(UsageError, match="no earlier version"):  # the promise lets it go on
        store_versions.rollback(open_store(address), None, single=True)


@pytest.mark.parametrize(
    ("name", "says"), [("notes.txt", "not of a build"), ("manifest.json", "published copy")]
)
def test_somebody_elses_objects_are_left_alone(
    address: str, tmp_path: Path, name: str, says: str
) -> None:
    """Nothing is put beside them."""
    open_store(address).put(name, b"mine")
    with pytest.raises(UsageError, match=says):
        placed(address, tmp_path).staging().__enter__()
    assert open_store(address).names() == (name,)


def test_an_equal_build_that_is_found_late_becomes_the_current_one(
    builds: list[Path], address: str, tmp_path: Path
) -> None:
    """Under the lock that the run has already; no object of it is put again."""
    store, ids = open_store(address), [id_of(one) for one in builds]
    for made in builds[:2]:
        put(placed(address, tmp_path), made)
    before = {name: one.modified for name, one in store.list(ids[0]).items()}
    place = placed(address, tmp_path)
    with place.staging():
        assert place.manifest_of(ids[0]) is not None
        place.turn_to(ids[0])
        assert store.get("lock") is not None
    assert read(store) == ids[0]
    assert {name: one.modified for name, one in store.list(ids[0]).items()} == before
    assert store.get("lock") is None


def test_an_object_of_somebody_in_a_version_is_never_removed(
    builds: list[Path], address: str, tmp_path: Path
) -> None:
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
    with pytest.raises(UsageError, match=r"notes\.txt"):
        put(placed(address, tmp_path), builds[0])
    assert read(store) == ids[1]
