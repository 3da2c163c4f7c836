"""Data from anywhere: fetched whole, in a stable order, by name, and never half."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import fsspec
import pytest
from fsspec.implementations.http import HTTPFileSystem
from stub_http import Site, serve_http
from support import SAMPLES, raised, read_manifest, read_rows, records_of

from pipeline import filesystem, sources
from pipeline.inputs.scan import Input, scan
from pipeline.options.config import Config
from stages.errors import ContainerError, SurroundingsError, UsageError

ROWS = [{"question": f"q{i} é", "answer": f"a{i}"} for i in range(40)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
MODEL = ("--model", "qwen2-1.5b")


def scanned(cache: Path, *data: str) -> list[Input]:
    """What a build would read."""
    return scan(Config.of("sft", data, "qwen2-1.5b", Path("out"), cache_dir=cache))


def rows(found: list[Input]) -> list[Any]:
    """Every row of the inputs."""
    return [record.data for source in found for record in records_of(*source.splits)]


def test_a_folder_holds_what_its_links_lead_to(tmp_path):
    """Linked folders are read like others, once each, and a circle of links ends."""
    for name in ("data/a.jsonl", "elsewhere/deep/b.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(LINES)
    (tmp_path / "data" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "again").symlink_to(tmp_path / "elsewhere" / "deep")
    (tmp_path / "elsewhere" / "deep" / "up").symlink_to(tmp_path / "data")
    found = scanned(tmp_path / "cache", str(tmp_path / "data"))
    assert [source.name for source in found] == ["a.jsonl", "b.jsonl"]


ROW = '{"question": "q", "answer": "a"}\n'
SETTINGS = {"model_type": "x", "architectures": ["y"], "nested": {"features": [{"name": "z"}]}}


@pytest.mark.parametrize("mark", ["README.md", ".gitattributes"])
@pytest.mark.parametrize("data", ["data/train.jsonl", "train.json", "a/b/rows.csv"])
@pytest.mark.parametrize("name", ["config.json", "anything.json"])
def test_settings_of_a_repository_are_no_rows(tmp_path, mark, data, name):
    """A folder of the hub is read as it lies there; what is left out is told."""
    folder = tmp_path / "repo"
    (folder / data).parent.mkdir(parents=True)
    content = {"json": f"[{ROW},{ROW}]", "jsonl": ROW * 2, "csv": "question,answer\nq,a\nq,a\n"}
    (folder / data).write_text(content[data.rpartition(".")[2]])
    (folder / mark).write_text("about")
    (folder / name).write_text(json.dumps(SETTINGS, indent=2))
    assert [one.name for one in scanned(tmp_path / "cache", str(folder))] == [Path(data).name]
    assert str(folder / name) in sources.left_out([str(folder)])


@pytest.mark.parametrize("mark", ["README.md", ".gitattributes", None])
def test_settings_behind_an_address_are_no_rows(memory, tmp_path, mark):
    """By the same rule: where a repository lies, and where its files are more than settings."""
    names = {"train.jsonl": ROW * 2, "anything.json": json.dumps(SETTINGS)}
    for name, text in (names | ({mark: "about"} if mark else {})).items():
        memory.pipe_file(f"/repo/{name}", text.encode())
    data = ["train.jsonl"] if mark else ["anything.json", "train.jsonl"]
    found = sources.locate("memory://repo", tmp_path)
    assert [one.parts[-1] for one in found] == data
    memory.rm_file("/repo/train.jsonl")
    assert len(sources.locate("memory://repo", tmp_path)) == 1


def test_one_object_a_file_may_be_rows(tmp_path):
    """Where there is nothing else, in a folder that is no repository, and with turns in it."""
    row, turns = json.loads(ROW), {"messages": [{"role": "user", "content": "q"}]}
    for mark, objects in (("README.md", [row, row]), ("a.txt", [row, SETTINGS])):
        folder = tmp_path / mark
        folder.mkdir()
        (folder / mark).write_text("about")
        for number, one in enumerate(objects):
            (folder / f"{number}.json").write_text(json.dumps(one))
        assert len(scanned(tmp_path / "cache", str(folder))) == len(objects)
    (folder / "README.md").write_text("about")
    (folder / "turns.json").write_text(json.dumps(turns))
    (folder / "rows.jsonl").write_text(ROW)
    names = [one.name for one in scanned(tmp_path / "cache", str(folder))]
    assert names == ["rows.jsonl", "turns.json"]


def test_a_folder_that_cannot_be_listed(tmp_path, monkeypatch):
    """Its rows would be missing, and nobody would know."""
    (tmp_path / "data" / "shut").mkdir(parents=True)
    (tmp_path / "data" / "a.jsonl").write_bytes(LINES)
    listed = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    raised(PermissionError, sources.locate, str(tmp_path / "data"), tmp_path / "cache", says="shut")


@pytest.fixture
def memory() -> Iterator[Any]:
    """An empty file system behind ``memory://``."""
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


