"""What has not changed is not read again; whatever may have changed is."""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import support
from support import SAMPLES, few, files_of, flip, noted, own_cache, silent, sweep, table, write_rows

import pipeline.shards.plan
from pipeline.builder import assembly
from pipeline.inputs import equal_build, scan
from pipeline.options.config import Config
from pipeline.run_build import build
from pipeline.shards import gather, part, reused_shards
from stages.files import file_hash
from stages.files.file_hash import KnownHashes
from stages.files.file_version import FileVersion
from stages.readers import jsonl

LATER = file_hash.COARSE + 1


@pytest.fixture
def later(monkeypatch) -> None:
    """The clock of this process is ahead of the file system's, as if files had been left alone."""
    now = time.time_ns
    monkeypatch.setattr(file_hash.time, "time_ns", lambda: now() + LATER)
    monkeypatch.setattr(equal_build.time, "time_ns", lambda: now() + LATER)


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """The names of the files that are hashed from now on."""
    names = noted(monkeypatch, file_hash, "sha256", lambda path: Path(path).name)
    noted(monkeypatch, FileVersion, "hashed", lambda one, *_: names.append(Path(one.path).name))
    return names


def _twice(kept: Path, path: Path) -> str:
    hashes = KnownHashes(kept)
    hashes.sha256(path)
    hashes.save()
    return KnownHashes(kept).sha256(path)


def test_a_file_that_was_left_alone_is_read_once(tmp_path, later, read):
    """Also under another name of it."""
    path, kept = tmp_path / "a", tmp_path / "kept.json"
    path.write_bytes(b"one")
    (tmp_path / "link").symlink_to(path)
    assert _twice(kept, path) == file_hash.sha256(path)
    assert KnownHashes(kept).of(tmp_path / "link") == file_hash.sha256(path)
    assert read == ["a", "a", "a"]  # once, and twice by this test


def test_a_file_that_was_just_written_is_read_again(tmp_path, read):
    """It may be written once more within a tick of the clock, and look the same."""
    path, kept = tmp_path / "a", tmp_path / "kept.json"
    path.write_bytes(b"one")
    _twice(kept, path)
    assert read == ["a", "a"]
    assert not kept.exists()


def test_a_change_is_seen(tmp_path, later):
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


def test_a_damaged_record_is_none(tmp_path, later):
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


def test_an_equal_build_is_found_without_reading_it(tmp_path, cache, later, read):
    """Only what changed is read; ``--verify`` reads all; a byte that differs is always found."""
    data = tmp_path / "data.jsonl"
    data.write_bytes((SAMPLES / "sft" / "word_problems.jsonl").read_bytes())
    out, model = tmp_path / "out", "qwen2-1.5b"
    config = Config.of("sft", (str(data),), model, out, cache_dir=cache, workers=1)

    def rebuilt(config: Config = config) -> tuple[bool, set[str]]:
        read.clear()
        return build(config, silent).fresh, set(read)

    assert rebuilt()[0]
    written = {name.rpartition("/")[2] for name in support.read_manifest(out)["files"]}
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


