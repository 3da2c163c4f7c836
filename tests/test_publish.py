"""A reader sees the old build or the new one, whatever happens to runs, signals and disks."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Make, Run, few, files_of, flip, read_manifest, write_rows
from test_versions import MODEL, _rows, id_of, ids, publish, strangers

from pipeline.builds import lease, versions
from pipeline.builds import publish as publishing
from pipeline.builds.place import Place
from stages.errors import SurroundingsError, UsageError

PIPELINE = str(Path(sys.executable).parent / "pipeline")


def _environment(cache_home: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}


def _start(data: Path, cache_home: Path, *more: str, **settings: Any) -> subprocess.Popen[str]:
    """A build into ``r``, as a process of its own."""
    command = [PIPELINE, "run", "sft", str(data), *MODEL, "-o", "r", "--keep", "3", "--json", *more]
    return subprocess.Popen(
        command, cwd=data.parent, env=_environment(cache_home), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings,
    )  # fmt: skip


def _ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The one object that it printed."""
    out, err = process.communicate(timeout=120)
    (line,) = out.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found["code"] == process.returncode, err
    return found


def test_a_reader_finds_a_whole_version_at_any_moment(tmp_path: Path) -> None:
    """While versions come and go as fast as they can."""
    place = Place.of(tmp_path / "r", 30)
    publish(place, id_of(0))
    stop, wrong, read = threading.Event(), list[str](), list[str]()

    def reader() -> None:
        while not stop.is_set():
            try:
                folder = (place.real / "current").resolve(strict=True)
                names = {path.name for path in folder.iterdir()}
                text = (place.real / "current" / "data.arrow").read_text()
            except OSError as error:
                wrong.append(str(error))
                continue
            if names != {"manifest.json", "data.arrow"} or len(text) != 64:
                wrong.append(f"{names} {text}")
            read.append(text)

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(1, 60):
        publish(place, id_of(n))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(set(read)) > 1
    assert strangers(place.real) == []


@pytest.mark.slow
def test_two_runs_at_once(tmp_path: Path, cache_home: Path) -> None:
    """One builds; the other is told who does, or finds the build. Both are in the history."""
    data = _rows(tmp_path / "rows.jsonl", 40)
    processes = [_start(data, cache_home) for _ in range(2)]
    found = [_ended(process) for process in processes]
    assert "built" in {one["status"] for one in found}
    for one in found:
        if one["status"] == "failed":
            assert one["code"] == 5
            assert "is being built by another run (process " in one["message"]
        else:
            assert one["status"] in ("built", "unchanged")
    assert len(ids(tmp_path / "r")) == 1
    lines = lease.read(tmp_path / "r")
    assert sorted(line["status"] for line in lines) == sorted(one["status"] for one in found)
    assert strangers(tmp_path / "r") == []
    assert _ended(_start(data, cache_home))["status"] == "unchanged"


@pytest.mark.parametrize("kind", few([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], 1))
def test_an_interruption_is_an_object_and_a_line(
    tmp_path: Path, cache_home: Path, kind: signal.Signals
) -> None:
    """Nothing is published, nothing is left, and whom to notify is told."""
    data = _rows(tmp_path / "rows.jsonl", 4000)
    process = _start(data, cache_home, "--notify", "cat > told.json", start_new_session=True)
    lock = tmp_path / "r" / ".current.lock"
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError):
            if lock.read_text():
                break
        time.sleep(0.005)
    os.killpg(process.pid, kind)
    found = _ended(process)
    assert (found["status"], found["code"]) == ("failed", 130)
    assert found["message"] == "interrupted; nothing was published"
    assert json.loads((tmp_path / "told.json").read_text()) == found
    (line,) = lease.read(tmp_path / "r")
    assert (line["status"], line["code"], line["current"]) == ("failed", 130, None)
    assert strangers(tmp_path / "r") == []
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "r", "told.json"}


