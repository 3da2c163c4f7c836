"""What has not changed is not read again; whatever may have changed is."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, read_manifest, silent

from pipeline.inputs import equal_build
from pipeline.options.config import Config
from pipeline.run_build import build
from stages.files import file_hash
from stages.files.file_hash import KnownHashes
from stages.files.file_version import FileVersion

LATER = file_hash.COARSE + 1


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this process is ahead of the file system's, as if files had been left alone."""
    now = time.time_ns
    monkeypatch.setattr(file_hash.time, "time_ns", lambda: now() + LATER)
    monkeypatch.setattr(equal_build.time, "time_ns", lambda: now() + LATER)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed from now on."""
    names: list[str] = []

    def watched(old: Callable[..., object]) -> Callable[..., object]:
        def reading(path: Any, *more: object) -> object:
            names.append(Path(getattr(path, "path", path)).name)
            return old(path, *more)

        return reading

    monkeypatch.setattr(file_hash, "sha256", watched(file_hash.sha256))
    monkeypatch.setattr(FileVersion, "hashed", watched(FileVersion.hashed))
    return names


def _twice(kept: Path, path: Path) -> str:
    hashes = KnownHashes(kept)
    hashes.sha256(path)
    hashes.save()
    return KnownHashes(kept).sha256(path)


def test_a_file_that_was_left_alone_is_read_once(
    tmp_path: Path, later: None, read: list[str]
) -> None:
    """Also under another name of it."""
    path, kept = tmp_path / "a", tmp_path / "kept.json"
    path.write_bytes(b"one")
    (tmp_path / "link").symlink_to(path)
    assert _twice(kept, path) == file_hash.sha256(path)
    assert KnownHashes(kept).of(tmp_path / "link") == file_hash.sha256(path)
    assert read == ["a", "a", "a"]  # once, and twice by this test


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path, read: list[str]) -> None:
    """It may be written once more within a tick of the clock, and look the same."""
    path, kept = tmp_path / "a", tmp_path / "kept.json"
    path.write_bytes(b"one")
    _twice(kept, path)
    assert read == ["a", "a"]
    assert not kept.exists()


def test_a_change_is_seen(tmp_path: Path, later: None) -> None:
    """Whatever its times are set to: nobody sets the time of the last change of an inode."""
    path, kept = tmp_path / "a", tmp_path / "kept.json"
    for replaced, content in ((False, b"two"), (True, b"two"), (False, b"o")):
        path.write_bytes(b"one")
        first = _twice(kept, path)
        times = path.stat()
        time.sleep(0.02)  # a tick
        if replaced:
            path.unlink()
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert KnownHashes(kept).of(path) is None
        assert KnownHashes(kept).sha256(path) == file_hash.sha256(path) != first
    path.unlink()
    assert KnownHashes(kept).of(path) is None


def test_a_damaged_record_is_none(tmp_path: Path, later: None) -> None:
    """So is one of which a character was changed: its hash is that of other bytes."""
    path, kept = tmp_path / "a", tmp_path / "kept.json"
    path.write_bytes(b"one")
    sha = _twice(kept, path)
    assert KnownHashes(kept).of(path) == sha
    changed = kept.read_bytes().replace(sha[:8].encode(), b"00000000")
    odd = b'{"version": 1, "files": {"a": []}, "sha256": "x"}'
    for content in (changed, odd, b"", b"{}", b"[]", b"null", b"\xff"):
        kept.write_bytes(content)
        assert KnownHashes(kept).of(path) is None, content


def test_an_equal_build_is_found_without_reading_it(
    tmp_path: Path, cache: Path, later: None, read: list[str]
) -> None:
    """Only what changed is read; ``--verify`` reads all; a byte that differs is always found."""
    data = tmp_path / "data.jsonl"
    data.write_bytes((SAMPLES / "sft" / "word_problems.jsonl").read_bytes())
    out, model = tmp_path / "out", "qwen2-1.5b"
    config = Config.of("sft", (str(data),), model, out, cache_dir=cache, workers=1)

    def rebuilt(config: Config = config) -> tuple[bool, set[str]]:
        read.clear()
        return build(config, silent).fresh, set(read)

    assert rebuilt()[0]
    written = {name.rpartition("/")[2] for name in read_manifest(out)["files"]}
    # A build keeps the hashes of its inputs and shards; the files beside these are read once more.
    shards = {name for name in written if name.endswith(".arrow")}
    assert shards
    assert rebuilt() == (False, written - shards)
    assert rebuilt() == (False, set())
    assert rebuilt(config.but(verify=True)) == (False, {"data.jsonl", *written})
    data.touch()
    assert rebuilt() == (False, {"data.jsonl"})
    report = tmp_path / "out" / "report.html"
    content, times = report.read_bytes(), report.stat()
    time.sleep(0.02)
    report.write_bytes(content.replace(b"<", b">", 1))
    os.utime(report, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert rebuilt()[0]
    assert report.read_bytes() == content


def test_a_cache_that_takes_no_record_stops_nothing(tmp_path: Path, later: None) -> None:
    """The file that could not be written cannot be removed either."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    (tmp_path / "hashes").write_text("a file, not a folder")
    assert _twice(tmp_path / "hashes" / "kept.json", path) == file_hash.sha256(path)
