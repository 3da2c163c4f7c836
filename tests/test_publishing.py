"""``pipeline publish``: whatever stops it, nobody sees a mixture, and the next call finishes."""

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
import support
from fsspec.implementations.memory import MemoryFileSystem
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st
from stub_hub import LARGE, HubStub, serve_hub
from stub_memory import Plain, Watched
from support import ROOT, SAMPLES, few, files_of, raised, read_manifest, silent, started, write_rows
from test_check import SHARD, resealed, rewrite

from pipeline.builder.exporting import export_build
from pipeline.builds import lease
from pipeline.builds.build import Build
from pipeline.builds.folder_versions import FolderVersions
from pipeline.builds.stored import read_file as read
from pipeline.options.recipe import builds_of
from pipeline.publish import hub, upload
from pipeline.publish.check import check
from pipeline.publish.publication import Publication, assemble
from pipeline.publish.sending import StoreTarget, bring
from pipeline.publish.upload import publish
from pipeline.report import card
from pipeline.report.card import NOTHING, Publisher, block, code, plain
from pipeline.run_build import build
from pipeline.stores import Store
from posttrain_pipeline.api import config_of
from stages.errors import SurroundingsError, UsageError

# What huggingface_hub says of itself as it sends large files.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

Builds = dict[str, Path]
Copies = dict[str, Publication]
SECRET = "the-text-of-a-refused-row"
NAME = "somebody/problems"
WORDS = "which of the seven zebras hides the golden umbrella behind an orange lighthouse"


def made(root: Path, name: str, cache_dir: Path, rows: int, options: dict[str, Any]) -> Path:
    """A build of the first rows of the sample, with two refused rows and, where an evaluation asks
    the same, one that is contaminated."""
    lines = (SAMPLES / "sft" / "word_problems.jsonl").read_text("utf-8").splitlines()[:rows]
    data = root / name / "rows.jsonl"
    data.parent.mkdir()
    bad = json.dumps({"messages": SECRET})
    asked = json.dumps({"question": WORDS, "answer": "#### 3"})
    rows_ = [*lines, bad, f"{SECRET} is no JSON", asked]
    data.write_text("".join(line + "\n" for line in rows_), "utf-8")
    write_rows(data.with_name("evals.jsonl"), [{"question": f"{WORDS.upper()}!"}])
    given = {"model": "qwen2-1.5b", "cache_dir": cache_dir, "max_reject": 1.0, "workers": 1}
    given["output"] = root / name / "out"
    build(config_of("sft", str(data), {**given, **options}, "run"), silent)
    return root / name / "out"


@pytest.fixture(scope="module")
def builds(tmp_path_factory, cache_dir) -> Builds:
    """An older build with a trainer's folder, a newer one of more rows with a test split, and one
    of two sources, one of which is used several times."""
    root = tmp_path_factory.mktemp("builds")
    recipe = shutil.copy(ROOT / "tests" / "tables" / "two_sources.toml", root)
    (root / "chats").mkdir()
    shutil.copy(SAMPLES / "sft" / "word_problems.jsonl", root)
    shutil.copy(SAMPLES / "sft" / "chat.jsonl", root / "chats")
    (mixed,) = builds_of(Path(recipe), [f"cache-dir={cache_dir}"])
    build(mixed, silent)
    new = {"layout": "packed", "max_length": 512, "test_size": 0.3}
    new["decontaminate"] = [str(root / "new" / "evals.jsonl")]
    return {
        "mixed": root / "out",
        "old": made(root, "old", cache_dir, 4, {"for": "axolotl"}),
        "new": made(root, "new", cache_dir, 9, new),
    }


@pytest.fixture(scope="module")
def copies(builds, tmp_path_factory) -> Copies:
    """What is sent of each."""
    return {
        name: assemble(Build.open(at), tmp_path_factory.mktemp(name), NOTHING, with_rejects=False)
        for name, at in builds.items()
    }


