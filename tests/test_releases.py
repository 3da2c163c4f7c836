"""A folder of versions under several hands: runs, readers and signals at once, and a full disk."""

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
from support import Ran
from test_versions import MODEL, _rows, id_of, ids, publish, strangers

from pipeline.builds import history, versions
from pipeline.builds import publish as publishing
from pipeline.builds.place import Place
from stages.errors import SurroundingsError

Run = Callable[..., Ran]
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
    lines = history.read(tmp_path / "r")
    assert sorted(line["status"] for line in lines) == sorted(one["status"] for one in found)
    assert strangers(tmp_path / "r") == []
    assert _ended(_start(data, cache_home))["status"] == "unchanged"


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
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
    (line,) = history.read(tmp_path / "r")
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
    assert [line["status"] for line in history.read(tmp_path / "r")] == ["built", "failed", "built"]


@pytest.mark.slow
def test_an_unchanged_build_lets_go_of_old_versions(pipeline: Run, tmp_path: Path) -> None:
    """Where fewer are to be kept than before; with the same number it changes nothing."""
    data = tmp_path / "rows.jsonl"
    command = ("run", "sft", data, *MODEL, "-o", "r", "--json")
    for count in (20, 21, 22):
        _rows(data, count)
        assert pipeline(*command, "--keep", "3").status == 0
    assert json.loads(pipeline(*command, "--keep", "3").out)["figures"]["versions_removed"] == []
    found = json.loads(pipeline(*command, "--keep", "1").out)
    assert (found["status"], len(found["figures"]["versions_removed"])) == ("unchanged", 2)
    assert ids(tmp_path / "r") == {found["build_id"]}


@pytest.mark.slow
def test_another_model_s_version_asks_too(pipeline: Run, tmp_path: Path) -> None:
    """Whether it is to be built, or is there from before and only the link would change."""
    data = _rows(tmp_path / "rows.jsonl", 20)
    command = ("run", "sft", data, "-o", "r", "--keep", "3", "--model")
    assert pipeline(*command, "qwen2-1.5b").status == 0
    for more, status in (((), 2), (("--replace",), 0)):
        ran = pipeline(*command, "qwen2.5-7b-instruct", *more)
        assert ran.status == status, ran.err
    ran = pipeline(*command, "qwen2-1.5b")
    assert ran.status == 2
    assert "publish it with --replace" in ran.err
    assert pipeline(*command, "qwen2-1.5b", "--replace").status == 0


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
    assert pipeline("check", "r/current").status == 0
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
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build is there, and says that its line is not."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(history, "append", full)
    make("sft", _rows(tmp_path / "rows.jsonl", 20), "r", keep=2)
    assert len(ids(tmp_path / "r")) == 1