@pytest.fixture
def site() -> Iterator[Any]:
    """A server, and its address as ``url``."""
    served = Site(ranges=False)
    with serve_http(served.answer) as served.url:
        yield served
        HTTPFileSystem.clear_instance_cache()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch) -> None:
    monkeypatch.setattr(filesystem, "PAUSE", 0.0)


def test_a_remote_folder_is_read_in_a_stable_order(tmp_path, memory):
    """Its data files by name, packed ones too; what is not data is left alone."""
    memory.pipe("/set/b.jsonl", LINES)
    memory.pipe("/set/a.jsonl.gz", gzip.compress(LINES))
    memory.pipe("/set/sub/c.json", json.dumps(ROWS).encode())
    memory.pipe("/set/README.md", b"words")
    memory.pipe("/set/.hidden/d.jsonl", LINES)
    for address in ("memory://set", "memory://set/**/*.json*"):
        found = scanned(tmp_path, address)
        assert [source.name for source in found] == ["a.jsonl.gz", "b.jsonl", "c.json"]
        assert rows(found) == ROWS * 3


def test_what_lies_in_the_cache_is_fetched_once_for_each_version(tmp_path, site):
    """Equal version: no second download. New bytes: a new copy. A damaged copy: fetched again."""
    site.files["/rows.jsonl"] = LINES
    address = f"{site.url}/rows.jsonl"
    (first,) = scanned(tmp_path, address)
    assert rows([first]) == ROWS
    assert first.origin == address
    scanned(tmp_path, address)
    # It is asked for a range first, and answers with the whole.
    assert [asked for asked in site.asked if asked.startswith("GET")] == ["GET /rows.jsonl"] * 2
    Path(first.path).write_bytes(LINES[:-9])
    assert rows(scanned(tmp_path, address)) == ROWS
    site.files["/rows.jsonl"] = LINES + LINES
    assert rows(scanned(tmp_path, address)) == ROWS * 2


def test_without_a_version_every_build_fetches(tmp_path, site):
    """A server that names no version may have new bytes of the same size."""
    site.tags = False
    site.files["/rows.jsonl"] = LINES
    scanned(tmp_path, f"{site.url}/rows.jsonl")
    site.files["/rows.jsonl"] = LINES.replace(b"q1", b"q9")
    assert rows(scanned(tmp_path, f"{site.url}/rows.jsonl"))[1]["question"] == "q9 é"


def test_an_address_without_a_suffix_is_told_by_its_bytes(tmp_path, site):
    """Lines, packed lines and arrays behind any name."""
    for name in ("rows", "rows.bin"):
        for content in (LINES, gzip.compress(LINES), json.dumps(ROWS).encode()):
            site.files[f"/{name}"] = content
            (found,) = scanned(tmp_path, f"{site.url}/{name}?id=3&token=secret")
            assert rows([found]) == ROWS
            assert found.name == name
            assert "secret" not in found.origin