class Tagged(Watched):
    """A store that names the content of its objects, and counts what is read."""

    reads = 0

    def info(self, path: Any, **given: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().info(path, **given)
        if found["type"] == "file":
            found["ETag"] = hashlib.md5(MemoryFileSystem.cat_file(self, path)).hexdigest()
        return found

    def find(self, path: Any, *more: Any, detail: bool = False, **given: Any) -> Any:
        found = super().find(path, *more, detail=detail, **given)
        return {name: self.info(name) for name in found} if detail else found

    def cat_file(self, path: Any, *more: Any, **given: Any) -> bytes:
        self.reads += 1
        return super().cat_file(path, *more, **given)


def _files(filesystem: Any) -> dict[str, bytes]:
    found = filesystem.find("/place")
    return {path.partition("/place/")[2]: filesystem.cat_file(path) for path in found}


def _require_no_mixture(filesystem: Any) -> None:
    """Where there is a whole manifest, every file that it names is there with its hash."""
    try:
        manifest = json.loads(filesystem.cat_file("/place/manifest.json"))
    except (FileNotFoundError, ValueError):
        return
    files = _files(filesystem)
    for name, sha256 in manifest["files"].items():
        assert hashlib.sha256(files[name]).hexdigest() == sha256, name


@pytest.fixture
def memory() -> Iterator[Watched]:
    """An empty one."""
    MemoryFileSystem.store.clear()
    filesystem = Watched()
    filesystem.look = lambda: _require_no_mixture(filesystem)
    yield filesystem
    MemoryFileSystem.store.clear()


def place(filesystem: Any, known: dict[str, Any] | None = None) -> StoreTarget:
    """Its folder ``place``; ``known``: what was read back before."""
    return StoreTarget(
        Store(filesystem, "/place", "memory://place"), {} if known is None else known
    )


def written(files: dict[str, bytes], target: Path) -> Path:
    """All of it on this machine."""
    for name, data in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)
    return target


@pytest.mark.parametrize(
    ("over", "every"), few([("another build", 9), ("another build", 1), ("nothing", 1)], 1)
)
def test_stopped_at_any_change_the_next_call_finishes(copies, memory, over, every, tmp_path):
    """For each of its changes: no mixture is ever to be seen, and no file is sent twice. Shards go
    first, and the manifest last."""
    if over != "nothing":
        bring(place(memory), copies["old"], silent)
    start, memory.changes = dict(MemoryFileSystem.store), 0
    memory.sent.clear()
    bring(place(memory), copies["new"], silent)
    sent, done, changes = list(memory.sent), _files(memory), memory.changes
    names = [path.removeprefix("/place/") for path in sent]
    shards = sorted(shard.path for shard in copies["new"].manifest.shards)
    assert (names[: len(shards)], names[-1]) == (shards, "manifest.json")
    assert set(names[-3:-1]) == {"README.md", "dataset_dict.json"}
    for stop in range(0, changes, every):
        MemoryFileSystem.store.clear()
        MemoryFileSystem.store.update(start)
        memory.sent.clear()
        memory.left = stop
        raised(KeyboardInterrupt, bring, place(memory), copies["new"], silent)
        memory.left = None
        _require_no_mixture(memory)
        bring(place(memory), copies["new"], silent)
        assert sorted(memory.sent) == sorted(sent)
        assert _files(memory) == done
    assert bring(place(memory), copies["new"], silent).names == ()
    assert set(done) == {piece.name for piece in copies["new"].all}
    assert check(written(done, tmp_path), tmp_path).faults == []


def _once(filesystem: Watched, when: int, happens: Callable[[], object]) -> None:
    """Somebody does something after so many files were sent, in place of one look at the store."""
    usual = filesystem.look

    def look() -> None:
        if len(filesystem.sent) == when:
            filesystem.look = usual
            happens()
        else:
            usual()

    filesystem.look = look


def test_of_two_calls_at_a_time_the_later_one_writes(copies, memory):
    """Whenever it begins; the other one says why it stops, and changes nothing more."""
    for when in range(1, len(copies["old"].pieces) + 1, 4):
        MemoryFileSystem.store.clear()
        memory.sent.clear()
        _once(memory, when, lambda: bring(place(Plain()), copies["new"], silent))
        raised(SurroundingsError, bring, place(memory), copies["old"], silent, says="Publish again")
        _require_no_mixture(memory)
        assert set(_files(memory)) == {piece.name for piece in copies["new"].all}


