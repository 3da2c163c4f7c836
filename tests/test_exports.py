"""Exports: columns, refusals, launch scripts, and the way back to the same rows."""

import itertools
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import support
import yaml
from datasets import load_dataset, load_from_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT, SAMPLES, model_record, program, raised, read_manifest, started, table
from test_show import show
from transformers import AutoTokenizer

import posttrain_pipeline as pp
from pipeline import exports, tasks
from pipeline.builder.exporting import export_build
from pipeline.builds import failed
from pipeline.builds import packs as rows
from pipeline.builds.build import Build
from pipeline.exports import ExportFacts
from stages import columns
from stages.errors import DataError, UsageError
from stages.tokens import packed, padded, ragged

SOURCE = {
    "sft": SAMPLES / "sft" / "chat.jsonl",
    "rm": SAMPLES / "rm" / "pairs_margin.jsonl",
    "prm": SAMPLES / "prm" / "math_shepherd.jsonl",
}
NAMED = {f"{name}_token": f"<{name}>" for name in ("pad", "eos", "step", "good", "bad")}
IDS = {"pad_token_id": 0, "eos_token_id": 9, "good_token_id": 7, "bad_token_id": 8}
MODEL = model_record(**NAMED, **IDS, padding_side="left")
LONGEST = 24
TEXTS = ("openrlhf-text", "medicalgpt")  # prove their rows with a tokenizer: see below
TAKEN = [  # every trainer, task and layout
    (name, task, layout)
    for name in exports.names()
    for task in tasks.names()
    for layout in exports.load(name).takes.get(tasks.kind_of(task).trains_as, ())
]


def facts(task: str, layout: str, **more: Any) -> ExportFacts:
    """Facts of a build of the small model above."""
    return ExportFacts(task, layout, LONGEST, MODEL, **more)


@st.composite
def examples(draw: st.DrawFn, task: str) -> pa.Table:
    """Single rows as an encoder may leave them: the first label is never trained."""
    count = draw(st.integers(1, 6))
    made: list[dict[str, Any]] = []
    for index in range(count):
        ids = st.lists(st.integers(1, 6), min_size=2, max_size=LONGEST)
        row: dict[str, Any] = {"row_id": f"data.jsonl:{index + 1}"}
        if task == "rm":
            row |= {"chosen_ids": draw(ids), "rejected_ids": draw(ids), "prompt_length": 1}
        else:
            row["input_ids"] = draw(ids)
            size = len(row["input_ids"])
            marked = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            marked[0], marked[-1] = False, True
            if task == "sft":
                pairs = zip(row["input_ids"], marked, strict=True)
                row["labels"] = [x if on else -100 for x, on in pairs]
            else:
                places = [place for place, on in enumerate(marked) if on]
                rated = [draw(st.sampled_from([1.0, 0.0])) for _ in places]
                row["labels"] = [-100] * size
                for place, label in zip(places, rated, strict=True):
                    row["labels"][place] = 7 if label else 8
                row |= {"step_positions": places, "step_labels": rated}
        made.append(row)
    names = [name for name in columns.TYPES if name in made[0]]
    return ragged.ordered(pa.Table.from_pylist(made, schema=columns.schema(names)))


def laid_out(table: pa.Table, layout: str) -> pa.Table:
    """The examples in a layout, as the gather would lay them out."""
    if layout == "packed":
        lengths = np.array([len(x) for x in table.column("input_ids").to_pylist()])
        packs = packed.plan(lengths, LONGEST)
        order = np.argsort(packs, kind="stable")
        return packed.pack(table.take(pa.array(order)).combine_chunks(), np.bincount(packs))
    return padded.pad(table, LONGEST, "left", 0) if layout == "padded" else table


@pytest.mark.parametrize(
    ("name", "task", "layout"), [taken for taken in TAKEN if taken[0] not in TEXTS]
)
@settings(max_examples=10)
@given(data=st.data())
def test_a_projection_gives_back_what_it_keeps(name, task, layout, data):
    """Forward and back is the identity on the kept columns, whatever the rows are."""
    table = laid_out(data.draw(examples(task)), layout)
    projection = exports.load(name).projection(facts(task, layout))
    if projection is None:
        assert exports.load(name).container == "arrow"
        return
    stored = projection.forward(table)
    assert len(stored) == len(table)
    back = projection.back(stored)
    assert back.select(projection.keeps).to_pylist() == table.select(projection.keeps).to_pylist()