@pytest.mark.slow
def test_a_full_disk_leaves_the_current_version(tmp_path: Path, cache_home: Path) -> None:
    """A file that cannot grow stands for it: status 5, no leftovers, and the next run builds."""
    data = _rows(tmp_path / "rows.jsonl", 20)
    first = _ended(_start(data, cache_home))
    _rows(data, 30000)

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    found = _ended(_start(data, cache_home, "--workers", "1", preexec_fn=small))
    assert (found["status"], found["code"]) == ("failed", 5), found["message"]
    assert versions.current_id(tmp_path / "r") == first["build_id"]
    assert strangers(tmp_path / "r") == []
    assert ids(tmp_path / "r") == {first["build_id"]}
    assert _ended(_start(data, cache_home, "--replace"))["status"] == "built"
    assert [line["status"] for line in lease.read(tmp_path / "r")] == ["built", "failed", "built"]


@pytest.mark.slow
def test_an_unchanged_build_lets_go_of_old_versions(pipeline: Run, tmp_path: Path) -> None:
    """Where fewer are to be kept than before; with the same number it changes nothing."""
    data = tmp_path / "rows.jsonl"
    command = ("run", "sft", data, *MODEL, "-o", "r", "--json")
    for count in (20, 21, 22):
        _rows(data, count)
        pipeline(*command, "--keep", "3").ended()
    assert json.loads(pipeline(*command, "--keep", "3").out)["figures"]["versions_removed"] == []
    found = json.loads(pipeline(*command, "--keep", "1").out)
    assert (found["status"], len(found["figures"]["versions_removed"])) == ("unchanged", 2)
    assert ids(tmp_path / "r") == {found["build_id"]}


@pytest.mark.slow
def test_another_model_s_version_asks_too(pipeline: Run, tmp_path: Path) -> None:
    """Whether it is to be built, or is there from before and only the link would change."""
    data = _rows(tmp_path / "rows.jsonl", 20)
    command = ("run", "sft", data, "-o", "r", "--keep", "3", "--model")
    pipeline(*command, "qwen2-1.5b").ended()
    for more, status in (((), 2), (("--replace",), 0)):
        pipeline(*command, "qwen2.5-7b-instruct", *more).refused(status)
    pipeline(*command, "qwen2-1.5b").refused(2, "publish it with --replace")
    pipeline(*command, "qwen2-1.5b", "--replace").ended()


@pytest.mark.slow
def test_leftovers_of_programs_in_a_version(pipeline: Run, tmp_path: Path) -> None:
    """They block neither an equal build nor the next one, and go with the version."""
    data = _rows(tmp_path / "rows.jsonl", 20)
    command = ("run", "sft", data, *MODEL, "-o", "r", "--keep", "1", "--json")
    first = json.loads(pipeline(*command).out)
    version = tmp_path / first["paths"]["build"]
    left = (
        ".DS_Store",
        "__pycache__/x.pyc",
        "train/.ipynb_checkpoints/a.ipynb",
        "train/cache-1f.arrow",
    )
    for name in left:
        (version / name).parent.mkdir(exist_ok=True)
        (version / name).write_text("x")
    (tmp_path / "r" / ".DS_Store").write_text("x")
    again = json.loads(pipeline(*command).out)
    assert again["status"] == "unchanged"
    assert again["figures"]["left_by_other_programs"] == sorted(left)
    pipeline("check", "r/current").ended()
    _rows(data, 21)
    second = json.loads(pipeline(*command).out)
    assert (second["status"], second["figures"]["versions_removed"]) == (
        "built",
        [first["build_id"]],
    )
    assert not version.exists()
    there = {path.name for path in (tmp_path / "r" / "current").rglob("*")}
    assert not there & {Path(name).name for name in left}


def test_a_second_build_waits_for_nobody(tmp_path: Path) -> None:
    """The message says who builds, and a rollback meanwhile is possible."""
    place = Place.of(tmp_path / "r", 3)
    publish(place, id_of(0))
    publish(place, id_of(1))
    with place.staging():
        with pytest.raises(SurroundingsError, match=f"another run .process {os.getpid()}, since"):
            publish(place, id_of(2))
        versions.rollback(place.real, None)
    assert place.current() == id_of(0)