def test_what_somebody_else_sends_meanwhile_keeps_the_manifest_away(copies, memory):
    """An object of an earlier call that arrives late, of the same size."""
    last = len(copies["old"].pieces)

    def replace() -> None:
        data = memory.cat_file("/place/serving.json")
        Plain().pipe_file("/place/serving.json", data[:-2] + b" \n")

    filesystem = Tagged()
    _once(filesystem, last, replace)
    raised(SurroundingsError, bring, place(filesystem), copies["old"], silent, says="somebody else")
    assert "manifest.json" not in _files(memory)
    assert bring(place(filesystem), copies["old"], silent).names[0] == "serving.json"


def test_what_does_not_arrive_as_it_was_sent_is_an_error(copies, memory, monkeypatch):
    """A byte changed on its way, with the same size; and there is no manifest then."""
    damaged = Watched.put_file

    def put(self: Any, lpath: Any, rpath: Any, **given: Any) -> None:
        damaged(self, lpath, rpath, **given)
        if rpath.endswith(".arrow"):
            data = self.cat_file(rpath)
            MemoryFileSystem.pipe_file(self, rpath, data[:-1] + bytes([data[-1] ^ 1]))

    monkeypatch.setattr(Watched, "put_file", put)
    with pytest.raises(SurroundingsError, match="does not have the bytes"):
        bring(place(memory), copies["new"], silent)
    assert "manifest.json" not in _files(memory)
    monkeypatch.undo()
    assert bring(place(memory), copies["new"], silent).names


def test_what_was_read_back_is_read_again_when_its_tag_changes(copies, memory):
    """Not else; and an object that somebody replaced by as many bytes is sent again."""
    filesystem, known = Tagged(), dict[str, Any]()
    bring(place(filesystem, known), copies["new"], silent)
    filesystem.reads = 0
    assert bring(place(filesystem, known), copies["new"], silent).names == ()
    assert filesystem.reads == 1  # the manifest, for the names in it
    data = filesystem.cat_file("/place/serving.json")
    filesystem.pipe_file("/place/serving.json", data[:-1] + b" ")
    sent = bring(place(filesystem, known), copies["new"], silent)
    assert sent.names == ("serving.json", "manifest.json")
    assert filesystem.cat_file("/place/serving.json") == data


def test_files_of_somebody_else_are_not_touched(copies, memory):
    """In a place that never was a build, and beside one."""
    memory.pipe_file("/place/thesis.tex", b"years of work")
    raised(UsageError, bring, place(memory), copies["new"], silent, says=r"thesis\.tex")
    assert _files(memory) == {"thesis.tex": b"years of work"}
    memory.rm_file("/place/thesis.tex")
    bring(place(memory), copies["old"], silent)
    memory.pipe_file("/place/notes.txt", b"x")
    raised(UsageError, bring, place(memory), copies["new"], silent, says=r"notes\.txt")
    assert "manifest.json" in _files(memory)


def test_a_folder_is_exchanged_at_once(builds, copies, tmp_path, monkeypatch):
    """Stopped while it is copied, the old build is whole; what was copied is not copied again."""
    target = tmp_path / "shared" / "data"
    upload.publish_in_folder(target, builds["old"], copies["old"], silent)
    assert check(target, tmp_path).faults == []
    script = target / "launch" / "axolotl.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    send, count = StoreTarget.send, 0

    def stopped(self: StoreTarget, piece: Any) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        send(self, piece)

    monkeypatch.setattr(StoreTarget, "send", stopped)
    with pytest.raises(KeyboardInterrupt):
        upload.publish_in_folder(target, builds["new"], copies["new"], silent)
    assert check(target, tmp_path).faults == []
    assert read_manifest(target)["build_id"] == read_manifest(builds["old"])["build_id"]
    done = upload.publish_in_folder(target, builds["new"], copies["new"], silent)
    assert len(done.names) == len(copies["new"].all) - 3
    assert check(target, tmp_path).faults == []
    assert [path.name for path in target.parent.iterdir()] == ["data"]
    shutil.copytree(builds["old"], target.with_name(".data.publishing"))  # killed at its very end
    assert upload.publish_in_folder(target, builds["new"], copies["new"], silent).names == ()
    assert [path.name for path in target.parent.iterdir()] == ["data"]
    with pytest.raises(UsageError, match="is inside a build"):
        upload.publish_in_folder(builds["new"] / "copy", builds["new"], copies["new"], silent)