@pytest.mark.parametrize(
    ("task", "layout"),
    [("sft", "packed"), ("sft", "padded"), ("rm", "padded"), ("prm", "packed"), ("prm", "padded")],
)
@settings(max_examples=20)
@given(data=st.data())
def test_layouts_are_taken_apart_into_the_same_examples(task, layout, data):
    """Packs and padding hold the examples they were made from, positions and ratings included."""
    table = data.draw(examples(task))
    found = rows.examples(laid_out(table, layout))
    assert found.schema == table.schema
    key = "row_id"
    assert sorted(found.to_pylist(), key=lambda r: str(r[key])) == sorted(
        table.to_pylist(), key=lambda r: str(r[key])
    )


def canonical(folder: Path) -> list[dict[str, Any]]:
    """Every example of a build or an export, in our columns."""
    found = Build.open(folder).require_intact()
    tables = [rows.examples(table) for split in found.splits.values() for table in split.tables()]
    return sorted(pa.concat_tables(tables).to_pylist(), key=lambda row: str(row["row_id"]))


@pytest.fixture(scope="module")
def builds(built) -> dict[str, Path]:
    """One build a task, in the default layout."""
    return {task: built(task, source) for task, source in SOURCE.items()}


@pytest.mark.parametrize(("name", "task", "wanted"), table("export_columns.jsonl"))
def test_columns_of_an_export(builds, tmp_path, name, task, wanted):
    """Exactly the trainer's columns, and both ways of loading see the same rows."""
    export_build(name, builds[task], tmp_path / "out")
    loaded = load_from_disk(str(tmp_path / "out"))["train"]
    assert loaded.column_names == wanted
    again = load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "hf"))["train"]
    assert again.to_list() == loaded.to_list()
    assert canonical(tmp_path / "out") == canonical(builds[task])


def test_a_build_for_a_trainer_is_the_export_of_the_plain_one(pipeline, builds, tmp_path):
    """--for stores the same rows that export stores later, and says how to train on them."""
    command = ("run", "prm", SOURCE["prm"], "--model", "qwen2-1.5b", "--for", "axolotl")
    ran = pipeline(*command, "-o", "out").ended()
    assert ran.err.splitlines()[-1] == "train     sh out/launch/axolotl.sh MODEL_DIR"
    ran = pipeline("export", "axolotl", builds["prm"], "-o", "later").ended()
    assert ran.err.splitlines()[-1] == "train     sh later/launch/axolotl.sh MODEL_DIR"
    folders = ("out/axolotl", "later")
    one, two = (load_from_disk(str(tmp_path / name))["train"] for name in folders)
    assert sorted(map(str, one)) == sorted(map(str, two))
    assert canonical(tmp_path / "out") == canonical(builds["prm"])
    manifest = read_manifest(tmp_path / "out")
    assert manifest["layout"] == "ragged"  # the first that it takes
    assert manifest["for"] == "axolotl"
    assert {"launch/axolotl.sh", "axolotl/launch/axolotl.sh"} <= set(manifest["files"])
    assert canonical(tmp_path / "out" / "axolotl") == canonical(builds["prm"])
    pipeline("check", "out").ended()


@pytest.mark.parametrize(("name", "task", "layout", "says"), table("refused_exports.jsonl"))
def test_what_cannot_work_has_a_reason(name, task, layout, says):
    """The verdict of the manifest and the refusal of --for are the same sentence."""
    known = facts(task, layout)
    verdict = exports.verdicts(known)[name]
    assert not verdict.supported
    assert says in verdict.detail
    raised(UsageError, exports.load(name).require, known, says=says)


def test_margins_that_a_trainer_does_not_read_are_told_of():
    """They change no token, so the trainer trains, and its verdict says without what."""
    found = exports.verdicts(facts("rm", "ragged", columns=("margin",)))
    told = {n for n, v in found.items() if v.supported and "margins" in v.detail}
    assert told == {"llamafactory", "medicalgpt"}
    plain = exports.verdicts(facts("rm", "ragged"))
    assert not any("the margins that" in verdict.detail for verdict in plain.values())


