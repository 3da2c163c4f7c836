"""What a user does wrong is answered with one sentence, a way on, and the right exit status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import SAMPLES, Ran, run_python

import posttrain_pipeline as pp
from pipeline import tasks
from pipeline.options.config import PHASE_OF

Run = Callable[..., Ran]
GOOD = SAMPLES / "sft" / "word_problems.jsonl"


@pytest.fixture
def odd_files(tmp_path: Path) -> Path:
    """Inputs that hold no usable data, each in its own way."""
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "blank.jsonl").write_text("\n\n")
    (tmp_path / "cut.jsonl").write_text('{"question": "a')
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "array.jsonl").write_text('[{"question": "a", "answer": "b"')
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "unpaired.jsonl").write_text('{"prompt": "a", "completion": "b", "label": true}\n')
    (tmp_path / "odd.jsonl").write_text('{"foo": 1}\n')
    (tmp_path / "data.txt").write_text("a,b\n")
    (tmp_path / "data.xlsx").write_bytes(b"PK")
    (tmp_path / "data.csv").write_text("a;b\n1;2\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("run", "sft", "nope.jsonl"), 2, "There is no file or folder nope.jsonl"),
        (("run", "sft", "no*.jsonl"), 2, "Nothing matches"),
        (("run", "sft", "folder"), 2, "has no data files"),
        (("run", "sft", "data.txt"), 2, "no reader for this suffix"),
        (("run", "sft", "data.xlsx"), 2, "is a spreadsheet"),
        (("run", "sft", "data.csv"), 3, "--delimiter ';'"),
        (("run", "sft", GOOD, "--delimiter", ";"), 2, "no input is a table of texts"),
        (("run", "sft", "data.csv", "--delimiter", "ab"), 2, "cannot separate cells"),
        (("run", "sft", "data.csv", "--cells", "a=number"), 2, "cells are json or text"),
        (("run", "sft", GOOD, "--format", "foo"), 2, "no format named 'foo'"),
        (("run", "sft", GOOD, "--format", "preference"), 2, "gives preference pairs"),
        (("run", "sft", GOOD, "--bogus"), 2, "No such option"),
        (("run", "sft", GOOD, "--map", "x"), 2, "is not NAME=COLUMN"),
        (("run", "sft", GOOD, "--too-long", "trim-steps"), 2, "is not for sft"),
        (("run", "sft", GOOD, "--date", "today"), 2, "is not a date"),
        (("run", "rm", GOOD, "--layout", "packed"), 2, "rm does not support layout packed"),
        (("run", "sft", "empty.jsonl"), 3, "is empty"),
        (("run", "sft", "blank.jsonl"), 3, "is empty"),
        (("run", "sft", "none.json"), 3, "is empty"),
        (("run", "sft", "cut.jsonl"), 3, "line 1"),
        (("run", "sft", "array.jsonl"), 3, "array.jsonl:1 is not JSON"),
        (("run", "sft", "binary.jsonl"), 3, "is binary"),
        (("run", "sft", "odd.jsonl"), 3, "no format of conversations fits"),
        (("run", "rm", "unpaired.jsonl"), 3, "unpaired"),
        (("stage", "render", "odd.jsonl", "-o", "x"), 2, "is not a stage file"),
    ],
)
def test_one_sentence_and_an_exit_status(
    pipeline: Run, odd_files: Path, arguments: tuple[object, ...], status: int, says: str
) -> None:
    """No traceback; the sentence names what is wrong."""
    model = () if arguments[0] == "stage" else ("--model", "qwen2-1.5b")
    ran = pipeline(*arguments, *model)
    assert ran.status == status, ran.err
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_an_unknown_model_exits_2(pipeline: Run) -> None:
    """The nearest names are given."""
    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5")
    assert ran.status == 2
    assert "qwen2-1.5b" in ran.err


def test_too_many_refused_rows_exit_3(pipeline: Run, tmp_path: Path) -> None:
    """Codes and first ids are printed, and nothing is published; a limit lets the rest through."""
    data = tmp_path / "data.jsonl"
    data.write_bytes(GOOD.read_bytes() * 2 + b'{"question": "a", "answer": " "}\n' * 11)
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", "-o", "out")
    assert ran.status == 3
    assert "11 of 31 rows were refused" in ran.err
    assert "11 empty_answer (35.5%): data.jsonl:21, data.jsonl:22" in ran.err
    assert not (tmp_path / "out").exists()
    limit = ("--max-reject", "0.5")
    assert pipeline("run", "sft", data, "--model", "qwen2-1.5b", "-o", "out", *limit).status == 0


def test_no_reject_is_allowed_at_zero(pipeline: Run, tmp_path: Path) -> None:
    """--max-reject 0 refuses any."""
    data = SAMPLES / "rm" / "pairs.jsonl"
    ran = pipeline("run", "rm", data, "--model", "qwen2-1.5b", "--max-reject", "0")
    assert ran.status == 3
    assert "identical_pair" in ran.err


def test_stdout_is_the_manifest_alone(pipeline: Run, tmp_path: Path) -> None:
    """A path, or with --json the manifest; everything else goes to stderr."""
    import json

    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5b")
    assert ran.out == "word_problems-sft-qwen2-1.5b/manifest.json\n"
    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5b", "--json", "--quiet")
    assert json.loads(ran.out)["task"] == "sft"
    assert ran.err == ""


def test_a_dry_run_writes_nothing(pipeline: Run, tmp_path: Path) -> None:
    """--dry-run says model, format and stages."""
    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5b", "--dry-run")
    assert ran.status == 0
    assert "query_response (question and answer in 10 of 10 sampled rows)" in ran.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind", ["models", "formats", "containers", "tasks", "stages", "expectations"]
)
def test_lists(pipeline: Run, kind: str) -> None:
    """Every list has entries with a text."""
    ran = pipeline("list", kind)
    assert ran.status == 0, ran.err
    assert all(len(line.split(None, 1)) == 2 for line in ran.out.splitlines())


def test_the_package_is_the_command() -> None:
    """``python -m pipeline`` for those who have no scripts on their path."""
    command = [sys.executable, "-m", "pipeline", "list", "tasks"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["prm", "rm", "sft"]


def test_help_imports_nothing_heavy() -> None:
    """--help comes in a blink because nothing is imported for it."""
    import subprocess

    heavy = ("pyarrow", "polars", "tokenizers", "numpy", "transformers", "datasets", "jinja2")
    code = (
        "import sys; sys.argv = ['pipeline', '--help']\n"
        "from pipeline.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


_COMMAND = (
    "import sys; sys.argv = ['pipeline', '--version']; "
    "from posttrain_pipeline.command import main; main()"
)
_LAUNCHER = (
    "import sys; sys.argv = ['pipeline-openrlhf']; "
    "from posttrain_pipeline.command import openrlhf; openrlhf()"
)
_IMPORT = "import posttrain_pipeline as pp; pp.run('sft', model='qwen2-1.5b', data='x.jsonl')"
_STARTS = {"pipeline": _COMMAND, "pipeline-openrlhf": _LAUNCHER, "import": _IMPORT}


@pytest.mark.parametrize("start", _STARTS)
@pytest.mark.parametrize("name", ["stages", "pipeline", "expectations"])
@pytest.mark.parametrize("kind", ["package", "module"])
def test_a_shadowing_folder_is_named(tmp_path: Path, start: str, name: str, kind: str) -> None:
    """A folder or file named like one of our packages, in front of ours, is named by every start.

    The commands say so in one sentence with the way out; an import raises it.
    """
    shadow = tmp_path / name / "__init__.py" if kind == "package" else tmp_path / f"{name}.py"
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text("raise SystemExit('it was imported')\n")
    done = run_python(_STARTS[start], tmp_path, PYTHONPATH=str(tmp_path))
    where = shadow.parent if kind == "package" else shadow
    sentence = f"Python finds package {name!r} in {where}, before posttrain-pipeline's."
    if start != "import":
        assert done.returncode == 2
        assert done.stderr.startswith(f"Error: {sentence}\n")
        assert "Traceback" not in done.stderr
    else:
        assert f"ShadowedError: {sentence} Rename that folder" in done.stderr


def test_a_folder_without_python_code_shadows_nothing(tmp_path: Path) -> None:
    """Folders of data with our packages' names stand in nobody's way."""
    for name in ("stages", "pipeline", "expectations"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text("{}\n")
    done = run_python(_COMMAND, tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr


# Every task with one option that it does not read; the others are slow.
FOREIGN = [
    pytest.param(task, option, marks=[pytest.mark.slow] if number else [])
    for task in tasks.names()
    for number, option in enumerate(
        sorted(
            {name for other in tasks.names() for name in tasks.load(other).options}
            - {*tasks.load(task).options}
        )
    )
]
VALUES = {"neutral": "bad", "prm_template": "raw", "thinking": "on", "train_on": "last"} | {
    "reasoning": "strip",
    "reasoning_in": "think",
    "stop_text": "strip",
}


@pytest.mark.parametrize(("task", "option"), FOREIGN)
def test_an_option_that_a_task_does_not_read_is_refused(
    pipeline: Run, tmp_path: Path, task: str, option: str
) -> None:
    """By its command, whose help does not list it, by plan, by recipes and from Python."""
    data, value = SAMPLES / "sft" / "chat.jsonl", VALUES.get(option, "ZZ")
    flag = f"--{option.replace('_', '-')}"
    says = f"{flag} is an option of "
    assert flag not in pipeline("run", task, "--help").out
    asked = ("--model", "qwen2-1.5b", flag, value)
    (tmp_path / "r.toml").write_text(
        f'task = "{task}"\ndata = "{data}"\nmodel = "qwen2-1.5b"\n{option} = "{value}"\n'
    )
    for words in (("run", task, data, *asked), ("plan", data, "--task", task, *asked)):
        ran = pipeline(*words)
        assert (ran.status, says in ran.err) == (2, True), ran.err
    ran = pipeline("build", "r.toml")
    assert (ran.status, says in ran.err) == (2, True), ran.err
    with pytest.raises(pp.UsageError, match=f"{says}.*, not of {task}"):
        pp.plan(task, model="qwen2-1.5b", data=data, **{option: value})


def test_tasks_own_options_that_exist() -> None:
    """A misspelt one would be an option of all tasks."""
    assert all(set(tasks.load(name).options) <= set(PHASE_OF) for name in tasks.names())


def test_a_recipe_is_the_command_in_a_file(pipeline: Run, tmp_path: Path) -> None:
    """A TOML recipe gives the manifest of the same options on the command line."""
    source = SAMPLES / "sft" / "word_problems.jsonl"
    recipe = tmp_path / "daily.toml"
    recipe.write_text(
        f'task = "sft"\ndata = ["{source}"]\nmodel = "qwen2-1.5b"\noutput = "one"\n'
        'keep = 0\nlayout = "ragged"\nmax-length = 512\ndedup = true\n'
        '[map]\nquestion = "question"\n'
    )
    ran = pipeline("build", recipe)
    assert ran.status == 0, ran.err
    options = ("--layout", "ragged", "--max-length", "512", "--dedup", "--map", "question=question")
    ran = pipeline("run", "sft", source, "--model", "qwen2-1.5b", "-o", "two", *options)
    assert ran.status == 0, ran.err
    one, two = (tmp_path / name / "manifest.json" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("task = ", "is not TOML"),
        ('task = "sft"', "has no data, model"),
        ('task = "kto"\ndata = "x"\nmodel = "m"', "no task 'kto'"),
        ('task = "sft"\ndata = "x"\nmodel = "m"\nspeed = 9', "no option 'speed'"),
        ('task = "sft"\ndata = []\nmodel = "m"', "data must be one path or several"),
        ('task = "sft"\ndata = 3\nmodel = "m"', "data must be one path or several"),
        ('task = "sft"\ndata = "x"\nmodel = "m"\nsystem = true\nshuffle = true', "system must be"),
        ('task = "sft"\ndata = "x"\nmodel = "m"\ndedup = "false"', "dedup must be true or false"),
        ('task = "sft"\ndata = "x"\nmodel = ["m", "n"]', "model must be"),
        ('task = "sft"\ndata = "x"\nmodel = "m"\nsystem = {a = "b"}', "system must be"),
        ('task = "sft"\ndata = "x"\nmodel = "m"\nstop = ["a", true]', "stop must be"),
        ('task = "sft"\ndata = "x"\nmodel = "m"\npad_to = 8\npad-to = 16', "pad-to is given twice"),
    ],
)
def test_a_bad_recipe_exits_2(pipeline: Run, tmp_path: Path, text: str, says: str) -> None:
    """The recipe is named, and what is wrong with it."""
    (tmp_path / "bad.toml").write_text(text)
    ran = pipeline("build", "bad.toml")
    assert ran.status == 2
    assert says in ran.err


@pytest.mark.parametrize(
    "options",
    [
        ("--test-size", "1.5"),
        ("--map", "question=question", "--map", "question=answer"),
        ("--seed", str(2**63)),
    ],
)
def test_an_option_that_would_not_be_followed_exits_2(
    pipeline: Run, options: tuple[str, ...]
) -> None:
    """Nothing is rounded, and of two values none is taken."""
    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5b", "-o", "out", *options)
    assert ran.status == 2
    assert options[0] in ran.err


@pytest.mark.slow
def test_the_cache_can_be_pruned(pipeline: Run, tmp_path: Path) -> None:
    """Parts go; the tokenizer stays; a build afterwards is the same."""
    command = ("run", "sft", GOOD, "--model", "qwen2-1.5b", "--cache-dir", "cache", "-o")
    assert pipeline(*command, "one").status == 0
    assert "parts            4 files" in pipeline("cache", "info", "--cache-dir", "cache").out
    assert pipeline("cache", "prune", "--days", "0", "--cache-dir", "cache").status == 0
    assert "parts            0 files" in pipeline("cache", "info", "--cache-dir", "cache").out
    assert pipeline(*command, "two").status == 0
    one, two = (tmp_path / name / "manifest.json" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