@pytest.fixture
def hub_stub(monkeypatch) -> Iterator[HubStub]:
    """A hub that this process publishes to."""
    from huggingface_hub import constants

    stub = HubStub()
    with serve_hub(stub) as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        files = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 34)
        yield stub


def to_hub(publication: Publication) -> Any:
    return hub.publish(hub.Repository(NAME, "nightly"), publication, private=True, report=silent)


@pytest.mark.slow
def test_stopped_at_each_large_file_the_next_call_finishes(builds, copies, hub_stub, tmp_path):
    """One commit has all of it; the hub's readers see the old build until then. The branch is made,
    and no token is shown."""
    for name in ("old", "new"):
        large = [piece for piece in copies[name].all if piece.name.endswith(LARGE)]
        start, commits = len(hub_stub.puts), len(hub_stub.commits.get(NAME, []))
        for number in range(len({piece.sha256 for piece in large} - {*hub_stub.objects})):
            hub_stub.breaks_at = start + number
            stopped = raised(SurroundingsError, to_hub, copies[name], says="publish again")
            assert "hf_aaa" not in f"{stopped.what} {stopped.remedy}"
            assert len(hub_stub.puts) == start + number
            assert len(hub_stub.commits[NAME]) == max(commits, 1)
        hub_stub.breaks_at, hub_stub.breaks_commit = None, True
        raised(SurroundingsError, to_hub, copies[name], says="not now")
        hub_stub.breaks_commit = False
        done = to_hub(copies[name])
        assert done.revision == hub_stub.sha(NAME)
        assert len(hub_stub.commits[NAME]) == max(commits, 1) + 1
        assert len(hub_stub.puts) == len(set(hub_stub.puts))
        files = hub_stub.files(NAME)
        assert set(files) == {".gitattributes", *(piece.name for piece in copies[name].all)}
    assert to_hub(copies["new"]).names == ()
    assert (hub_stub.private, {*hub_stub.branches}) == ({NAME: True}, {"nightly"})
    assert check(written(files, tmp_path), tmp_path).faults == []
    publish(builds["new"], f"hf://{NAME}@nightly", NOTHING, cache_dir=tmp_path, report=silent)
    assert f'load_dataset("{NAME}")'.encode() in hub_stub.files(NAME)["README.md"]


def test_the_hub_is_asked_for_the_hashes_of_what_arrived(copies, hub_stub):
    """A large file that is another one there is an error."""
    hub_stub.damages = True
    raised(SurroundingsError, to_hub, copies["old"], says="does not have the bytes")


def test_a_repository_with_other_files_is_not_written(copies, hub_stub):
    """It may be somebody's work."""
    hub_stub.commits[NAME] = [{"README.md": b"# mine", "model.safetensors": b"x"}]
    raised(UsageError, to_hub, copies["old"], says=r"model\.safetensors")
    assert len(hub_stub.commits[NAME]) == 1


@pytest.mark.slow
def test_a_copy_in_s3_is_the_build(builds, s3, pipeline, tmp_path):
    """What is there is checked, and sent no more. A bucket is not made."""
    words = ("publish", builds["new"], "s3://data/sets/copied")
    pipeline(*words, **s3.environment).ended()
    assert pipeline(*words, "--json", **s3.environment).ended().told["status"] == "unchanged"
    code = "import fsspec; fsspec.filesystem('s3').get('data/sets/copied', 'copy', recursive=True)"
    env = {**os.environ, **s3.environment}
    started(sys.executable, "-W", "ignore", "-c", code, folder=tmp_path, env=env).ended()
    assert "published copy" in pipeline("check", "copy").ended().err
    pipeline(*words[:2], "s3://no-such-bucket/x", **s3.environment).refused(2, "no such bucket")


