"""Outputs in a store on the loopback, by the commands: the same bytes, and few requests."""

import hashlib
import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from stub_s3 import BUCKET, S3Stub
from support import SAMPLES, Run, files_of

from pipeline.builds import lease, store_versions
from pipeline.stores import Store, open_store

DATA = SAMPLES / "sft" / "word_problems.jsonl"
COMMAND = ("run", "sft", DATA, "--model", "qwen2-1.5b", "--test-size", "0.3", "--quiet")


@pytest.fixture
def store(in_s3: S3Stub, request: pytest.FixtureRequest) -> Store:
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
def test_a_build_in_a_store_is_the_build_of_a_folder(
    pipeline: Run, s3: S3Stub, store: Store, tmp_path: Path
) -> None:
    """Its bytes; two requests for each file that is put, and none for a shard of an equal build."""
    pipeline(*COMMAND, "-o", tmp_path / "here", "--workers", "1").ended()
    before = len(s3.requests)
    said = pipeline(*COMMAND, "-o", store.shown, "--workers", "1", "--json").ended().told
    assert said["paths"]["build"] == f"{store.shown}/{said['build_id']}"
    files = contents(store)
    assert files == files_of(tmp_path / "here")
    shards = [name for name in files if name.endswith(".arrow")]
    kinds = asked(s3, store.shown[5:], before)
    reading = len(files)  # by this test, in one GET and one HEAD each
    assert kinds["PUT shard"] == len(shards)
    assert kinds["LIST whole"] <= 8
    assert kinds.total() <= 2 * (len(files) + 1) + 2 * (reading + 1) + 40, kinds
    before = len(s3.requests)
    again = pipeline(*COMMAND, "-o", store.shown, "--workers", "1", "--json")
    assert json.loads(again.out)["status"] == "unchanged", again.err
    kinds = asked(s3, store.shown[5:], before)
    assert [kind for kind in kinds if "shard" in kind] == []
    assert kinds["LIST whole"] == 1
    assert kinds.total() <= 20, kinds
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.slow
def test_versions_in_a_store_are_listed_and_gone_back_to(
    pipeline: Run, store: Store, tmp_path: Path
) -> None:
    """A recipe keeps seven; what a rollback took back is not published again by itself."""
    rows = DATA.read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "r.toml").write_text(
        f'task = "sft"\nmodel = "qwen2-1.5b"\ndata = "rows.jsonl"\noutput = "{store.shown}"\n'
    )
    build = ("build", "r.toml", "--json", "--quiet")
    ids = []
    for count in (4, 8):
        (tmp_path / "rows.jsonl").write_text("".join(rows[:count]))
        ids.append(pipeline(*build).ended().told["build_id"])
    listed = pipeline("versions", store.shown, "--json").told
    assert [one["build_id"] for one in listed["versions"]] == ids[::-1]
    assert listed["current"] == ids[1]
    assert pipeline("rollback", store.shown, "--json").ended().told["build_id"] == ids[0]
    ran = pipeline(*build).ended()
    assert ran.told["build_id"] == ids[0]
    assert "rolled back" in ran.out
    assert pipeline(*build, "--replace").ended().told["build_id"] == ids[1]
    pipeline("versions", "hold", store.shown, "current").refused(2, "cannot be held")
    said = [line["status"] for line in lease.lines_of(store.get(lease.HISTORY) or b"")]
    assert said == ["built", "built", "rolled back", "unchanged", "unchanged"]
    (tmp_path / "rows.jsonl").write_text("".join(rows[:1]))
    pipeline(*build, "--drift", "rows=0.1").ended(3)  # it is compared with what the store has
    assert contents(store)
    pipeline(*COMMAND[:4], "qwen2.5-0.5b", "-o", store.shown).refused(2, "qwen2-1.5b")


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_named(pipeline: Run, store: Store) -> None:
    """Before anything is made; and where another writes, who holds the lock."""
    for output, option, says in (
        (f"s3://no-such-{BUCKET}/x", "--quiet", "no such bucket"),
        ("memory://x", "--quiet", "is an address"),
        ("out", "--single-writer", "for an output in a store"),
    ):
        pipeline(*COMMAND, "-o", output, option).refused(2, says)
    lock = {"owner": "node-7, process 12", "call": "x", "lease": 600}
    store.put("lock", json.dumps(lock).encode())
    ran = pipeline(*COMMAND, "-o", store.shown).refused(5, "node-7, process 12")
    assert re.search(r"its lock is over in \d+ seconds", ran.err)
    assert set(store.list()) == {"lock"} | {n for n in store.list() if n.startswith("history")}


