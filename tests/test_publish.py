"""A reader sees the old build or the new one, whatever happens to runs, signals and disks."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import support
from preloaded import Server, outputs
from support import SAMPLES, WIDE, Ran, few, files_of, noted, read_manifest, table, write_rows
from test_versions import MODEL, _rows, id_of, ids, publish, strangers

from pipeline.builds import folder_versions, lease
from pipeline.builds import publish as publishing
from pipeline.builds.folder_versions import FolderVersions
from pipeline.builds.place import Place
from stages.errors import DataError, SurroundingsError

PIPELINE = str(Path(sys.executable).parent / "pipeline")


def _start(data: Path, cache_home: Path, *more: str, **settings: Any) -> subprocess.Popen[str]:
    """A build into ``r``, as a process of its own."""
    command = [PIPELINE, "run", "sft", str(data), *MODEL, "-o", "r", "--keep", "3", "--json", *more]
    env = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=data.parent, env=env, text=True, **pipes, **settings)


def _ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The one object that it printed."""
    out, err = process.communicate(timeout=120)
    (line,) = out.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert found["code"] == process.returncode, err
    return found


@pytest.mark.parametrize("kind", few([signal.SIGINT, signal.SIGTERM], 1))
def test_an_interruption_is_an_object_and_a_line(tmp_path, cache_home, kind):
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
def test_a_full_disk_leaves_the_current_version(tmp_path, cache_home):
    """A file that cannot grow stands for it: status 5, no leftovers, and the next run builds."""
    data = _rows(tmp_path / "rows.jsonl", 20)
    first = _ended(_start(data, cache_home))
    _rows(data, 6000)

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    found = _ended(_start(data, cache_home, "--workers", "1", preexec_fn=small))
    assert (found["status"], found["code"]) == ("failed", 5), found["message"]
    assert FolderVersions(tmp_path / "r").current() == first["build_id"]
    assert strangers(tmp_path / "r") == []
    assert ids(tmp_path / "r") == {first["build_id"]}
    assert _ended(_start(data, cache_home, "--replace"))["status"] == "built"
    assert [line["status"] for line in lease.read(tmp_path / "r")] == ["built", "failed", "built"]


@pytest.mark.parametrize("keep", [0, 2])
def test_an_interruption_behind_the_exchange(keep, tmp_path, monkeypatch):
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
    there = noted(monkeypatch, Place, "publish", Place.moment)
    with pytest.raises(KeyboardInterrupt):
        publish(place, id_of(1))
    assert not there[-1]()
    monkeypatch.setattr(publishing, "_sync", flushed)
    if keep:
        monkeypatch.setattr(folder_versions, "sync", stop)
    else:
        monkeypatch.setattr(publishing, "_exchange", exchange_and_stop)
    with pytest.raises(KeyboardInterrupt):
        publish(place, id_of(2))
    assert there[-1]()


def leftovers(folder: Path) -> list[str]:
    """What a run left beside its output."""
    return sorted(p.name for p in folder.iterdir() if p.name.startswith(".out"))