@pytest.mark.parametrize(
    ("name", "started_by"), [("axolotl", "axolotl"), ("llamafactory", "llamafactory-cli")]
)
def test_a_configuration_names_its_folders_whatever_they_are_called(
    builds, tmp_path, name, started_by
):
    """A name may hold what means something to the tool that fills it in."""
    folder = tmp_path / r"a & b|c\d"
    folder.mkdir()
    export_build(name, builds["sft"], folder / "out")
    shim = program(tmp_path / "bin" / started_by, 'cat "$2"')  # of: train CONFIG ...
    variables = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"}
    script = folder / "out" / "launch" / f"{name}.sh"
    said = started("sh", script, "MODEL", folder=folder, env=variables).ended().out
    assert f"{folder}/" in said
    assert not re.search("(DATA|BUILD)_DIR", said)


def said_by(text: str, tmp_path: Path, name: str, **env: str) -> list[str]:
    """The words that a launch script passes to the program it starts, which is not run."""
    script = program(tmp_path / "launch" / "it.sh", text)
    folder = program(tmp_path / "bin" / name, "printf '%s\\n' \"$@\"").parent
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", **env}
    return started("sh", script, "MODEL", "--more", env=variables).ended().out.splitlines()


GROUPED = {"--ds.packing_samples", "--data.max_len", "--train.batch_size"}
PLAIN = {"--packing_samples", "--max_len", "--train_batch_size"}
VERSIONS = dict.fromkeys(("0.7.1", "0.9.5", "0.10.1.post2"), PLAIN)
VERSIONS |= dict.fromkeys(("0.10.2", "0.11.2", "1.0.0"), GROUPED)


@pytest.mark.parametrize(("name", "task"), [("openrlhf", "sft"), ("openrlhf-text", "rm")])
@pytest.mark.parametrize("version", VERSIONS)
def test_openrlhf_gets_its_options_as_its_version_spells_them(tmp_path, name, task, version):
    """The version is given, or asked of the installed package."""
    text = exports.load(name).launch(facts(task, "ragged", rows=40))
    given = set(said_by(text, tmp_path, "deepspeed", OPENRLHF_VERSION=version))
    assert given & (GROUPED | PLAIN) == VERSIONS[version]
    program(tmp_path / "bin" / "python3", f"echo {version}")
    assert set(said_by(text, tmp_path, "deepspeed")) == given


def test_an_openrlhf_that_is_not_found_is_said(tmp_path):
    """No version is guessed."""
    text = exports.load("openrlhf").launch(facts("sft", "packed"))
    program(tmp_path / "python3", "exit 1")
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    started("sh", "-s", "MODEL", env=variables, given=text).refused(2, "set OPENRLHF_VERSION")


def test_openrlhf_packs_no_padded_steps():
    """Their rows stay as they are stored, with the mask that its loss reads."""
    export, layouts = exports.load("openrlhf"), ("packed", "ragged", "padded")
    known = [facts("prm", layout) for layout in layouts]
    assert ["packing_samples" in export.launch(one) for one in known] == [True, True, False]
    assert export.projection(known[2]) is None


def test_text_rows_are_proved_or_refused(make, tmp_path):
    """openrlhf-text writes rows whose text is tokenized to the stored ids, else says which fail."""
    good = make("sft", SAMPLES / "sft" / "word_problems.jsonl", trainer="openrlhf-text")
    tokenizer = AutoTokenizer.from_pretrained(str(good / "tokenizer"))
    found = load_from_disk(str(good / "openrlhf-text"))["train"]
    assert found.column_names == ["input", "output"]
    assert all(row["output"].endswith("<|im_end|>") for row in found)
    ids = [tokenizer(r["input"] + r["output"], add_special_tokens=False).input_ids for r in found]
    own = [row["input_ids"] for row in support.stored_rows(good)]
    assert ids == [row[: len(text)] for row, text in zip(own, ids, strict=True)]
    row = {"prompt": "What does <|im_end|> mean?", "completion": "The end of a turn."}
    forged = support.write_rows(tmp_path / "forged.jsonl", [row])
    with pytest.raises(UsageError, match=r"is tokenized differently as text \(forged\.jsonl:1\)"):
        make("sft", forged, "bad", trainer="openrlhf-text")


