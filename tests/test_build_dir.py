"""A finished build as a typed object: opened whole, written again byte for byte, damage named."""

import errno
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pytest
import recorded_builds
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT, SAMPLES, raised, read_manifest, started, table, writable

import posttrain_pipeline as pp
from pipeline import __version__
from pipeline.builder.exporting import export_build
from pipeline.builds import packs as rows
from pipeline.builds.build import Build
from pipeline.builds.build import read_manifest as parse
from pipeline.builds.limits import Built
from pipeline.builds.summary import summary
from pipeline.manifest import dataset_files, json_records, records
from pipeline.manifest.manifest import SCHEMA_VERSION, Manifest, id_of_manifest
from pipeline.publish.check import check
from pipeline.report.drawing import Shards
from pipeline.report.page import make as page
from stages import findings
from stages.errors import DataError, SurroundingsError, UsageError

BUILDS = dict(table("opened_builds.jsonl"))
EXPORT = "prm-ragged/trl"
RECORDS: dict[str, type[findings.JsonRecord]] = {
    "manifest.json": Manifest,
    "run.json": records.RunRecord,
    "serving.json": records.Serving,
    "validation.json": findings.Validation,
    "audits.json": findings.Audits,
}
OPTIONAL: dict[str, list[str]] = table("optional_keys.toml")


@pytest.fixture(scope="module")
def builds(built, tmp_path_factory) -> Path:
    """A folder with all of them, and an export of a whole build."""
    root = tmp_path_factory.mktemp("builds")
    for name, words in BUILDS.items():
        data, *options = words.split()
        made = built(name.partition("-")[0], SAMPLES / data, *options)
        writable(shutil.copytree(made, root / name))
    export_build("llamafactory", root / "rm-ragged", root / "export")
    return root


ALL = [*BUILDS, EXPORT, "export"]


