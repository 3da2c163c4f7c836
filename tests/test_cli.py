"""What a user does wrong is answered with one sentence, a way on, and the right exit status."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Ran, few, run_python, write_rows
from test_messages import object_of

import posttrain_pipeline as pp
from pipeline import tasks
from pipeline.messages.corrected import commands, reads_stdin
from pipeline.options.config import PHASE_OF

Run = Callable[..., Ran]
GOOD = SAMPLES / "sft" / "word_problems.jsonl"


@pytest.fixture
def odd_files(tmp_path: Path) -> Path:
    """Inputs that hold no usable data, each in its own way, and one that does."""
    shutil.copy(GOOD, tmp_path / "good.jsonl")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "blank.jsonl").write_text("\n\n")
    (tmp_path / "cut.jsonl").write_text('{"question": "a')
    (tmp_path / "none.json").write_text("[]")
    (tmp_path / "array.jsonl").write_text('[{"question": "a", "answer": "b"')
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "unpaired.jsonl").write_text('{"prompt": "a", "completion": "b", "label": true}\n')
    (tmp_path / "odd.jsonl").write_text('{"foo": 1}\n')
    write_rows(tmp_path / "bad.jsonl", [{"question": "x", "answer": a} for a in [""] * 30 + ["y"]])
    (tmp_path / "data.txt").write_text("a,b\n")
    (tmp_path / "data.xlsx").write_bytes(b"PK")
    (tmp_path / "data.csv").write_text("a;b\n1;2\n")
    (tmp_path / "suite.py").write_text("raise ValueError('no suite')")
    (tmp_path / "folder").mkdir()
    return tmp_path


SFT = "run sft good.jsonl --model qwen2-1.5b"
MODEL = "--model qwen2-1.5b"
REFUSED = [
    (f"run sft nope.jsonl {MODEL}", 2, "There is no file or folder nope.jsonl"),
    (f"run sft no*.jsonl {MODEL}", 2, "Nothing matches"),
    (f"run sft folder {MODEL}", 2, "has no data files"),
    (f"run sft data.txt {MODEL}", 2, "no reader for this suffix"),
    (f"run sft data.xlsx {MODEL}", 2, "is a spreadsheet"),
    (f"run sft data.csv {MODEL}", 3, "--delimiter ';'"),
    (f"{SFT} --delimiter ;", 2, "no input is a table of texts"),
    (f"run sft data.csv {MODEL} --delimiter ab", 2, "cannot separate cells"),
    (f"run sft data.csv {MODEL} --cells a=number", 2, "cells are json or text"),
    (f"{SFT} --format foo", 2, "no format named 'foo'"),
    (f"{SFT} --format preference", 2, "gives preference pairs"),
    (f"{SFT} --bogus", 2, "No such option"),
    (f"{SFT} --map x", 2, "is not NAME=COLUMN"),
    (f"{SFT} --too-long trim-steps", 2, "is not for sft"),
    (f"{SFT} --date today", 2, "is not a date"),
    (f"run rm good.jsonl {MODEL} --layout packed", 2, "rm does not support layout packed"),
    (f"run sft empty.jsonl {MODEL}", 3, "is empty"),
    (f"run sft blank.jsonl {MODEL}", 3, "is empty"),
    (f"run sft none.json {MODEL}", 3, "is empty"),
    (f"run sft cut.jsonl {MODEL}", 3, "line 1"),
    (f"run sft array.jsonl {MODEL}", 3, "array.jsonl:1 is not JSON"),
    (f"run sft binary.jsonl {MODEL}", 3, "is binary"),
    (f"run sft odd.jsonl {MODEL}", 3, "no format of conversations fits"),
    (f"run rm unpaired.jsonl {MODEL}", 3, "unpaired"),
    (f"run sft bad.jsonl {MODEL}", 3, "30 of 31 rows"),
    (f"{SFT} --expectations suite.py", 4, "suite"),
    ("run sft good.jsonl", 2, "'--model'"),
    ("run sft good.jsonl --model qwen99", 2, "qwen99"),
    ("build no.toml", 2, "no.toml"),
    (f"plan nope.jsonl {MODEL}", 2, "nope.jsonl"),
    ("check nothing", 2, "nothing"),
    ("doctor --model qwen99", 2, "qwen99"),
    ("export trl nothing -o x", 2, "nothing"),
    ("biuld x", 2, "Did you mean 'build'?"),
    ("run kto x", 2, "kto"),
    ("run stf x", 2, "Did you mean 'sft'?"),
    ("run sft x --layuot y", 2, "Did you mean '--layout'?"),
    ("run sft x --layout pakced", 2, "Did you mean 'packed'?"),
    ("run sft good.jsonl --model qwen2-15b", 2, "qwen2-1.5b"),
    (f"{SFT} --format sharegtp", 2, "sharegpt"),
    (f"{SFT} --for axolotle", 2, "axolotl"),
    (f"{SFT} --map answer=anwser", 2, "Did you mean --map answer=answer?"),
    (f"{SFT} --ignore anwser", 2, "--ignore answer?"),
]


@pytest.mark.parametrize(("line", "status", "says"), REFUSED)
def test_one_sentence_a_way_on_and_an_exit_status(
    pipeline: Run, odd_files: Path, line: str, status: int, says: str
) -> None:
    """The sentence names what is wrong, and the nearest to a misspelt name. Programs get one object
    that says the same, also where the arguments themselves are wrong."""
    ran = pipeline(*line.split(), "--json").ended(status)
    assert says in ran.err
    assert "Traceback" not in ran.err
    found = object_of(ran)
    assert (found["status"], found["manifest"]) == ("refused" if status == 3 else "failed", None)
    assert found["message"] in " ".join(ran.err.split()) or found["message"] in ran.err
    assert found["remedy"] in ran.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("list modles", "Did you mean 'models'?"),
        ("stage render odd.jsonl -o x", "is not a stage file"),
    ],
)
def test_without_json_stdout_is_empty(pipeline: Run, odd_files: Path, line: str, says: str) -> None:
    """And stderr has the sentence and the way on."""
    ran = pipeline(*line.split()).ended(2)
    assert ran.out == ""
    assert says in ran.err
    assert re.match(r"Error: .*\n(Fix|Try):   \S", ran.err), ran.err


def test_too_many_refused_rows_exit_3(pipeline: Run, tmp_path: Path) -> None:
    """Codes and first ids are printed, and nothing is published; a limit lets the rest through."""
    data = tmp_path / "data.jsonl"
    data.write_bytes(GOOD.read_bytes() * 2 + b'{"question": "a", "answer": " "}\n' * 11)
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", "-o", "out").ended(3)
    assert "11 of 31 rows were refused" in ran.err
    assert "11 empty_answer (35.5%): data.jsonl:21, data.jsonl:22" in ran.err
    assert not (tmp_path / "out").exists()
    limit = ("--max-reject", "0.5")
    pipeline("run", "sft", data, "--model", "qwen2-1.5b", "-o", "out", *limit).ended()


def test_stdout_is_the_manifest_alone(pipeline: Run, tmp_path: Path) -> None:
    """A path, or with --json the manifest; everything else goes to stderr."""
    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5b")
    assert ran.out == "word_problems-sft-qwen2-1.5b/manifest.json\n"
    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5b", "--json", "--quiet")
    assert json.loads(ran.out)["task"] == "sft"
    assert ran.err == ""


def test_a_dry_run_writes_nothing(pipeline: Run, tmp_path: Path) -> None:
    """--dry-run says model, format and stages."""
    ran = pipeline("run", "sft", GOOD, "--model", "qwen2-1.5b", "--dry-run").ended()
    assert "query_response (question and answer in 10 of 10 sampled rows)" in ran.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind", ["models", "formats", "containers", "tasks", "stages", "expectations"]
)
def test_lists(pipeline: Run, kind: str) -> None:
    """Every list has entries with a text."""
    ran = pipeline("list", kind).ended()
    assert all(len(line.split(None, 1)) == 2 for line in ran.out.splitlines())


def test_the_package_is_the_command() -> None:
    """``python -m pipeline`` for those who have no scripts on their path."""
    command = [sys.executable, "-m", "pipeline", "list", "tasks"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["prm", "rm", "sft"]


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("task = ", "is not TOML"),
        ('task = "sft"', "has no data, model"),
        ('task = "sft"\ndata = "x"\nmodel = "m"\npad_to = 8\npad-to = 16', "pad-to is given twice"),
    ],
)
def test_a_bad_recipe_exits_2(pipeline: Run, tmp_path: Path, text: str, says: str) -> None:
    """The recipe is named, and what is wrong with it."""
    (tmp_path / "bad.toml").write_text(text)
    ran = pipeline("build", "bad.toml").ended(2)
    assert says in ran.err


@pytest.mark.slow
def test_the_cache_can_be_pruned(pipeline: Run, tmp_path: Path) -> None:
    """Parts go; the tokenizer stays; a build afterwards is the same."""
    command = ("run", "sft", GOOD, "--model", "qwen2-1.5b", "--cache-dir", "cache", "-o")
    pipeline(*command, "one").ended()
    assert "parts            4 files" in pipeline("cache", "info", "--cache-dir", "cache").out
    pipeline("cache", "prune", "--days", "0", "--cache-dir", "cache").ended()
    assert "parts            0 files" in pipeline("cache", "info", "--cache-dir", "cache").out
    pipeline(*command, "two").ended()
    one, two = (tmp_path / name / "manifest.json" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


# A command that stops for a question prints itself, corrected, once for each answer; each runs.

_TURN = "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
_LONG = "many words that only this column has, " * 9


def _rows(count: int, **row: Any) -> list[dict[str, Any]]:
    """So many rows; ``{n}`` in a text is the number of the row, a list has a value for each."""

    def value(of: Any, n: int) -> Any:
        if isinstance(of, tuple):
            return of[n % len(of)]
        return of.replace("{n}", str(n)) if isinstance(of, str) else of

    return [{name: value(of, n) for name, of in row.items()} for n in range(count)]


_QA = {"question": "What is {n}?", "answer": "It is {n}."}
_PAIR = {"prompt": "What is {n}?", "response_1": "It is {n}.", "response_2": "Who knows {n}."}
# What stops: the task, the rows, and options of the ways on.
CASES: dict[str, tuple[str, list[dict[str, Any]], list[str]]] = {
    "rated": (
        "sft",
        _rows(12, **_QA, label=(True, False)),
        ["--where label=true", "--ignore label"],
    ),
    "other names": (
        "sft",
        _rows(12, left="What is {n}?", right="It is {n}."),
        [
            "--map prompt=left --map completion=right",
            "--map prompt=right --map completion=left",
        ],
    ),
    "names with spaces": (
        "sft",
        _rows(12, **{"the user": "What is {n}?", "it's": "It is {n}."}),
        [
            "--map 'prompt=the user' --map 'completion=it'\"'\"'s'",
            "--map 'prompt=it'\"'\"'s' --map 'completion=the user'",
        ],
    ),
    "other spelling": (
        "sft",
        _rows(12, Question="What is {n}?", Answer="It is {n}."),
        ["--map question=Question --map answer=Answer"],
    ),
    "templated": (
        "sft",
        _rows(12, prompt=_TURN.replace("How", "{n} how"), completion="It is {n}."),
        ["--already-templated"],
    ),
    "a column that nothing reads": (
        "sft",
        _rows(12, **_QA, passage=_LONG),
        ["--ignore passage"],
    ),
    "direction of a number": (
        "rm",
        _rows(12, **_PAIR, overall_preference=(1, 2, 3)),
        ["--format strength_pair/"],
    ),
    "another task": ("sft", _rows(12, prompt="{n}?", chosen="It is {n}.", rejected="No {n}."), []),
}


def _given(text: str) -> list[str]:
    """The commands that an error shows."""
    return re.findall(r"^(?:Run|Or):\n  (pipeline .*)$", text, re.M)


@pytest.mark.parametrize("name", few(CASES, 2))
def test_each_corrected_command_builds(name: str, pipeline: Run, tmp_path: Path) -> None:
    """Pasted as they stand, all of them; and the error names them to programs too."""
    task, rows, ways = CASES[name]
    write_rows(tmp_path / "my rows.jsonl", rows)
    stopped = ("run", task, "my rows.jsonl", "--model", "qwen2-1.5b", "--seed=7")
    ran = pipeline(*stopped, "--json").ended(3)
    shown = _given(ran.err)
    assert json.loads(ran.out)["commands"] == shown
    assert shown, ran.err
    for way in ways:
        assert any(way in one for one in shown), (way, shown)
    for number, one in enumerate(shown):
        words = shlex.split(one)
        assert words[0] == "pipeline"
        assert "my rows.jsonl" in words
        ran = pipeline(*words[1:], "-o", f"out{number}", "--quiet")
        assert ran.status == 0, (one, ran.err)


def test_a_wrong_task_is_told_with_the_right_one(pipeline: Run, tmp_path: Path) -> None:
    """Which the rows look like; options that this task does not read are left out."""
    data = SAMPLES / "rm" / "pairs.jsonl"
    more = ("--train-on", "last", "--max-reject", "0.5", "-o", "out")
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", *more).ended(3)
    assert "They read as rm data (chosen and rejected in 12 of 12 sampled rows)" in ran.err
    (command,) = _given(ran.err)
    assert command == f"pipeline run rm {data} --model qwen2-1.5b --max-reject 0.5 -o out"
    pipeline(*shlex.split(command)[1:]).ended()
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", "--format", "preference").ended(2)
    assert _given(ran.err) == [f"pipeline run rm {data} --model qwen2-1.5b --format preference"]


def test_an_empty_file_among_others(pipeline: Run, tmp_path: Path) -> None:
    """The option that goes on without it."""
    (tmp_path / "no.jsonl").touch()
    data = SAMPLES / "sft" / "word_problems.jsonl"
    ran = pipeline("run", "sft", data, "no.jsonl", "--model", "qwen2-1.5b").ended(3)
    (command,) = _given(ran.err)
    assert command.endswith("no.jsonl --model qwen2-1.5b --empty warn")
    pipeline(*shlex.split(command)[1:]).ended()


@pytest.mark.parametrize(
    ("arguments", "remedy", "wanted"),
    [
        ("run sft d.jsonl", "Say --where a=1, or --ignore a.", ["--where a=1", "--ignore a"]),
        ("run sft d.jsonl", "Read it under another name with --map, or add --ignore a.b.",
         ["--ignore a.b"]),
        ("run sft d.jsonl", "Name it with --map or another with --format (openai, text).", []),
        ("run sft d.jsonl", "Fix the rows, or allow them with --max-reject 0.4.", []),
        ("run sft d.jsonl", "Write a profile: --model ./profile.toml.", []),
        ("run sft d.jsonl --map a=x", "Use --map a=y --map b=z.", ["--map a=y --map b=z"]),
        ("run sft d.jsonl --format text", "Say --format openai.", ["--format openai"]),
        ("run sft d.jsonl --format=text", "Say --format openai.", ["--format openai"]),
        ("plan d.jsonl", "Say which with --task rm or --task sft.", ["--task rm", "--task sft"]),
        ("plan d.jsonl --task prm", "Use the task: pipeline run rm.", ["--task rm"]),
        ("check d", "Say --ignore a.", []),
        ("build r.toml", "Say --ignore a or --format text.", ["--format text"]),
        ("run sft -", "Say --format text.", ["--format text"]),
    ],
)  # fmt: skip
def test_ways_are_read_from_a_remedy(arguments: str, remedy: str, wanted: list[str]) -> None:
    """Options that are complete; a sentence that only speaks of an option offers nothing."""
    assert reads_stdin(f"pipeline {arguments} -o -") == arguments.endswith(" -")
    base = re.sub(r" --(map|format|task)[ =]\S+", "", arguments)
    assert commands(arguments.split(), remedy) == [f"pipeline {base} {way}" for way in wanted]


@pytest.mark.slow
def test_rows_that_were_piped_in_are_to_be_piped_in_again(pipeline: Run, tmp_path: Path) -> None:
    """The message names standard input, and says what each command needs; it then builds."""
    rows = _rows(12, prompt="{n}?", chosen="Yes {n}.", rejected="No.")
    write_rows(tmp_path / "rows", rows)

    def piped(command: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("pipeline")
        shell = f"{program} {command.removeprefix('pipeline ')} < rows"
        return subprocess.run(shell, shell=True, cwd=tmp_path, capture_output=True, text=True)

    ran = piped("run sft - --model qwen2-1.5b -o out --cache-dir cache")
    assert ran.returncode == 3
    assert ran.stderr.startswith("Error: stdin: no format of conversations fits")
    (command,) = re.findall(r"^Run, with the same rows piped in:\n  (.*)$", ran.stderr, re.M)
    assert command == "pipeline run rm - --model qwen2-1.5b -o out --cache-dir cache"
    assert piped(command).returncode == 0


def test_options_stand_before_a_double_dash() -> None:
    """What follows it is data."""
    found = commands(["run", "sft", "--", "--odd.jsonl"], "Add --already-templated.")
    assert found == ["pipeline run sft --already-templated -- --odd.jsonl"]


@pytest.mark.slow
def test_errors_are_wrapped_at_words_on_a_terminal(pipeline: Run) -> None:
    """COLUMNS says how wide it is; without one, a sentence is one line."""
    words = ("run", "sft", SAMPLES / "rm" / "pairs.jsonl", "--model", "qwen2-1.5b")
    plain = pipeline(*words)
    assert plain.err.startswith("Error: ")
    for columns in (60, 80):
        ran = pipeline(*words, COLUMNS=str(columns))
        long = [one for one in ran.err.splitlines() if len(one) > columns]
        assert all(str(SAMPLES) in one for one in long), long
        assert ran.err.replace(" \\\n", " ").split() == plain.err.split()