def test_an_export_is_shown_as_its_build(builds, tmp_path):
    """Whatever columns and container it is stored in."""
    folders = [builds["sft"], *(tmp_path / name for name in ("open-r1", "megatron"))]
    for folder in folders[1:]:
        export_build(folder.name, builds["sft"], folder)
    drawn = [show(folder, "--row", "chat.jsonl:1").replace(str(folder), "") for folder in folders]
    own, *others = [text[text.index("<|im_start|>") :] for text in drawn]
    assert others == [own, own]


def test_an_export_takes_the_place_of_the_same_export_alone(builds, tmp_path):
    """A build stays, whatever is said; so does an export for another trainer or task, and a
    version, by its link and by its own path."""
    build, out = tmp_path / "b", tmp_path / "out"
    current = tmp_path / "r" / "current"
    version = current.with_name(read_manifest(builds["sft"])["build_id"])
    for copy in (build, version):
        shutil.copytree(builds["sft"], copy)
    current.symlink_to(version.name)
    for _ in range(2):  # the second time over itself
        export_build("trl", build, out)
    there = [support.files_of(one) for one in (out, build, version)]
    for name, source, target, says in (
        ("trl", builds["prm"], build, "is a build, and no export takes the place of one"),
        ("axolotl", build, build, "is the build itself"),
        ("axolotl", build, build / "axolotl", "is inside a build"),
        ("trl", build, build / "train" / "new", "is inside a build"),
        ("axolotl", build, out, "is an export of sft for trl"),
        ("trl", builds["prm"], out, "is an export of sft for trl"),
        ("trl", build, version, "is a version of a build"),
        ("trl", build, current, "is a version of a build"),
        ("trl", version, version, "is the build itself"),
        ("trl", current, version, "is the build itself"),
    ):
        raised(UsageError, export_build, name, source, target, says=says)
    assert [support.files_of(one) for one in (out, build, version)] == there
    shard = next((build / "train").glob("*.arrow"))
    shard.unlink()
    shard.write_bytes(b"changed!")
    with pytest.raises(DataError, match="has changed since the build"):
        export_build("trl", build, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_megatron_refuses_a_token_trained_after_eos():
    """Its mask is at the token that predicts the trained one. Its collator leaves the loss behind
    an eos token out, so the row is named instead of half trained."""

    def stored(eos: int) -> pa.Table:
        lists = {
            "input_ids": [[1, eos, 3, 2, 2]],
            "labels": [[-100, eos, 3, -100, 2]],
            "seq_lengths": [[3, 2]],
        }
        table = {name: pa.array(one, columns.IDS) for name, one in lists.items()}
        projection = exports.load("megatron").projection(facts("sft", "packed"))
        return projection.forward(pa.table({"row_ids": [["a", "b"]], **table}))

    assert stored(eos=8).column("loss_mask").to_pylist() == [[1, 1, 0, 1, 0]]
    raised(UsageError, stored, eos=9, says="after an eos token, and row 0")


def test_a_step_of_a_small_build_is_made_of_whole_micro_batches():
    """No more rows than there are, more than half of them, and shared by any 2^n GPUs they fill."""
    sizes = r"--micro_train_batch_size (\d+)(?: --train_batch_size (\d+))? "
    launch = exports.load("openrlhf").launch
    for layout, count in itertools.product(("packed", "ragged"), (1, 2, 3, 5, 100, 127)):
        ((size, total),) = set(re.findall(sizes, launch(facts("sft", layout, rows=count))))
        assert count / 2 < int(total) <= count
        for gpus in (1, 2, 4, 8):
            filled = int(size) * gpus <= int(total)
            assert not filled or int(total) % (int(size) * gpus) == 0, (layout, count, gpus)
        big = re.findall(sizes, launch(facts("sft", layout, rows=128)))
        assert set(big) == {("1" if layout == "packed" else "4", "")}


TEMPLATES = ROOT / "pipeline" / "exports" / "scripts"
TOKENS = ("<|im_end|>", "a 'b\" \\n ${BUILD} {{ ки }}")  # an ordinary one, and one to be quoted
MODELS = [
    model_record(pad_token=x, eos_token=x, step_token=x, good_token=x, bad_token=x) for x in TOKENS
]
# Not asked of programs that are written: they print, and a value may make a line longer.
ASKED_OF_SOURCES_ONLY = "E501,I001,SIM401,T201"


def facts_of(name: str) -> Iterator[ExportFacts]:
    """Builds that differ in all that a template of this trainer may ask for."""
    differ = {
        "splits": (("train",), ("train", "test")),
        "rows": (3, 40, 128),
        "columns": ((), ("margin",)),
        "without_margin": (0, 2),
    }
    for taken, model, *values in itertools.product(TAKEN, MODELS, *differ.values()):
        if taken[0] == name:
            yield ExportFacts(*taken[1:], 512, model, **dict(zip(differ, values, strict=True)))


def written(name: str, folder: Path) -> list[Path]:
    """Every different text that a trainer's templates become, in files."""
    export = exports.load(name)
    texts = {
        one
        for facts in facts_of(name)
        for one in {f"{name}.sh": export.launch(facts), **export.files(facts)}.items()
    }
    found = []
    for number, (file, text) in enumerate(sorted(texts)):
        path = folder / str(number) / file
        path.parent.mkdir()
        path.write_text(text, "utf-8")
        found.append(path)
    return found


@pytest.mark.parametrize("name", exports.names())
def test_what_is_written_is_well_formed(name, tmp_path):
    """As a program, a script or a configuration, whatever the build and the tokens are."""
    paths = written(name, tmp_path)
    shells = [path for path in paths if path.suffix == ".sh"]
    for path in paths:
        text = path.read_text("utf-8")
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        # No clock, host or absolute path.
        assert not re.search(r"(^|[\s\"'=])/[a-z]", text.replace("#!/bin/sh", "")), path
        match path.suffix:
            case ".sh":
                started("bash", "-n", path).ended()
                assert 'BUILD=$(cd "$(dirname "$0")/.." && pwd)' in text
            case ".py":
                compile(text, path, "exec")
                # Its own folder comes first on the path: it must not be what it imports.
                assert not re.search(rf"import {path.stem}|from {path.stem}[ .]", text)
            case ".yaml":
                assert isinstance(yaml.safe_load(text), dict)
            case ".toml":
                tomllib.loads(text)
            case ".json":
                json.loads(text)
            case other:
                pytest.fail(f"{path.name}: no linter for {other}")
    if shutil.which("shellcheck"):
        # a loop over the splits may have one
        started("shellcheck", "-S", "warning", "-e", "SC2043", *shells).ended()
    ruff = Path(sys.executable).with_name("ruff")
    rules = ("--config", ROOT / "pyproject.toml", "--extend-ignore", ASKED_OF_SOURCES_ONLY)
    started(ruff, "check", "--no-cache", *rules, tmp_path).ended()


def test_every_template_is_some_trainers(tmp_path):
    """So that all of them are linted; those that others extend or include begin with ``_``."""
    names = {"forward.sh"}
    for name in exports.names():
        (tmp_path / name).mkdir()
        names |= {path.name for path in written(name, tmp_path / name)}
    here = {path.name for path in TEMPLATES.iterdir() if not path.name.startswith("_")}
    assert here == {f"{name}.jinja" for name in names}


def test_tokens_are_quoted_for_the_language():
    """Whatever characters they have."""
    for token, model in zip(TOKENS, MODELS, strict=True):
        for name in ("axolotl", "open-r1"):
            known = ExportFacts("sft", "ragged", 512, model)
            config = yaml.safe_load(exports.load(name).files(known)[f"{name}.yaml"])
            assert config.get("special_tokens", config)["eos_token"] == token
        for name in ("openrlhf", "openrlhf-text"):
            text = exports.load(name).launch(ExportFacts("prm", "ragged", 512, model))
            assert shlex.split(text, comments=True).count(token) == 3


def test_an_export_that_fails_says_nothing_of_the_build_before_it(tmp_path, cache_dir):
    """In one process: what stands is what the export itself has published."""
    asked: dict[str, Any] = {"model": "qwen2-1.5b", "cache_dir": cache_dir}
    pp.run("prm", data=(SAMPLES / "prm" / "math_shepherd.jsonl"), output=tmp_path / "out", **asked)
    assert failed.now() is not None
    with pytest.raises(pp.UsageError, match="is the build itself"):
        export_build("openrlhf", tmp_path / "out", tmp_path / "out")
    assert failed.now() is None


def test_the_program_for_steps_is_the_example():
    """Character by character, whatever the build."""
    (text,) = exports.load("transformers").files(facts("prm", "padded")).values()
    assert text == (ROOT / "examples" / "train_prm.py").read_text("utf-8")