@pytest.mark.parametrize("name", ALL)
def test_a_build_is_opened_whole(builds, name):
    """Splits, shards, tokenizer and records are those of its files, in every task and layout. What
    is read of a file that has a record is written again byte for byte; so is sealing."""
    folder = builds / name
    build, said = Build.open(str(folder)), read_manifest(folder)
    assert build.require_intact() is build
    assert list(build.differences()) == []
    assert (build.tokenizer / "tokenizer.json").read_bytes() == build.tokenizer_json
    assert list(build.splits) == list(said["splits"])
    examples = 0
    for split in build.splits.values():
        tables = list(split.tables())
        assert [len(table) for table in tables] == [shard.record.rows for shard in split.shards]
        assert {tuple(table.schema.names) for table in tables} == {build.manifest.columns}
        examples += sum(len(rows.examples(table)) for table in tables)
    assert examples == said["examples"]["kept"] == build.manifest.examples.kept
    assert build.serving.stop_token_ids
    assert build.validation.passed
    if said["export"]:
        stored = build.splits["train"].shards[0].trainer_table()
        assert stored.schema.names != list(build.manifest.columns)
        with pytest.raises(DataError, match=r"run\.json cannot be read"):
            _ = build.run
    else:
        assert build.run.engine == "local"
        assert {audit.name for audit in build.audits.audits} == set(said["audits"])
        refused = list(build.rejects())
        assert len(refused) == said["rows"]["rejected"] + said["examples"]["rejected"]
        assert {one.code for one in refused} <= {*said["rows"]["rejected_by_code"]} | {
            *said["examples"]["rejected_by_code"]
        }
    for file, kind in RECORDS.items():
        path = builds / name / file
        if path.is_file():
            data = path.read_bytes()
            assert json_records.dump(json_records.load(kind, data)) == data, file
            assert json.loads(json_records.one_line(json_records.load(kind, data))) == json.loads(
                data
            )
    manifest = Build.open(builds / name).manifest
    assert json_records.sealed(manifest) == manifest
    assert id_of_manifest(manifest) == manifest.build_id
    rejects = builds / name / "rejects.jsonl"
    for line in rejects.read_bytes().splitlines() if rejects.is_file() else ():
        assert json_records.one_line(json_records.load(records.Reject, line)).encode() == line


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value of a JSON document, but for what is inside recipe options."""
    if path and path[-1] in ("options", "engines", "chat_template", "kwargs", "seen"):
        return
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, one in value.items() if isinstance(value, dict) else inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    """The value at a path."""
    for key in path:
        document = document[key]
    return document


def dotted(path: tuple[Any, ...]) -> str:
    """As an error names it."""
    return ".".join(map(str, path))


def fields_of(kind: type[findings.JsonRecord], document: Any) -> Iterator[tuple[Any, ...]]:
    """Paths that name a field of a record, and none that is a name of the data (a file, a code)."""
    for path in places(document):
        if isinstance(path[-1], str):
            without = json.loads(json.dumps(document))
            at(without, path[:-1]).clear()  # a mapping may be empty; a record may not
            try:
                json_records.from_json(kind, without)
            except json_records.MalformedError:
                yield path


@pytest.mark.parametrize("file", RECORDS)
def test_every_missing_key_is_named(builds, file):
    """With its path; only what older builds lack may be absent, and then nothing else is said."""
    document, kind = json.loads((builds / "prm-ragged" / file).read_bytes()), RECORDS[file]
    optional = set(OPTIONAL[file])
    tried = set()
    for path in fields_of(kind, document):
        plain = re.sub(r"\.\d+", ".N", dotted(path))
        damaged = json.loads(json.dumps(document))
        del at(damaged, path[:-1])[path[-1]]
        tried.add(plain)
        if plain in optional:
            assert json_records.as_json(json_records.from_json(kind, damaged)) == damaged
            continue
        caught = raised(json_records.MalformedError, json_records.from_json, kind, damaged)
        assert str(caught) == f"{dotted(path)} is missing"
    assert len(tried) > len(optional)


WRONG = [None, True, 3, 0.5, "text", ["text"], [3], {"key": "text"}, {"key": 3}]


@pytest.mark.parametrize("file", RECORDS)
@given(data=st.data())
def test_any_value_of_another_type_is_named_or_kept(builds, file, data):
    """At its place or inside it, never by an error of Python's; what is taken is kept as it is."""
    folder = builds / data.draw(st.sampled_from(["prm-ragged", "sft-packed", "rm-padded"]))
    document, kind = json.loads((folder / file).read_bytes()), RECORDS[file]
    path = data.draw(st.sampled_from(list(places(document))))
    at(document, path[:-1])[path[-1]] = data.draw(st.sampled_from(WRONG))
    try:
        found = json_records.from_json(kind, document)
    except json_records.MalformedError as error:
        said = error
    else:
        assert json_records.as_json(found) == document
        return
    assert said.key.startswith(dotted(path)), said
    assert re.fullmatch(r"is missing|is .+, not .+|has \d+ values, not \d+", said.why)