def test_a_download_that_breaks_off_is_no_input(tmp_path, site):
    """Fewer bytes than were promised are never read as if they were all."""
    site.files["/rows.jsonl"] = LINES
    site.cut = 300
    with pytest.raises(SurroundingsError, match=r"rows\.jsonl cannot be read"):
        scanned(tmp_path, f"{site.url}/rows.jsonl")
    assert not list(tmp_path.rglob("*.jsonl"))
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_object_that_changes_while_it_is_fetched_is_refused(tmp_path, site, monkeypatch):
    """The version after the download must be the one before it."""
    site.files["/rows.jsonl"] = LINES
    address = f"{site.url}/rows.jsonl"
    fetch = HTTPFileSystem._get_file

    async def racing(self: Any, *arguments: Any, **options: Any) -> None:
        await fetch(self, *arguments, **options)
        site.files["/rows.jsonl"] = LINES + b"\n"

    monkeypatch.setattr(HTTPFileSystem, "_get_file", racing)
    HTTPFileSystem.clear_instance_cache()  # instances hold the method that they were made with
    raised(SurroundingsError, scanned, tmp_path, address, says="changed while it was being fetched")


def test_what_is_not_there_and_what_does_not_answer(tmp_path, site, memory):
    """A missing object is a usage error; a server in trouble is the surroundings."""
    raised(UsageError, scanned, tmp_path, f"{site.url}/nope.jsonl", says="nothing at")
    for address in ("memory://nope.jsonl", "memory://nope/*.jsonl"):
        raised(UsageError, scanned, tmp_path, address, says="nope")
    site.files["/busy.jsonl"] = LINES
    site.status = 503
    raised(SurroundingsError, scanned, tmp_path, f"{site.url}/busy.jsonl", says="503")
    assert len([asked for asked in site.asked if "busy" in asked]) >= filesystem.ATTEMPTS
    with pytest.raises(SurroundingsError, match=r"127\.0\.0\.1:9/x"):
        scanned(tmp_path, "http://user:word@127.0.0.1:9/x.jsonl?X-Amz-Signature=abc")


def test_a_missing_extra_names_the_command(tmp_path, monkeypatch):
    """What reads an address is optional; the message says how to get it."""

    def absent(*_: Any, **__: Any) -> None:
        raise ImportError("Install it")

    monkeypatch.setattr(fsspec.core, "url_to_fs", absent)
    for scheme, extra in (("s3", "s3"), ("gs", "gcs"), ("abfs", "azure")):
        with pytest.raises(UsageError, match=rf"pip install 'posttrain-pipeline\[{extra}\]'"):
            sources.locate(f"{scheme}://bucket/a.jsonl", tmp_path)


def test_a_build_from_an_address(pipeline, tmp_path, site):
    """The whole way: named by its address, recorded without secrets, equal to the local build."""
    site.files["/set/rows.jsonl"] = LINES
    address = f"{site.url}/set/rows.jsonl?sig=secret"
    pipeline("run", "sft", address, *MODEL, "-o", "far", "--layout", "ragged").ended()
    (tmp_path / "rows.jsonl").write_bytes(LINES)
    pipeline("run", "sft", "rows.jsonl", *MODEL, "-o", "near", "--layout", "ragged").ended()
    assert read_manifest(tmp_path / "far") == read_manifest(tmp_path / "near")
    run = (tmp_path / "far" / "run.json").read_text("utf-8")
    assert "secret" not in run
    assert f"{site.url}/set/rows.jsonl" in run