@pytest.mark.slow
def test_builds_in_a_store_are_read_in_place(pipeline: Run, store: Store, tmp_path: Path) -> None:
    """By every command that reads one, and from Python; damage is found where it is."""
    pipeline(*COMMAND, "-o", store.shown).ended()
    pipeline(*COMMAND, "-o", tmp_path / "here").ended()
    pipeline("check", store.shown).ended()
    for command in (("show", "--random", "2", "--seed", "1"), ("report", "-o", "page.html")):
        there = pipeline(command[0], store.shown, *command[1:]).ended()
        page = (tmp_path / "page.html").read_text("utf-8") if "-o" in command else ""
        page = re.sub(rf"{re.escape(store.shown)}(/[0-9a-f]{{64}})?", str(tmp_path / "here"), page)
        same = pipeline(command[0], tmp_path / "here", *command[1:])
        assert there.out.replace(store.shown, str(tmp_path / "here")) == same.out
        assert page == ((tmp_path / "page.html").read_text("utf-8") if "-o" in command else "")
    for name, build in (("a", store.shown), ("b", tmp_path / "here")):
        pipeline("export", "trl", build, "-o", name, "--layout", "ragged").ended()
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    ran = pipeline("diff", store.shown, tmp_path / "here", "--json")
    assert json.loads(ran.out)["examples"]["changed"] == 0, ran.err
    pipeline("report", store.shown).refused(2, "in a store")
    now = store_versions.current(store).build_id
    shard = next(name for name in store.list(str(now)) if name.endswith(".arrow"))
    data = bytearray(store.get(shard) or b"")
    data[-40] ^= 1
    store.put(shard, bytes(data))
    pipeline("check", store.shown).refused(3, "sha256")
    pipeline("export", "trl", store.shown, "-o", "c", XDG_CACHE_HOME=str(tmp_path / "new")).refused(
        3, "has changed since the build"
    )
    pipeline(*COMMAND, "-o", store.shown).ended()
    assert contents(store) == files_of(tmp_path / "here")


@pytest.mark.slow
def test_a_killed_writer_is_followed_by_the_next(s3: S3Stub, store: Store, pipeline: Run) -> None:
    """Processes that end at once after nine puts, without any handler of their own: their lock runs
    out, the next one takes it over and goes on, and one of them finishes."""
    code = (
        "import os\nfrom pipeline.builds import lease\nfrom pipeline import stores\n"
        "lease.LEASE, lease.RENEWAL = 4.0, 0.5\nsend, left = stores.send, [9]\n"
        "def stopped(*given):\n    left[0] -= 1\n    left[0] < 0 and os._exit(9)\n"
        "    return send(*given)\nstores.send = stopped\n"
    )
    words = (*COMMAND, "-o", store.shown, "--workers", "1")
    ends: list[int] = []
    while 0 not in ends:
        assert len(ends) < 9
        ran = pipeline(*words, before=code, **s3.environment)
        ends.append(ran.status)
        assert ran.status in (0, 9), ran.err
        if ends[-1]:
            assert store_versions.current(store).build_id is None
            time.sleep(5.5)  # until its lock is over
    assert 9 in ends
    assert contents(store)
    told = [line["status"] for line in lease.lines_of(store.get(lease.HISTORY) or b"")]
    assert told.count("failed") == ends.count(9)
    assert "lock" not in store.list()