@given(data=st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_a_manifest_or_an_error(data):
    """That says what is wrong."""
    raised(json_records.MalformedError, parse, data)


def copied(builds: Path, name: str, target: Path, change: Callable[[Any], None]) -> Path:
    """A build with another manifest, sealed anew; its other files are hard links."""
    for path in (builds / name).rglob("*"):
        place = target / path.relative_to(builds / name)
        if path.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(path)
    manifest = read_manifest(target)
    change(manifest)
    (target / "manifest.json").unlink()
    dataset_files.write_json(target / "manifest.json", json_records.sealed_text(manifest))
    return target


def test_a_build_without_what_was_added_since_is_used_as_before(builds, tmp_path, cache_dir):
    """Checked, shown, summarised, exported and drawn on a page."""

    def older(manifest: Any) -> None:
        for key in OPTIONAL["manifest.json"]:
            *outer, last = key.replace(".N", ".0").split(".")
            holder = manifest
            for name in outer:
                holder = holder[int(name)] if name.isdigit() else (holder.get(name) or {})
            holder.pop(last, None)

    folder = copied(builds, "rm-padded", tmp_path / "old", older)
    assert check(folder, cache_dir).faults == []
    build = Build.open(folder)
    assert build.manifest.model.added_tokens == {}
    assert any(line.startswith("rows      ") for line in summary(Built(build, fresh=False)))
    assert len(summary(Built(build, fresh=True))) > len(summary(Built(build, fresh=False)))
    assert Shards(build).strips(Shards(build).row("train", 0))
    assert "<h2>" in page(build)
    export_build("trl", folder, tmp_path / "export", "ragged")


def test_keys_of_a_newer_version_are_kept(builds, tmp_path, cache_dir):
    """Where they stand, at every depth, through an export too; a newer schema is refused."""

    def newer(manifest: Any) -> None:
        manifest["rows"]["more"] = {"a": [1, None]}
        manifest["model"] = {"first": 1, **manifest["model"]}
        manifest["later"] = "x"

    folder = copied(builds, "rm-ragged", tmp_path / "new", newer)
    data = (folder / "manifest.json").read_bytes()
    assert json_records.dump(Build.open(folder).manifest) == data
    assert check(folder, cache_dir).faults == []
    export_build("openrlhf", folder, tmp_path / "export")
    exported = read_manifest(tmp_path / "export")
    assert exported["rows"]["more"] == {"a": [1, None]}
    assert exported["later"] == "x"
    assert next(iter(exported["model"])) == "first"
    folder = copied(builds, "rm-ragged", tmp_path / "next", lambda m: m.update(schema_version=9))
    for opened in (Build.open, lambda at: check(at, cache_dir)):
        raised(UsageError, opened, folder, says=f"schema 9; this version reads {SCHEMA_VERSION}")


@pytest.mark.parametrize("command", ["check DIR", "show DIR", "report DIR", "export trl DIR -o x"])
def test_commands_name_the_key_that_is_missing(builds, pipeline, tmp_path, command):
    """With exit status 3, and no traceback."""
    folder = copied(builds, "rm-padded", tmp_path / "damaged", lambda found: found.pop("splits"))
    words = (folder if word == "DIR" else word for word in command.split())
    assert "Traceback" not in pipeline(*words).refused(3, "splits is missing").err


@given(data=st.data())
@settings(max_examples=10)
def test_check_never_ends_in_an_error_of_pythons(builds, tmp_path_factory, cache_dir, data):
    """Whatever key is missing or replaced in a manifest that was sealed anew."""

    def change(manifest: Any) -> None:
        path = data.draw(st.sampled_from(list(places(manifest))))
        if data.draw(st.booleans()):
            del at(manifest, path[:-1])[path[-1]]
        else:
            at(manifest, path[:-1])[path[-1]] = data.draw(st.sampled_from(WRONG))

    folder = copied(builds, "rm-ragged", tmp_path_factory.mktemp("damaged") / "d", change)
    with suppress(UsageError):  # a schema that is newer than this
        check(folder, cache_dir)


def test_a_damaged_file_is_named(builds, tmp_path):
    """With what is wrong in it, when it is asked for and not before."""
    for name in ("run", "serving", "validation", "audits"):
        folder = copied(builds, "sft-ragged", tmp_path / name, lambda manifest: None)
        (folder / f"{name}.json").unlink()
        (folder / f"{name}.json").write_text("[")
        build = Build.open(folder)
        raised(DataError, getattr, build, name, says=f"{name}.json is damaged: it is not JSON")
        if name != "run":  # which no manifest names, since equal builds differ in it
            raised(DataError, build.require_intact, says="has changed since the build")


def test_damaged_rejects_and_shards_are_named(builds, tmp_path):
    """By line, and by path; a missing tokenizer likewise."""
    folder = copied(builds, "sft-ragged", tmp_path / "damaged", lambda manifest: None)
    lines = (folder / "rejects.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "rejects.jsonl").unlink()
    (folder / "rejects.jsonl").write_bytes(lines[0] + b'{"id": "x"}\n')
    with pytest.raises(DataError, match=r"rejects\.jsonl:2 is damaged: source is missing"):
        list(Build.open(folder).rejects())
    shard = folder / "train" / "data-00000-of-00001.arrow"
    data = shard.read_bytes()
    for damaged in (b"", b"no arrow", data[: len(data) // 2]):
        shard.unlink()
        shard.write_bytes(damaged)
        with pytest.raises(DataError, match=r"data-00000-of-00001\.arrow cannot be read"):
            list(Build.open(folder).splits["train"].tables())
    (folder / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json cannot be read: No such file"):
        _ = Build.open(folder).tokenizer_json


def test_a_link_in_a_build_is_refused(builds, tmp_path, cache_dir):
    """What it leads to changes without the build; a link to a build is one."""
    folder = copied(builds, "sft-ragged", tmp_path / "build", lambda manifest: None)
    (tmp_path / "current").symlink_to("build")
    assert Build.open(tmp_path / "current").require_intact()
    shard = "train/data-00000-of-00001.arrow"
    for name in ("train", shard, "tokenizer", "manifest.json", "run.json"):
        (folder / name).rename(tmp_path / "elsewhere")
        (folder / name).symlink_to(tmp_path / "elsewhere")
        for refuse in (Build.open, pp.open):
            raised(DataError, refuse, tmp_path / "current", says="is a link, or in a linked folder")
        faults = check(folder, cache_dir).faults
        assert any(fault.detail == "a link is in its place" for fault in faults), name
        (folder / name).unlink()
        (tmp_path / "elsewhere").rename(folder / name)


def _unreadable(path: Path, *_: object, **__: object) -> Any:
    raise OSError(errno.EIO, "Input/output error", str(path))


def test_what_the_disk_does_not_give_is_no_fault_of_the_data(
    builds, tmp_path, cache_dir, monkeypatch
):
    """Neither where a build is read, nor where it is checked."""
    folder = copied(builds, "sft-ragged", tmp_path / "build", lambda manifest: None)
    build = Build.open(folder)
    for name, read in (
        ("pathlib.Path.open", lambda: list(build.rejects())),
        ("pathlib.Path.read_bytes", lambda: build.serving),
        ("pathlib.Path.read_bytes", lambda: Build.open(folder)),
        ("pipeline.builds.stored.read_file", lambda: list(build.splits["train"].tables())),
        ("pipeline.shards.mapped.Mapped", lambda: check(folder, cache_dir)),
        ("pipeline.publish.check.stored_model", lambda: check(folder, cache_dir)),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(name, _unreadable)
            raised(SurroundingsError, read, says="Input/output error")


def test_what_is_no_build_is_said(tmp_path):
    """No folder, an empty one, and one with another program's manifest."""
    with pytest.raises(UsageError, match="is not a build: there is no such folder"):
        Build.open(tmp_path / "nowhere")
    raised(UsageError, Build.open, tmp_path, says=r"is not a build: it has no manifest\.json")
    for content, why in (("{}", "schema_version is missing"), ("[]", "it is a list, not an")):
        (tmp_path / "manifest.json").write_text(content)
        raised(DataError, Build.open, tmp_path, says=re.escape(why))


def test_reading_a_build_needs_nothing_that_builds():
    """A trainer imports no tokenizer library, no gate and no command line with it."""
    body = "import sys, pipeline.builds.build as b; print(*sys.modules)"
    loaded = set(started(sys.executable, "-c", body, folder=ROOT).ended().out.split())
    heavy = {"datasets", "transformers", "tokenizers", "great_expectations", "polars", "click"}
    assert not (heavy | {"pipeline.shards.part", "expectations"}) & loaded


# A build of every version that was released is opened, judged and exported by this one.


VERSIONS = sorted(
    path.name.removesuffix(".tar.xz") for path in recorded_builds.ARCHIVES.glob("*.tar.xz")
)


def test_this_version_is_recorded():
    """``make release`` has written its builds."""
    assert __version__ in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_build_of_a_version_is_opened_judged_and_exported(version, pipeline, tmp_path):
    """Every row is read, nothing is found, its inputs are read again, and a trainer's columns are
    made of it."""
    with tarfile.open(recorded_builds.ARCHIVES / f"{version}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for task, (data, layout, trainer) in recorded_builds.BUILDS.items():
        build = pp.open(tmp_path / task)
        m = build.manifest
        assert (m.version, m.task, m.layout, m.inputs[0].path) == (version, task, layout, data)
        rows = sum(table.num_rows for table in build.splits["train"].tables())
        stored = datasets.load_from_disk(str(tmp_path / task))["train"]
        assert rows == stored.num_rows == m.splits["train"].rows > 0
        assert len(list(build.rejects())) == m.rows.rejected > 0
        said = pipeline("check", task, "--json").ended().told
        assert said["passed"], said
        pipeline("show", task, "--random", "1").ended()
        pipeline("export", trainer, task, "-o", f"{task}-export").ended()
        assert pp.open(tmp_path / f"{task}-export").manifest.examples.kept == m.examples.kept