@pytest.mark.parametrize("keep", [0, 2])
def test_an_interruption_behind_the_exchange(
    keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of folders and of the link: whether it was behind it can be seen."""
    place = Place.of(tmp_path / "r", keep)
    publish(place, id_of(0))
    flushed, exchange = publishing._sync, publishing._exchange

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def exchange_and_stop(one: Path, other: Path) -> bool:
        assert exchange(one, other)
        raise KeyboardInterrupt

    monkeypatch.setattr(publishing, "_sync", stop)
    there: list[Callable[[], bool]] = []
    publishes = Place.publish

    def noted(self: Place, folder: Path, build_id: str) -> object:
        there.append(self.moment(folder, build_id))
        return publishes(self, folder, build_id)

    monkeypatch.setattr(Place, "publish", noted)
    with pytest.raises(KeyboardInterrupt):
        publish(place, id_of(1))
    assert not there[-1]()
    monkeypatch.setattr(publishing, "_sync", flushed)
    if keep:
        monkeypatch.setattr(versions, "sync", stop)
    else:
        monkeypatch.setattr(publishing, "_exchange", exchange_and_stop)
    with pytest.raises(KeyboardInterrupt):
        publish(place, id_of(2))
    assert there[-1]()


def test_a_history_that_cannot_be_written_fails_no_build(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build is there, and says that its line is not."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lease, "append", full)
    make("sft", _rows(tmp_path / "rows.jsonl", 20), "r", keep=2)
    assert len(ids(tmp_path / "r")) == 1


def leftovers(folder: Path) -> list[str]:
    """What a run left beside its output."""
    return sorted(p.name for p in folder.iterdir() if p.name.startswith(".out"))


def test_a_build_is_kept_replaced_and_made_again(pipeline: Run, tmp_path: Path) -> None:
    """An equal build is kept as long as every byte of it is what its manifest says; another one
    takes its place, and refused data changes no byte of it. Nothing is left behind."""
    out = tmp_path / "out"
    command = ("run", "sft", "--model", "qwen2-1.5b", "-o", "out")
    data = SAMPLES / "sft" / "word_problems.jsonl"
    pipeline(*command, data).ended()
    assert "already up to date" in pipeline(*command, data).ended().err
    before = files_of(out)
    flip(next((out / "train").glob("*.arrow")))
    assert "built:" in pipeline(*command, data).ended().err
    assert files_of(out) == before
    pipeline(*command, data, "--layout", "ragged").ended()
    assert read_manifest(out)["layout"] == "ragged"
    before = files_of(out, with_run=True)
    bad = write_rows(tmp_path / "bad.jsonl", [{"question": "x", "answer": ""}] * 30)
    pipeline(*command, bad).refused(3, "bad.jsonl:1", "empty_answer")
    assert files_of(out, with_run=True) == before
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_a_build_whose_own_records_are_damaged_is_not_up_to_date(
    pipeline: Run, tmp_path: Path
) -> None:
    """Neither the manifest nor the record of the run is named by another file; both are sealed."""
    command = ("run", "sft", SAMPLES / "sft" / "word_problems.jsonl", "--model", "qwen2-1.5b")
    pipeline(*command, "-o", "out").ended()
    out = tmp_path / "out"
    whole = (out / "manifest.json").read_bytes()
    rows = f'"in": {read_manifest(out)["rows"]["in"]}'.encode()
    for name, content in (
        ("manifest.json", whole.replace(rows, b'"in": 999')),
        ("run.json", b"{}"),
        ("run.json", None),
    ):
        (out / name).unlink() if content is None else (out / name).write_bytes(content)
        again = pipeline(*command, "-o", "out").ended()
        assert "already up to date" not in again.err
        assert (out / "manifest.json").read_bytes() == whole
        pipeline("check", "out").ended()


def _start_big(tmp_path: Path, cache_home: Path, data: Path) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).parent / "pipeline"), "run", "sft", "--model", "qwen2-1.5b"]
    options = ["-o", "out", "--workers", "2", "--cache-dir", str(tmp_path / "parts")]
    return subprocess.Popen(
        [*command, str(data), *options],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(cache_home)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _big(tmp_path: Path, cache_dir: Path) -> Path:
    """A file of several splits, and a cache with the tokenizer in it."""
    rows = (SAMPLES / "sft" / "word_problems.jsonl").read_bytes()
    data = tmp_path / "big.jsonl"
    data.write_bytes(rows * (40_000_000 // len(rows)))
    (tmp_path / "parts").mkdir()
    os.symlink(cache_dir / "tokenizers", tmp_path / "parts" / "tokenizers")
    return data


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_interruption_leaves_no_half_build(
    kind: signal.Signals, tmp_path: Path, cache_home: Path, cache_dir: Path, tokenizer_json: bytes
) -> None:
    """Stopped in the middle there is no output; run again, the build is finished."""
    data = _big(tmp_path, cache_dir)
    process = _start_big(tmp_path, cache_home, data)
    staging = tmp_path / ".out.staging"
    deadline = time.monotonic() + 60
    while not staging.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(2)
    process.send_signal(kind)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-9 if kind == signal.SIGKILL else 130), err
    assert not (tmp_path / "out").exists()
    if kind != signal.SIGKILL:
        assert "interrupted" in err
        assert "Traceback" not in err
        assert leftovers(tmp_path) == []
    again = _start_big(tmp_path, cache_home, data)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert leftovers(tmp_path) == []
    rows = read_manifest(tmp_path / "out")["rows"]
    assert rows["in"] == rows["used"] == data.read_bytes().count(b"\n")


def test_a_second_run_on_the_same_output_is_refused(tmp_path: Path) -> None:
    """The lock names its holder, and goes when the holder does."""
    target = tmp_path / "out"
    refused = pytest.raises(SurroundingsError, match=str(os.getpid()))
    with publishing.staging(target), refused, publishing.staging(target):
        pass
    with publishing.staging(target) as folder:
        assert folder.is_dir()
    assert leftovers(tmp_path) == []


def test_publication_that_died_between_two_renames_is_finished(tmp_path: Path) -> None:
    """Where directories cannot be exchanged, the next run puts the old build back."""
    old = tmp_path / ".out.old"
    old.mkdir()
    (old / "manifest.json").write_text("{}")
    with publishing.staging(tmp_path / "out"):
        assert (tmp_path / "out" / "manifest.json").read_text() == "{}"


def staged(folder: Path, text: str) -> None:
    """Something to publish, with a folder inside it."""
    (folder / "train").mkdir()
    for name in ("manifest.json", "train/data.arrow"):
        (folder / name).write_text(text)


def test_everything_is_flushed_before_it_is_named_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, folders and the folder that holds the name: what is published outlives a power cut."""
    flushed: list[tuple[int, bool]] = []  # which file or folder, and whether it was in place
    target = tmp_path / "out"
    fsync = os.fsync

    def noted(handle: int) -> None:
        flushed.append((os.fstat(handle).st_ino, (target / "train").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with publishing.staging(target) as folder:
        staged(folder, "one")
        paths = [folder, *folder.rglob("*")]
        wanted = {path.stat().st_ino for path in paths}
        publishing.publish(folder, target)
    assert len(wanted) == 4
    assert {inode for inode, in_place in flushed if not in_place} == wanted
    assert [inode for inode, in_place in flushed if in_place] == [tmp_path.stat().st_ino]


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms cannot exchange two names")
def test_the_old_build_is_exchanged_for_the_new_one_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rename takes the old build's name away: at no moment is there no build."""
    target = tmp_path / "out"
    with publishing.staging(target) as folder:
        staged(folder, "one")
        publishing.publish(folder, target)

    def refused(*names: object) -> None:
        raise AssertionError(f"renamed {names}")

    with publishing.staging(target) as folder:
        staged(folder, "two")
        for owner, name in ((Path, "rename"), (Path, "replace"), (os, "rename"), (os, "replace")):
            monkeypatch.setattr(owner, name, refused)
        publishing.publish(folder, target)
        assert (folder / "manifest.json").read_text() == "one"  # the old one, until staging ends
        assert (target / "manifest.json").read_text() == "two"
    assert leftovers(tmp_path) == []


def test_without_an_exchange_two_renames_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fallback publishes too, and leaves nothing behind."""
    monkeypatch.setattr(publishing, "_exchange", lambda one, other: False)
    target = tmp_path / "out"
    for text in ("one", "two"):
        with publishing.staging(target) as folder:
            (folder / "manifest.json").write_text(text)
            publishing.publish(folder, target)
        assert (target / "manifest.json").read_text() == text
    assert leftovers(tmp_path) == []


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    """Only a build, or nothing, may be replaced."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not a build"):
        publishing.check_target(tmp_path / "out")