def test_the_text_of_refused_rows_stays_here_unless_asked_for(builds, cache_dir, tmp_path):
    """In no file; with ``--with-rejects``, as the build has it. Neither is what a contaminated row
    says, nor what the evaluation asks, nor anything of this machine."""
    given = {"cache_dir": cache_dir, "report": silent}
    publish(builds["new"], str(tmp_path / "a"), NOTHING, **given)
    publish(builds["new"], str(tmp_path / "b"), NOTHING, with_rejects=True, **given)
    names = {n: [p for p in (tmp_path / n).rglob("*") if p.is_file()] for n in "ab"}
    secrets = {"rejects.jsonl", "report.html"}
    for secret, there in ((SECRET, secrets), ("golden umbrella", {"contaminated.jsonl"})):
        quoting = {
            n: {p.name for p in paths if secret.encode() in p.read_bytes().lower()}
            for n, paths in names.items()
        }
        assert quoting == {"a": set(), "b": there}
    for path in (*names["a"], *names["b"]):
        assert str(builds["new"].parent).encode() not in path.read_bytes()
        assert path.name != "run.json"
    refused = support.read_rows(tmp_path / "a" / "rejects.jsonl")
    assert [(one["line"], one["raw"]) for one in refused] == [(10, ""), (11, "")]
    assert all(one["code"] for one in refused)
    (hit,) = support.read_rows(tmp_path / "a" / "contaminated.jsonl")
    assert hit["id"] == "rows.jsonl:12"
    with pytest.raises(UsageError, match="published copy"):
        publish(tmp_path / "a", str(tmp_path / "c"), NOTHING, **given)


def test_a_damaged_build_is_not_published(pipeline, builds, tmp_path):
    """The check comes first: nothing is sent of it."""
    shutil.copytree(builds["new"], tmp_path / "damaged")
    (tmp_path / "damaged" / "serving.json").write_text("{}")
    pipeline("publish", "damaged", "there").refused(3, "serving.json", "not published")
    assert not (tmp_path / "there").exists()


def test_an_address_that_cannot_be_written_is_a_usage_error(builds, tmp_path):
    """Before the build is checked; one of the hub names a dataset by two words, and a branch."""
    for address, says in (
        ("https://somewhere/x", "cannot be written"),
        ("nothing://x", "://"),
        ("hf://x", "not a dataset"),
    ):
        with pytest.raises(UsageError, match=says):
            publish(builds["new"], address, NOTHING, cache_dir=tmp_path, report=silent)
    for address in ("hf://name", "hf://datasets/a/b/c", "hf://a/b@", "hf:///a/b"):
        raised(UsageError, hub.repository, address, says="not a dataset")
    assert hub.repository("hf://datasets/a/b@v1.0") == hub.Repository("a/b", "v1.0")
    assert hub.repository("hf://a/b.c-d/") == hub.Repository("a/b.c-d")


def test_of_a_folder_of_versions_the_current_one_is_published(
    make, tmp_path, monkeypatch, cache_dir
):
    """It is held while it is sent, also from what a killed call left; the history has a line."""
    folder = make("sft", SAMPLES / "sft" / "word_problems.jsonl", "r", keep=1)
    target = str(tmp_path / "copy")
    given = {"cache_dir": cache_dir, "report": silent}
    seen: list[tuple[str, ...]] = []

    def killed(self: StoreTarget, piece: Any) -> None:
        seen.extend(one.holds for one in FolderVersions(folder).all())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreTarget, "send", killed)
        patch.setattr(FolderVersions, "release", lambda *_: False)  # as where the process is killed
        raised(KeyboardInterrupt, publish, folder / "current", target, NOTHING, **given)
    ((name,),) = seen
    assert name.startswith("publish-")
    assert [one.holds for one in FolderVersions(folder).all()] == [(name,)]
    publish(folder, target, NOTHING, **given)
    assert read_manifest(Path(target))["build_id"] == FolderVersions(folder).current()
    assert [one.holds for one in FolderVersions(folder).all()] == [()]
    lines = lease.read(folder)
    assert [one["status"] for one in lines] == ["built", "published"]
    assert lines[-1]["message"] == f"published at {target}"
    (folder / "current").unlink()
    raised(UsageError, publish, folder, target, NOTHING, **given, says="no current version")