@pytest.mark.slow
def test_standard_input(tmp_path):
    """``-`` is spooled: rows are stdin:1, offsets and hashes are those of what was piped."""
    bad = LINES + b'{"question": 3}\n'
    content = gzip.compress(bad)
    command = ["run", "sft", "-", *MODEL, "--layout", "ragged", "--cache-dir", "cache"]
    program = str(Path(sys.executable).parent / "pipeline")
    ran = subprocess.run([program, *command], input=content, cwd=tmp_path, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    out = tmp_path / "stdin-sft-qwen2-1.5b"
    manifest = read_manifest(out)
    assert manifest["inputs"][0]["path"] == "stdin"
    assert manifest["inputs"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert datasets.load_from_disk(str(out))["train"]["row_id"][0] == "stdin:1"
    (reject,) = read_rows(out / "rejects.jsonl")
    assert reject["id"] == "stdin:41"
    assert bad[reject["offset"] :].startswith(reject["raw"].encode())


def test_a_saved_dataset_is_its_listed_shards(tmp_path):
    """In the listed order; left-overs of an earlier save are not read, a missing one is refused."""
    folder = tmp_path / "saved"
    datasets.Dataset.from_list(ROWS).save_to_disk(str(folder), num_shards=3)
    (folder / "data-00009-of-00010.arrow").write_bytes(
        (folder / "data-00000-of-00003.arrow").read_bytes()
    )
    found = scanned(tmp_path / "cache", str(folder))
    assert [source.reader for source in found] == ["hf"] * 3
    assert rows(found) == ROWS
    (folder / "data-00001-of-00003.arrow").unlink()
    raised(ContainerError, scanned, tmp_path / "cache", str(folder), says="data-00001-of-00003")


def test_splits_of_a_saved_dataset_are_never_mixed(tmp_path):
    """One split is taken; of several, one must be named, or test rows would be trained on."""
    some = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": some}).save_to_disk(str(tmp_path / "one"))
    assert rows(scanned(tmp_path / "cache", str(tmp_path / "one"))) == ROWS
    datasets.DatasetDict({"train": some, "test": some}).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(UsageError, match="splits train, test"):
        scanned(tmp_path / "cache", str(tmp_path / "two"))
    assert rows(scanned(tmp_path / "cache", str(tmp_path / "two" / "test"))) == ROWS


def test_json_columns_of_a_saved_dataset_arrive_as_values(tmp_path):
    """Values of mixed types are kept as JSON text by datasets; rows have them as they were."""
    mixed = [{"args": {"city": "x"}}, {"args": {"n": 1}}, {"args": [1, "2"]}, {"args": None}]
    features = datasets.Features({"args": datasets.Json()})
    datasets.Dataset.from_list(mixed, features=features).save_to_disk(str(tmp_path / "mixed"))
    assert rows(scanned(tmp_path / "cache", str(tmp_path / "mixed"))) == mixed


def _hub(monkeypatch: pytest.MonkeyPatch, splits: dict[str, list[str]]) -> None:
    config = SimpleNamespace(config=SimpleNamespace(data_files=splits))
    monkeypatch.setattr(sources, "_builder", lambda name, config_name: config)
    monkeypatch.setattr(sources.hub, "answers", lambda: True)


def test_a_dataset_of_the_hub_is_the_files_of_one_split(tmp_path, memory, monkeypatch):
    """``org/name`` has one split, or names it; its files are read as they were written."""
    memory.pipe("/hub/train.jsonl", LINES)
    memory.pipe("/hub/test.jsonl", LINES[: len(LINES) // 2])
    _hub(monkeypatch, {"train": ["memory://hub/train.jsonl"]})
    assert rows(scanned(tmp_path, "org/name")) == ROWS
    _hub(monkeypatch, {name: [f"memory://hub/{name}.jsonl"] for name in ("train", "test")})
    with pytest.raises(UsageError, match="Name one: org/name:train or org/name:test"):
        scanned(tmp_path, "org/name")
    assert rows(scanned(tmp_path, "org/name:train")) == ROWS
    assert [s.name for s in scanned(tmp_path, "org/name:default:train")] == ["train.jsonl"]


def test_an_id_may_be_a_path(tmp_path, monkeypatch):
    """Without a hub, and for anything that is there, words with a slash are a path."""
    monkeypatch.setattr(sources.hub, "answers", lambda: False)
    with pytest.raises(UsageError, match="There is no file or folder org/name"):
        sources.locate("org/name", tmp_path)
    monkeypatch.chdir(SAMPLES)
    assert len(sources.locate("sft", tmp_path)) == len([*(SAMPLES / "sft").iterdir()])
    assert not sources.is_dataset_id("data/train.jsonl")
    assert not sources.is_dataset_id("./data/train")


def test_an_input_is_named_once(tmp_path, memory, site):
    """The same object twice would be trained on twice; and two inputs have two names, without their
    queries."""
    memory.pipe("/set/b.jsonl", LINES)
    with pytest.raises(UsageError, match="named twice"):
        scanned(tmp_path, "memory://set/b.jsonl", "memory://set")
    site.files["/data.jsonl"] = LINES
    address = f"{site.url}/data.jsonl"
    with pytest.raises(UsageError, match=r"/data.jsonl, have the same name"):
        scanned(tmp_path, f"{address}?piece=1", f"{address}?piece=2")