def test_a_build_is_kept_replaced_and_made_again(make, tmp_path):
    """An equal build is kept as long as every byte of it is what its manifest says, and its own
    records are sealed; another one takes its place, and refused data changes no byte of it. Nothing
    is left behind."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    out = make("sft", data)
    before = files_of(out, with_run=True)
    assert files_of(make("sft", data), with_run=True) == before
    rows = f'"in": {read_manifest(out)["rows"]["in"]}'.encode()
    shard = next(name for name in before if name.endswith(".arrow"))
    manifest = before["manifest.json"].replace(rows, b'"in": 999')
    for name, content in {shard: b"", "manifest.json": manifest, "run.json": b"{}"}.items():
        (out / name).write_bytes(content)
        files = files_of(make("sft", data), with_run=True)
        run = json.loads(files.pop("run.json"))
        assert run["seconds"] > 0
        assert {**files, "run.json": before["run.json"]} == before, name
    make("sft", data, layout="ragged")
    assert read_manifest(out)["layout"] == "ragged"
    before = files_of(out, with_run=True)
    bad = write_rows(tmp_path / "bad.jsonl", [{"question": "x", "answer": ""}] * 30)
    with pytest.raises(DataError, match="empty_answer"):
        make("sft", bad, max_reject=0.01)
    assert files_of(out, with_run=True) == before
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_a_killed_run_leaves_no_half_build(tmp_path, cache_home, cache_dir, tokenizer_json):
    """Killed in the middle there is no version; run again, the build is finished."""
    rows = (SAMPLES / "sft" / "word_problems.jsonl").read_bytes()
    data = tmp_path / "big.jsonl"
    data.write_bytes(rows * (20_000_000 // len(rows)))  # of several splits
    cache = support.own_cache(tmp_path / "parts", cache_dir)
    options = ("--workers", "2", "--cache-dir", str(cache))
    process = _start(data, cache_home, *options)
    until = time.monotonic() + 60
    while not any((tmp_path / "parts").rglob("*.arrow")) and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=60)
    assert FolderVersions(tmp_path / "r").current() is None
    found = _ended(_start(data, cache_home, *options))
    assert found["status"] == "built"
    rows = read_manifest(tmp_path / "r" / "current")["rows"]
    assert rows["in"] == rows["used"] == data.read_bytes().count(b"\n")
    assert strangers(tmp_path / "r") == []


def test_a_second_run_on_the_same_output_is_refused(tmp_path):
    """The lock names its holder, and goes when the holder does; a version can be gone back to
    meanwhile."""
    target, place = tmp_path / "out", Place.of(tmp_path / "r", 3)
    for number in range(2):
        publish(place, id_of(number))
    held = f"another run .process {os.getpid()}, since"
    for staging in (lambda: publishing.staging(target), place.staging):
        with staging() as folder:
            assert folder.is_dir()
            with pytest.raises(SurroundingsError, match=held):
                staging().__enter__()
            FolderVersions(place.real).rollback(id_of(0))
    assert FolderVersions(place.real).current() == id_of(0)
    assert leftovers(tmp_path) == []


def test_publication_that_died_between_two_renames_is_finished(tmp_path):
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


def test_everything_is_flushed_before_it_is_named_and_the_name_after(tmp_path, monkeypatch):
    """Files, folders and the folder that holds the name: what is published outlives a power cut."""
    target = tmp_path / "out"

    def seen(handle: int) -> tuple[int, bool]:
        """Which file or folder, and whether it was in place."""
        return os.fstat(handle).st_ino, (target / "train").exists()

    flushed = noted(monkeypatch, os, "fsync", seen)
    with publishing.staging(target) as folder:
        staged(folder, "one")
        wanted = {path.stat().st_ino for path in [folder, *folder.rglob("*")]}
        publishing.publish(folder, target)
    assert len(wanted) == 4
    assert {inode for inode, in_place in flushed if not in_place} == wanted
    assert [inode for inode, in_place in flushed if in_place] == [tmp_path.stat().st_ino]


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms cannot exchange two names")
def test_the_old_build_is_exchanged_for_the_new_one_at_once(tmp_path, monkeypatch):
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


def test_without_an_exchange_two_renames_do(tmp_path, monkeypatch):
    """The fallback publishes too, and leaves nothing behind."""
    monkeypatch.setattr(publishing, "_exchange", lambda one, other: False)
    target = tmp_path / "out"
    for text in ("one", "two"):
        with publishing.staging(target) as folder:
            (folder / "manifest.json").write_text(text)
            publishing.publish(folder, target)
        assert (target / "manifest.json").read_text() == text
    assert leftovers(tmp_path) == []


# Once a build is published, nothing that goes wrong changes its status: it is a warning.

DATA = str(SAMPLES / "sft" / "word_problems.jsonl")
SFT = ("run", "sft", DATA, "--model", "qwen2-1.5b", "-o", "out", "--workers", "1")
FULL = 'OSError(28, "No space left on device")'

# Raises at one call of the system behind the publication; all such calls are in the file "calls".
_FAILING: str = table("programs.toml")["call_that_fails"]


class Failing:
    """Commands of which one call of the system fails, after what they made was published."""

    def __init__(self, commands: Server, cache_home: Path, folder: Path) -> None:
        self._commands, self._folder = commands, folder
        self._variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}

    def run(self, folder: Path, *words: str, at: int = 0, error: str = FULL) -> Ran:
        """A command of which the ``at``-th such call fails."""
        before = _FAILING.format(at=at, error=error)
        status = self._commands([*words], folder, self._variables, before)
        out, err = (path.read_text("utf-8") for path in outputs(folder))
        return Ran(status, out, err)

    def copied(self, name: str) -> Path:
        """A copy of the folder in which one build was made before."""
        before = self._folder / "before"
        if not before.exists():
            before.mkdir()
            assert self.run(before, *SFT).status == 0
        folder = self._folder / name
        # Without the calls of that build: those of the copy are counted from the first.
        shutil.copytree(before, folder, symlinks=True, ignore=shutil.ignore_patterns("calls"))
        return folder

    def every(self, command: tuple[str, ...], out: str, only: int, error: str = FULL) -> None:
        """``only`` of the calls fail, each in a run of its own: the build stands, and is told."""
        first = self.copied("first")
        assert self.run(first, *command).status == 0
        calls = (first / "calls").read_text().splitlines()
        assert "os.fsync" in calls
        for at in range(1, len(calls) + 1, max(1, len(calls) // only)):
            folder = self.copied(f"at-{at}")
            ran = self.run(folder, *command, at=at, error=error)
            where = f"{at}, {calls[at - 1]}: {ran.err}"
            assert ran.status == 0, where
            found = json.loads(ran.out)
            assert (found["status"], found["code"]) == ("built", 0), where
            told = [note for note in found["figures"]["notes"] if "published all the same" in note]
            assert all(note in ran.err for note in told), where
            assert told or calls[at - 1] not in ("os.fsync", "shutil.rmtree"), where
            assert self.run(folder, "check", out).status == 0, where


@pytest.fixture
def failing(commands, cache_home, tmp_path) -> Failing:
    """In a folder of the test."""
    return Failing(commands, cache_home, tmp_path)


ALL = 1000 if WIDE else 5
VERSION = (*SFT[:-3], "kept", "--keep", "1")


@pytest.mark.parametrize(
    ("command", "out", "only"),
    few(
        [
            ((*SFT, "--layout", "ragged"), "out", 1),
            ((*SFT, "--layout", "ragged"), "out", ALL),
            (VERSION, "kept/current", 1),
            (VERSION, "kept/current", ALL),
        ],
        1,
    ),
)
def test_a_build_stands_whatever_fails_behind_it(failing, command, out, only):
    """Flushes, removals, files of the cache, and behind a link the history and versions that go:
    one call of the system fails, each in its turn."""
    failing.every((*command, "--json", "--quiet"), out, only)


@pytest.mark.slow
def test_a_build_stands_whatever_is_interrupted_behind_it(failing):
    """Status 130 is for what was not published."""
    command = (*SFT, "--layout", "ragged", "--json", "--quiet")
    failing.every(command, "out", 12 if WIDE else 3, "KeyboardInterrupt")


def _started(folder: Path, cache_home: Path, line: str) -> Ran:
    """A line of a shell in which ``pipeline`` is the command."""
    return support.in_shell(line, folder, XDG_CACHE_HOME=str(cache_home), HF_HUB_OFFLINE="1")


RUN = " ".join(SFT)


@support.sweep(2)
@pytest.mark.parametrize(
    ("line", "said"),
    few(
        [
            (f"{RUN} >/dev/full", "out is published all the same: The disk is full"),
            (f"{RUN} 2>/dev/full", ""),
            (f"{RUN} >&- 2>&-", ""),
            (f"{RUN} 2>&1 | true", ""),
            (f"{RUN} --json | true", ""),
        ],
        1,
    ),
)
def test_a_build_does_not_depend_on_its_reader(line, said, tmp_path, cache_home):
    """What cannot be said is no reason to build nothing, nor to say that nothing was built."""
    done = _started(tmp_path, cache_home, f"pipeline {line}")
    assert done.status == 0, done.err
    assert said in done.err
    assert (tmp_path / "out" / "manifest.json").is_file()


@pytest.mark.slow
def test_a_command_that_nobody_reads_ends_as_if_somebody_did(tmp_path, cache_home):
    """And where a file was to keep what it says, and is full, that is the disk's fault. A refusal
    is one: the status of a pipe's first command is what a script goes by."""
    done = _started(
        tmp_path, cache_home, "pipeline run sft --help | true; pipeline list models >&-"
    )
    assert (done.status, done.err) == (0, "")
    done = _started(tmp_path, cache_home, "pipeline explain >/dev/full").ended(5)
    assert done.err.startswith("Error: The disk is full")
    _started(tmp_path, cache_home, "pipeline check . --json | true").ended(3)