def test_the_view_has_every_example_as_text(copies):
    """Its ids decoded; what is trained is what the shards train."""
    manifest = copies["new"].manifest
    paths = {piece.name: piece.path for piece in copies["new"].pieces}
    trained = 0
    for split, record in manifest.splits.items():
        rows = pq.read_table(paths[f"view/{split}.parquet"]).to_pylist()
        assert len(rows) == record.examples
        assert sum(row["tokens"] for row in rows) == record.tokens
        trained += sum(row["trained_tokens"] for row in rows)
        for row in rows:
            assert row["text"].startswith("<|im_start|>")
            for part in row["trained"]:
                assert part in row["text"]
                assert part.endswith("<|im_end|>")
    assert trained == manifest.tokens.trained


TEXT = ["row_id", "text", "trained", "tokens", "trained_tokens", "step_labels"]
SIDES = ["row_id", "prompt", "chosen", "rejected", "tokens", "margin"]


@pytest.mark.parametrize(
    ("task", "name", "columns"),
    few([("rm", "pairs_margin.jsonl", SIDES), ("prm", "stepwise.jsonl", TEXT)], 1),
)
def test_every_task_and_an_export_has_a_card_a_view_and_metadata(
    built, cache_dir, tmp_path, task, name, columns
):
    """All checked where they are; the view of an export is that of its build."""
    source = built(task, SAMPLES / task / name)
    export_build("trl", source, tmp_path / "trl")
    said = Publisher(title="A | title", license="cc-by-4.0", origins=("https://example.org/a",))
    for at in (source, tmp_path / "trl"):
        target = tmp_path / "published" / at.name
        publish(at, str(target), said, cache_dir=cache_dir, report=silent)
        assert check(target, cache_dir).faults == []
        loaded = datasets.load_dataset(str(target))["train"]
        assert loaded.to_list() == datasets.load_from_disk(str(target))["train"].to_list()
        viewed = pq.read_table(target / "view" / "train.parquet")
        assert viewed.column_names == columns
        assert len(viewed) == read_manifest(target)["splits"]["train"]["examples"]
        found = DatasetCard.load(target / "README.md")
        assert found.data.license == "cc-by-4.0"
        assert "https://example" in found.text.replace("\\", "")
        assert json.loads((target / "croissant.json").read_bytes())["license"] == "cc-by-4.0"


@pytest.mark.parametrize("name", few(["mixed", "new"], 1))
def test_the_metadata_is_croissant(copies, name, tmp_path):
    """Its own library finds nothing wrong, and reads the records of the view by it."""
    pytest.importorskip("mlcroissant")
    written({piece.name: piece.path.read_bytes() for piece in copies[name].all}, tmp_path)
    code = support.table("scripts.toml")["records_of_croissant"]
    done = started(sys.executable, "-W", "ignore", "-c", code, folder=tmp_path).ended()
    errors, warnings, count, fields = json.loads(done.out.splitlines()[-1])
    assert errors == []
    # What a build does not know, and what the older one's recipe does not say.
    unsaid = {one.split('"')[1].rpartition("/")[2] for one in warnings if "recommended" in one}
    assert len(unsaid) == len(warnings), warnings
    assert unsaid - {"license"} == {"citeAs", "datePublished", "version"}
    assert ("license" in unsaid) == (name == "new")
    assert count == copies[name].manifest.splits["train"].examples
    assert {"train/text", "train/row_id"} <= set(fields)
    assert ("train/source" in fields) == (name == "mixed")


# README.md of builds and exports: ``datasets`` loads by it, and a build is made of it again.


