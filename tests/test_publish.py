"""A reader sees the old build or the new one, whatever happens to the run."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import SAMPLES, Ran, read_manifest

from pipeline.builds import publish
from stages.errors import SurroundingsError, UsageError

Run = Callable[..., Ran]


def fingerprint(folder: Path) -> dict[str, str]:
    """Hash of every file below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leftovers(folder: Path) -> list[str]:
    """What a run left beside its output."""
    return sorted(p.name for p in folder.iterdir() if p.name.startswith(".out"))


def test_a_new_build_takes_the_old_ones_place(pipeline: Run, tmp_path: Path) -> None:
    """Building again with other options exchanges the directory and leaves nothing behind."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    first = pipeline("run", "sft", "--model", "qwen2-1.5b", data, "-o", "out")
    assert first.status == 0, first.err
    again = pipeline("run", "sft", "--model", "qwen2-1.5b", data, "-o", "out")
    assert "already up to date" in again.err
    options = ("--layout", "ragged")
    other = pipeline("run", "sft", "--model", "qwen2-1.5b", data, "-o", "out", *options)
    assert other.status == 0, other.err
    assert read_manifest(tmp_path / "out")["layout"] == "ragged"
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_a_build_whose_own_records_are_damaged_is_not_up_to_date(
    pipeline: Run, tmp_path: Path
) -> None:
    """Neither the manifest nor the record of the run is named by another file; both are sealed."""
    command = ("run", "sft", SAMPLES / "sft" / "word_problems.jsonl", "--model", "qwen2-1.5b")
    assert pipeline(*command, "-o", "out").status == 0
    out = tmp_path / "out"
    whole = (out / "manifest.json").read_bytes()
    rows = f'"in": {read_manifest(out)["rows"]["in"]}'.encode()
    for name, content in (
        ("manifest.json", whole.replace(rows, b'"in": 999')),
        ("run.json", b"{}"),
        ("run.json", None),
    ):
        (out / name).unlink() if content is None else (out / name).write_bytes(content)
        again = pipeline(*command, "-o", "out")
        assert again.status == 0, again.err
        assert "already up to date" not in again.err
        assert (out / "manifest.json").read_bytes() == whole
        assert pipeline("check", "out").status == 0


def test_a_failed_build_leaves_the_old_one(pipeline: Run, tmp_path: Path) -> None:
    """Refused data changes no byte of what was there."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    assert pipeline("run", "sft", "--model", "qwen2-1.5b", data, "-o", "out").status == 0
    before = fingerprint(tmp_path / "out")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "x", "answer": ""}\n' * 30)
    ran = pipeline("run", "sft", "--model", "qwen2-1.5b", bad, "-o", "out")
    assert ran.status == 3
    assert "bad.jsonl:1" in ran.err
    assert "empty_answer" in ran.err
    assert fingerprint(tmp_path / "out") == before
    assert leftovers(tmp_path) == []


def test_a_flipped_byte_is_no_finished_build(pipeline: Run, tmp_path: Path) -> None:
    """An equal build is kept only when every byte of it is what its manifest says."""
    data = SAMPLES / "sft" / "word_problems.jsonl"
    command = ("run", "sft", "--model", "qwen2-1.5b", data, "-o", "out")
    assert pipeline(*command).status == 0
    before = fingerprint(tmp_path / "out")
    shard = next((tmp_path / "out" / "train").glob("*.arrow"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    ran = pipeline(*command)
    assert "built:" in ran.err
    after = fingerprint(tmp_path / "out")
    del before["run.json"], after["run.json"]
    assert after == before


def _start(tmp_path: Path, cache_home: Path, data: Path) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).parent / "pipeline"), "run", "sft", "--model", "qwen2-1.5b"]
    return subprocess.Popen(
        [
            *command,
            str(data),
            "-o",
            "out",
            "--workers",
            "2",
            "--cache-dir",
            str(tmp_path / "parts"),
        ],
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


@pytest.mark.parametrize(
    "kind",
    [
        signal.SIGINT,
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_interruption_leaves_no_half_build(
    kind: signal.Signals, tmp_path: Path, cache_home: Path, cache_dir: Path, tokenizer_json: bytes
) -> None:
    """Stopped in the middle there is no output; run again, the build is finished."""
    data = _big(tmp_path, cache_dir)
    process = _start(tmp_path, cache_home, data)
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
    again = _start(tmp_path, cache_home, data)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert leftovers(tmp_path) == []
    rows = read_manifest(tmp_path / "out")["rows"]
    assert rows["in"] == rows["used"] == data.read_bytes().count(b"\n")


def test_a_second_run_on_the_same_output_is_refused(tmp_path: Path) -> None:
    """The lock names its holder, and goes when the holder does."""
    target = tmp_path / "out"
    refused = pytest.raises(SurroundingsError, match=str(os.getpid()))
    with publish.staging(target), refused, publish.staging(target):
        pass
    with publish.staging(target) as folder:
        assert folder.is_dir()
    assert leftovers(tmp_path) == []


def test_publication_that_died_between_two_renames_is_finished(tmp_path: Path) -> None:
    """Where directories cannot be exchanged, the next run puts the old build back."""
    old = tmp_path / ".out.old"
    old.mkdir()
    (old / "manifest.json").write_text("{}")
    with publish.staging(tmp_path / "out"):
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
    with publish.staging(target) as folder:
        staged(folder, "one")
        paths = [folder, *folder.rglob("*")]
        wanted = {path.stat().st_ino for path in paths}
        publish.publish(folder, target)
    assert len(wanted) == 4
    assert {inode for inode, in_place in flushed if not in_place} == wanted
    assert [inode for inode, in_place in flushed if in_place] == [tmp_path.stat().st_ino]


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms cannot exchange two names")
def test_the_old_build_is_exchanged_for_the_new_one_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rename takes the old build's name away: at no moment is there no build."""
    target = tmp_path / "out"
    with publish.staging(target) as folder:
        staged(folder, "one")
        publish.publish(folder, target)

    def refused(*names: object) -> None:
        raise AssertionError(f"renamed {names}")

    with publish.staging(target) as folder:
        staged(folder, "two")
        for owner, name in ((Path, "rename"), (Path, "replace"), (os, "rename"), (os, "replace")):
            monkeypatch.setattr(owner, name, refused)
        publish.publish(folder, target)
        assert (folder / "manifest.json").read_text() == "one"  # the old one, until staging ends
        assert (target / "manifest.json").read_text() == "two"
    assert leftovers(tmp_path) == []


def test_without_an_exchange_two_renames_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fallback publishes too, and leaves nothing behind."""
    monkeypatch.setattr(publish, "_exchange", lambda one, other: False)
    target = tmp_path / "out"
    for text in ("one", "two"):
        with publish.staging(target) as folder:
            (folder / "manifest.json").write_text(text)
            publish.publish(folder, target)
        assert (target / "manifest.json").read_text() == text
    assert leftovers(tmp_path) == []


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    """Only a build, or nothing, may be replaced."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not a build"):
        publish.check_target(tmp_path / "out")
