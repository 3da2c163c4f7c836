"""The files of CONTRIBUTING.md work: each is installed as a package from outside, and used."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import NAME
from datasets import load_from_disk
from support import ROOT, Ran, example_groups, install_examples, read_manifest, table, write_rows

from pipeline.builder.exporting import export_build
from pipeline.builds.build import Build
from pipeline.inputs import declared
from pipeline.publish.check import check
from pipeline.report.drawing import Shards
from stages import catalog, readers

QUIZ = "stem: 2 + 2?\nkey: It is 4.\n\nstem: 3 + 4?\nkey: It is 7.\n\nstem: No key?\nyes\n"
PAIRS = [
    {"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}." + " Yes." * n, "rejected": f"{n}, I think."}
    for n in range(4)
]


def forget() -> None:
    """Look for packages again."""
    for cached in (catalog._foreign, declared.code_version, readers.suffixes):
        cached.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory) -> Iterator[Path]:
    """Every example, as one package; its folder."""
    folder = install_examples(tmp_path_factory.mktemp("elsewhere"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        forget()
        yield folder
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)
    forget()


@pytest.fixture
def quiz(make, tmp_path) -> Path:
    """A build that uses the reader, the format, the family, the probe, the engine, the invariant
    and the audit."""
    data = tmp_path / "quiz.cards"
    data.write_text(QUIZ)
    return make("sft", data, model="acme-1.5b", engine="serial", layout="ragged")


def test_there_is_one_for_each_thing_that_can_be_added():
    """For every entry of the table, and every folder whose files are found by name."""
    groups = example_groups()
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = r"^\| an? .* \| `\w+/(?:\w+/)?(\w+)(?:/<\w+>\.(?:py|toml)|\.py)` \|"
    table = set(re.findall(named, text, re.MULTILINE))
    assert groups == table
    used = re.compile(r"catalog\.(?:load|names)\(\s*__name__")
    folders = {
        path.parent.name if path.stem == "__init__" else path.stem
        for package in ("stages", "expectations", "pipeline")
        for path in (ROOT / package).rglob("*.py")
        if used.search(path.read_text("utf-8"))
    }
    assert folders <= groups


def test_reader_format_and_family(quiz):
    """Cards become conversations in the template of the new family."""
    manifest = read_manifest(quiz)
    assert manifest["format"] == "quiz"
    assert manifest["model"]["name"] == "acme-1.5b"
    assert manifest["rows"]["rejected_by_code"] == {"bad_card": 1}
    rows = load_from_disk(str(quiz))["train"]
    assert sorted(rows["row_id"]) == ["quiz.cards:1", "quiz.cards:2"]
    shards = Shards(Build.open(quiz))
    strips = [shards.strips(shards.row("train", number)) for number in range(2)]
    texts = {"".join(piece.text for piece in strip.pieces) for (strip,) in strips}
    assert any("<|im_start|>assistant\nIt is 4.<|im_end|>" in text for text in texts)


def test_probe_invariant_audit_and_engine(quiz):
    """Each is in what the build says of itself."""
    build = Build.open(quiz)
    assert build.manifest.probes["enough_positions"].detail == "32768 positions"
    assert "no_long_runs" in {law.name for law in build.validation.expectations}
    assert build.manifest.audits["short_examples"].status == "pass"
    assert build.run.engine == "serial"


def test_trainer(quiz, tmp_path, cache_dir):
    """The export has the trainer's columns, and its rows are judged when it is checked."""
    export_build("acme", quiz, tmp_path / "acme")
    assert set(load_from_disk(str(tmp_path / "acme"))["train"].column_names) == {
        "tokens",
        "targets",
    }
    assert not check(tmp_path / "acme", cache_dir).faults
    assert Build.open(quiz).manifest.trainers["acme"].supported


def test_command(quiz, pipeline, installed):
    """It runs like ours."""
    ran = pipeline("sizes", quiz, PYTHONPATH=str(installed))
    assert re.fullmatch(r"train: 2 rows, \d+ tokens\n", ran.out), ran.err


@pytest.mark.parametrize("task", ["dpo", "sorted_rm"])
def test_task_and_layout(make, tmp_path, cache_dir, task):
    """Both build from pairs; the layout stores the longest first."""
    layout = {"dpo": "ragged", "sorted_rm": "longest_first"}[task]
    folder = make(task, write_rows(tmp_path / "pairs.jsonl", PAIRS), layout=layout)
    lengths = [len(ids) for ids in load_from_disk(str(folder))["train"]["chosen_ids"]]
    assert len(lengths) == len(PAIRS)
    assert task == "dpo" or lengths == sorted(lengths, reverse=True)
    assert not check(folder, cache_dir).faults


# The task with its kind and its format works in every command.

ROWS = [
    {"asked": f"{n} + 1?", "good": f"It is {n + 1}.", "bad": f"{n}, I think.", "sure": n / 4}
    for n in range(5)
]


@pytest.mark.slow
def test_it_builds_and_is_judged_checked_shown_and_reported(pipeline, tmp_path):
    """From one file, through entry points, by every command that knows of tasks; those that read
    its build are forks that look for packages once more."""
    folder = install_examples(tmp_path / "elsewhere", "sure_pairs")
    anew = table("scripts.toml")["packages_anew"].replace("FOLDER", str(folder))
    data = tmp_path / "rows.jsonl"
    write_rows(data, [*ROWS, {**ROWS[0], "sure": 7}])

    def run(*words: object) -> Ran:
        return pipeline(*words, PYTHONPATH=str(folder)).ended()

    assert "sure" in run("list", "tasks").out
    assert "how sure the choice was" in run("run", "--help").out
    model = ("--model", NAME, "--max-reject", "0.5")
    assert "sure" in run("plan", data, "--task", "sure", *model).out
    run("run", "sure", data, *model, "-o", "ragged", "--layout", "ragged")
    made = load_from_disk(str(tmp_path / "ragged"))["train"]
    assert made["sure"][:] == [n / 4 for n in range(5)]
    assert {"chosen_ids", "rejected_ids", "prompt_length"} <= set(made.column_names)
    build = Build.open(tmp_path / "ragged")
    assert build.manifest.task == "sure"
    assert build.manifest.rows.rejected_by_code == {"bad_sureness": 1}
    assert "chosen_differs" in {law.name for law in build.validation.expectations}
    assert "expectations hold" in pipeline("check", "ragged", before=anew).ended().out
    shown = pipeline("show", "ragged", "--row", "rows.jsonl:3", before=anew)
    assert "It is 3." in shown.ended().out
    assert "sure" in (tmp_path / "ragged" / "report.html").read_text("utf-8")
    pipeline("export", "trl", "ragged", "-o", "exported", before=anew).ended()
    assert "expectations hold" in pipeline("check", "exported", before=anew).ended().out
    pipeline("run", "rm", data, *model, "-o", "rm", before=anew).ended(3)