SOURCES = support.SAMPLE_OF | {"rm": SAMPLES / "rm" / "pairs_margin.jsonl"}


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch) -> None:
    """``datasets`` converts what it loads into a cache of this test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def loads_both_ways(folder: Path) -> None:
    """Both loaders give the rows of the manifest, in the same columns and equal."""
    recorded = {name: split["rows"] for name, split in read_manifest(folder)["splits"].items()}
    one, other = datasets.load_dataset(str(folder)), datasets.load_from_disk(str(folder))
    assert {name: len(rows) for name, rows in one.items()} == recorded
    assert {name: len(rows) for name, rows in other.items()} == recorded
    for name in recorded:
        assert one[name].to_list() == other[name].to_list()


@pytest.mark.parametrize(
    ("task", "trainer"), few([("sft", "megatron"), ("rm", "medicalgpt"), ("prm", "trl")], 1)
)
def test_a_build_and_the_export_in_it_load_both_ways(make, task, trainer):
    """Beside a trainer's shards, in other columns or in another container, too."""
    folder = make(task, SOURCES[task], trainer=trainer, test_size=0.3)
    loads_both_ways(folder)
    loads_both_ways(folder / trainer)


@support.sweep(4)
@pytest.mark.parametrize(
    ("task", "layout"),
    [(t, one) for t in SOURCES for one in ("packed", "ragged", "padded")[t == "rm" :]],
)
def test_every_layout_and_every_export_loads_both_ways(make, task, layout):
    """Of every trainer that takes it."""
    folder = make(task, SOURCES[task], layout=layout, test_size=0.3)
    loads_both_ways(folder)
    for name, verdict in read_manifest(folder)["trainers"].items():
        if verdict["supported"]:
            export_build(name, folder, folder.with_name(name))
            loads_both_ways(folder.with_name(name))


def test_load_dataset_refuses_a_folder_with_fewer_rows(make):
    """A shard that was cut, or is missing, is not loaded in silence."""
    folder = make("rm", SOURCES["rm"])
    (shard,) = folder.glob("train/*.arrow")
    rewrite(shard, read(shard).to_pylist()[1:])
    raised(datasets.exceptions.NonMatchingSplitsSizesError, datasets.load_dataset, str(folder))


def test_check_compares_what_datasets_reads_with_what_the_trainer_reads(make, tmp_path):
    """The rows in both files of a shard are the same, or check says that they are not."""
    folder = tmp_path / "e"
    export_build("medicalgpt", make("rm", SOURCES["rm"]), folder)
    assert check(folder, tmp_path).faults == []
    rewrite(folder / SHARD, read(folder / SHARD).to_pylist()[::-1])
    resealed(folder, SHARD)
    (fault,) = check(folder, tmp_path).faults
    assert (fault.where, fault.code) == (SHARD, "datasets")


def test_the_front_matter_is_what_the_hub_reads(make):
    """Parsed by the hub's own library; texts of the publisher cannot end it."""
    folder = make("prm", SOURCES["prm"], test_size=0.3)
    found = DatasetCard.load(folder / "README.md").data.to_dict()
    assert [one["split"] for one in found["configs"][0]["data_files"]] == ["train", "test"]
    assert found["tags"] == ["posttrain-pipeline", "prm", "qwen2-1.5b"]
    nasty = Publisher(title='a: "b"\n---\n# c', license="cc-by-4.0", origins=("x | y\n# z",))
    text = card.make(Build.open(folder), nasty)
    (folder / "README.md").write_text(text)
    found = DatasetCard.load(folder / "README.md").data.to_dict()
    assert found["pretty_name"] == nasty.title
    assert found["license"] == nasty.license
    assert "\n# c" not in text
    assert "\n# z" not in text