def test_a_cache_that_takes_no_record_stops_nothing(tmp_path, later):
    """The file that could not be written cannot be removed either."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    (tmp_path / "hashes").write_text("a file, not a folder")
    assert _twice(tmp_path / "hashes" / "kept.json", path) == file_hash.sha256(path)


# Shards that a build takes over from the one it replaces: the same bytes as made anew, always.

NAME = "qwen2-1.5b"
ROWS = [{"question": f"q{i} " * (i % 5 + 1), "answer": f"a{i} " * (i % 7 + 1)} for i in range(90)]
PAIRS = [{"prompt": f"q{i}", "chosen": f"c{i} " * (i % 5 + 1), "rejected": "r"} for i in range(60)]
OTHERS = [{"question": f"other {i}", "answer": "x"} for i in range(30)]
Rows = list[dict[str, Any]]


class Workshop:
    """Builds the same inputs twice: over the build before, and in an empty folder and cache."""

    def __init__(self, folder: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._cache_dir = cache_dir
        self._numbers = itertools.count()
        monkeypatch.setattr(jsonl, "SPLIT_BYTES", 1000)
        monkeypatch.setattr(pipeline.shards.plan, "SHARD_TOKENS", 512)
        self.made = noted(monkeypatch, gather, "make_shard", lambda _, shard: shard.path)
        self.parts = noted(monkeypatch, part, "_write", lambda work, *_: work.key)

    def write(self, name: str, rows: Rows) -> str:
        """An input."""
        return str(write_rows(self.folder / name, rows))

    def _cache(self, name: str) -> Path:
        return own_cache(self.folder / name, self._cache_dir)

    def build(self, task: str, data: list[str], output: str, cache: str, **options: Any) -> Path:
        self.made.clear()
        self.parts.clear()
        own = {"cache_dir": self._cache(cache), "workers": 1, "max_reject": 1.0, **options}
        build(Config.of(task, tuple(data), NAME, self.folder / output, **own), silent)
        return self.folder / output

    def again(self, task: str, data: list[str], **options: Any) -> int:
        """Build over the build before; require the bytes of a build from scratch.

        Returns:
            How many shards were made; ``self.parts`` has the parts that were.
        """
        new = self.build(task, data, "out", "cache", **options)
        made, parts = len(self.made), list(self.parts)
        number = next(self._numbers)
        scratch = self.build(task, data, f"scratch{number}", f"cache{number}", **options)
        assert files_of(new) == files_of(scratch)
        self.parts[:] = parts
        return made


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.arrow"))


@pytest.fixture
def workshop(tmp_path, cache_dir, monkeypatch) -> Workshop:
    return Workshop(tmp_path, cache_dir, monkeypatch)


@pytest.mark.parametrize("small", few([True, False], 1))
def test_what_nobody_has_written_to_is_not_read_again(workshop, monkeypatch, later, small):
    """But for the input, whose new rows are in it; ``--verify`` reads parts and shards again. The
    pieces of a large input are hashed one by one, while their parts are looked for."""
    if not small:
        monkeypatch.setattr(scan, "SMALL", 0)
    data = [workshop.write("data.jsonl", ROWS)]
    folder = workshop.build("sft", data, "out", "cache", layout="ragged")
    old = {path.read_bytes() for path in [*shards(folder), *shards(workshop.folder / "cache")]}
    read = noted(monkeypatch, file_hash, "sha256", lambda path: Path(path).read_bytes())
    for verify in (False, True):
        read.clear()
        workshop.write("data.jsonl", [*ROWS, *OTHERS[: 1 + verify]])
        workshop.build("sft", data, "out", "cache", layout="ragged", verify=verify)
        again = old.intersection(read)
        assert len(again) > len(old) // 2 if verify else not again


@pytest.mark.parametrize("what", few(["input", "part"], 1))
def test_what_is_written_to_during_a_build_is_read_again(workshop, monkeypatch, later, what):
    """Even where the writer sets its times as they were: the build's hash is of other bytes."""
    data = [workshop.write("data.jsonl", ROWS)]
    written: Any = vars(assembly)["write_dataset"]

    def changing(*arguments: Any) -> None:
        written(*arguments)
        path = workshop.folder / "data.jsonl"
        _flip_in_place(shards(workshop.folder / "cache")[0] if what == "part" else path)

    monkeypatch.setattr(assembly, "write_dataset", changing)
    workshop.build("sft", data, "out", "cache", layout="ragged")
    monkeypatch.setattr(assembly, "write_dataset", written)
    options = {"shuffle": True} if what == "part" else {}  # or no part would be asked for
    workshop.again("sft", data, layout="ragged", **options)
    assert len(workshop.parts) == 1


FILES = {"ROWS": ROWS, "FEW": ROWS[:2], "OTHERS": OTHERS, "PAIRS": PAIRS, "PAIR": PAIRS[:3]}
FILES["LONG"] = [{"question": "q", "answer": "long " * 60}]


@sweep(5)
@pytest.mark.parametrize("one", table("shards_later.jsonl"), ids=lambda one: one["law"])
def test_what_a_later_build_makes(workshop, one):
    """After ROWS, or others, as data.jsonl: all shards, or no more than so many, and so many parts.
    All bytes are those of a build from scratch."""
    task, before = one.get("task", "sft"), FILES[one.get("before", "ROWS")]
    always = {"layout": "ragged", **one.get("always", {})}
    workshop.build(task, [workshop.write("data.jsonl", before)], "out", "cache", **always)
    files = one.get("files", {"data.jsonl": "ROWS"}).items()
    rows = {name: [row for one in of.split() for row in FILES[one]] for name, of in files}
    data = [workshop.write(name, some) for name, some in rows.items()]
    found = workshop.again(task, data, **always, **one.get("options", {}))
    whole = len(shards(workshop.folder / "out"))
    assert found <= one["made"] < whole if "made" in one else found == whole
    assert "parts" not in one or len(workshop.parts) == one["parts"]