def require_the_same(pipeline: support.Run, folder: Path) -> str:
    """Of the recipe in a build's card, beside files of the names that it gives; the recipe."""
    text = (folder / "README.md").read_text("utf-8")
    (recipe,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (folder.parent / "again.toml").write_text(f'output = "again"\nkeep = 0\n{recipe}', "utf-8")
    pipeline("build", "again.toml").ended()
    again = folder.with_name("again")
    assert read_manifest(again) == read_manifest(folder)
    assert (again / "README.md").read_text("utf-8") == text
    return str(recipe)


@pytest.mark.slow
def test_the_recipe_in_the_card_builds_the_same(pipeline, make, tmp_path):
    """With options of many kinds."""
    options = support.table("card_options.toml")
    rows = [json.loads(line) for line in SOURCES["sft"].read_text().splitlines()]
    asked = [row.get("messages", row) for row in rows]
    data = tmp_path / "rows.jsonl"
    texts = [
        {"question": f"{i}: {json.dumps(one)}", "solution": "2"} for i, one in enumerate(asked)
    ]
    write_rows(data, texts)
    folder = make("sft", data, **options | {"stop": (*options["stop"],)})
    assert tomllib.loads(require_the_same(pipeline, folder))["data"] == ["rows.jsonl"]


@pytest.mark.slow
def test_the_card_has_the_sources_of_the_recipe(pipeline, tmp_path):
    """Their licences, origins and figures; and a recipe that builds the same."""
    (tmp_path / "chats").mkdir()
    shutil.copyfile(SOURCES["sft"], tmp_path / "word_problems.jsonl")
    shutil.copyfile(SAMPLES / "sft" / "chat.jsonl", tmp_path / "chats" / "chat.jsonl")
    shutil.copyfile(ROOT / "tests" / "tables" / "two_sources.toml", tmp_path / "r.toml")
    pipeline("build", "r.toml").ended()
    card_of = DatasetCard.load(tmp_path / "out" / "README.md")
    found = card_of.data.to_dict()
    assert found["pretty_name"] == "Problems | chats"
    assert found["license"] == ["cc-by-4.0", "other"]
    assert found["license_name"] == "our-data-terms-v2"
    lines = card_of.text.splitlines()
    (line,) = [one for one in lines if one.startswith("| `problems` |")]
    used = read_manifest(tmp_path / "out")["sources"][0]["splits"]["train"]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:4] == ["CC-BY-4.0", "https://example.org/problems", "1"]
    assert cells[5:] == [f"{used['examples']:,}", f"{used['trained']:,}"]
    assert "- our own collection" in lines
    assert any("Our Data Terms \\(v2\\)" in one for one in lines)
    loads_both_ways(tmp_path / "out")

    shutil.copyfile(SAMPLES / "sft" / "chat.jsonl", tmp_path / "chat.jsonl")
    require_the_same(pipeline, tmp_path / "out")

    pipeline("build", "r.toml", "--license", "mit", "-o", "licensed", "--json").ended()
    found = DatasetCard.load(tmp_path / "licensed" / "README.md").data.to_dict()
    assert (found["license"], "license_name" in found) == ("mit", False)


@pytest.mark.slow
def test_the_recipe_in_the_card_names_the_files_of_the_test_split(pipeline, tmp_path):
    """With options of all rows, and a filter."""
    lines = SOURCES["sft"].read_text().splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_text("".join(lines[:9]))
    (tmp_path / "held.jsonl").write_text("".join(lines[9:]))
    command = ("run", "sft", "a.jsonl", "--test", "held.jsonl", "--model", "qwen2-1.5b")
    given = ("--system", "Be brief.", "--train-on", "last", "--filter", "n_tokens < 400")
    pipeline(*command, *given, "--origin", "here", "-o", "out").ended()
    recipe = require_the_same(pipeline, tmp_path / "out")
    assert tomllib.loads(recipe)["test"] == ["held.jsonl"]


@given(st.text(max_size=40))
def test_no_text_is_markup(text):
    """A cell is one line without a bar that would end it; a block is ended by its fence alone."""
    for cell in (plain(text), code(text)):
        assert len(cell.splitlines()) <= 1
        assert not re.search(r"(?<!\\)(\\\\)*\|", cell.replace("\\\\", ""))
    fence, *lines, end = block(text, "").split("\n")
    assert end == fence
    assert fence not in lines


def test_a_card_says_nothing_of_this_machine(make, tmp_path):
    """No path; and the build has the same bytes wherever it is made, and by two workers."""
    first = make("rm", SOURCES["rm"])
    moved = tmp_path / "elsewhere" / SOURCES["rm"].name
    moved.parent.mkdir()
    shutil.copyfile(SOURCES["rm"], moved)
    assert files_of(make("rm", moved, "other", workers=2)) == files_of(first)
    assert str(tmp_path) not in (first / "README.md").read_text("utf-8")