def _flip_in_place(path: Path) -> None:
    """As a tool does that keeps the times of what it overwrites."""
    times = path.stat()
    time.sleep(0.02)  # longer than a tick of the file system's clock
    with path.open("r+b") as file:
        file.seek(times.st_size // 2)
        byte = file.read(1)[0]
        file.seek(times.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


# What befalls a shard, or what is remembered of it.
DAMAGES: list[Callable[[Path, Path], object]] = [
    lambda shard, known: flip(shard),
    lambda shard, known: _flip_in_place(shard),
    lambda shard, known: shard.unlink(),
    lambda shard, known: flip(known),
    lambda shard, known: flip(known.with_suffix(".names")),
    lambda shard, known: known.with_suffix(".names").unlink(),
]


def test_what_is_not_as_it_was_written_is_made_again(workshop, later):
    """Each shard that something befell, and the last ones, which have new rows: no other shard, and
    no part before these rows."""
    rows = ROWS * 2
    data = [workshop.write("data.jsonl", rows)]
    every = shards(workshop.build("sft", data, "out", "cache", layout="ragged"))
    for damage, shard in zip(DAMAGES, every[1:], strict=False):
        sha256 = file_hash.sha256(shard)
        known = workshop.folder / "cache" / reused_shards.FOLDER / sha256[:2] / f"{sha256}.json"
        damage(shard, known)
    workshop.write("data.jsonl", [*rows, ROWS[0]])
    made = workshop.again("sft", data, layout="ragged")
    assert len(DAMAGES) < made <= len(DAMAGES) + 2 < len(every)
    assert len(workshop.parts) <= 2


@pytest.mark.slow
def test_a_shard_behind_a_symbolic_link_is_not_taken_over(workshop):
    """A build holds its own bytes, or what becomes of the other file becomes of the build."""
    data = [workshop.write("data.jsonl", ROWS)]
    folder = workshop.build("sft", data, "out", "cache", layout="ragged")
    shard = shards(folder)[1]
    shard.rename(workshop.folder / "elsewhere.arrow")
    shard.symlink_to(workshop.folder / "elsewhere.arrow")
    workshop.write("data.jsonl", [*ROWS, ROWS[0]])
    workshop.again("sft", data, layout="ragged")
    assert not any(path.is_symlink() for path in shards(folder))


def test_the_build_in_place_is_never_written_to(workshop, monkeypatch):
    """A shard that is linked first and made after all is made in a file of its own."""
    data = [workshop.write("data.jsonl", ROWS)]
    folder = workshop.build("sft", data, "out", "cache", layout="ragged")
    for shard in shards(folder):
        os.link(shard, workshop.folder / f"{shard.name}.witness")
    witnesses = sorted(workshop.folder.glob("*.witness"))
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in witnesses]
    touch = Path.touch

    def denied(path: Path, *rest: Any, **named: Any) -> None:
        if reused_shards.FOLDER in path.parts:  # the last step of taking over
            raise PermissionError(path)
        touch(path, *rest, **named)

    monkeypatch.setattr(Path, "touch", denied)
    workshop.write("data.jsonl", [*ROWS, ROWS[0]])
    workshop.build("sft", data, "out", "cache", layout="ragged")
    assert len(workshop.made) == len(shards(folder))
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in witnesses] == before


@pytest.mark.slow
def test_who_touches_the_old_build_meanwhile_does_not_fail_the_new_one(workshop, monkeypatch):
    """A link shares its inode with the build in place: its times change with the other name."""
    data = [workshop.write("data.jsonl", ROWS)]
    workshop.build("sft", data, "out", "cache", layout="ragged")
    reused = reused_shards._reused

    def touched(keeping: Any, shard: Any, key: str, there: Any) -> Any:
        report = reused(keeping, shard, key, there)
        os.chmod(there.path, 0o640)
        return report

    monkeypatch.setattr(reused_shards, "_reused", touched)
    workshop.write("data.jsonl", [*ROWS, ROWS[0]])
    assert workshop.again("sft", data, layout="ragged") < len(shards(workshop.folder / "out"))
