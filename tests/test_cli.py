"""What a user does wrong is answered with one sentence, a way on, and the right exit status."""

import itertools
import os
import pty
import re
import select
import shutil
import sys
import time
from pathlib import Path

import pytest
import support
from datasets import load_from_disk
from support import SAMPLES, few, in_shell, run_python, started, table, writable, write_rows
from test_messages import object_of

import posttrain_pipeline as pp
from pipeline import tasks
from pipeline.options import shells
from pipeline.options.ways import commands, reads_stdin

GOOD = SAMPLES / "sft" / "word_problems.jsonl"


@pytest.fixture
def odd_files(tmp_path) -> Path:
    """Inputs that hold no usable data, each in its own way, and one that does."""
    shutil.copy(GOOD, tmp_path / "good.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 10)
    write_rows(tmp_path / "bad.jsonl", [{"question": "x", "answer": a} for a in [""] * 30 + ["y"]])
    for name, text in TOLD["files"].items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "folder").mkdir()
    return tmp_path


TOLD = table("refusals.toml")
MODEL = ("--model", "qwen2-1.5b")


def _words(line: str) -> list[str]:
    """A command of the table."""
    line = line.replace("GOOD", "run sft good.jsonl MODEL")
    return line.replace("MODEL", " ".join(MODEL)).split()


@pytest.mark.parametrize(("line", "status", "says"), TOLD["commands"])
def test_one_sentence_a_way_on_and_an_exit_status(pipeline, odd_files, line, status, says):
    """The sentence names what is wrong, and the nearest to a misspelt name. Programs get one object
    that says the same, also where the arguments themselves are wrong."""
    ran = pipeline(*_words(line), "--json").ended(status)
    assert says in ran.err
    assert "Traceback" not in ran.err
    found = object_of(ran)
    assert (found["status"], found["manifest"]) == ("refused" if status == 3 else "failed", None)
    assert found["message"] in " ".join(ran.err.split()) or found["message"] in ran.err
    assert found["remedy"] in ran.err
    assert found.get("commands", []) == support.printed(ran.err)


def test_lists(pipeline):
    """Every list has entries with a text; where nobody looks, each is one line."""
    for kind in ("models", "formats", "containers", "tasks", "stages", "expectations"):
        lines = pipeline("list", kind).ended().out.splitlines()
        assert lines
        assert all(len(line.split(None, 1)) == 2 for line in lines), kind


def test_the_package_is_the_command():
    """``python -m pipeline`` for those who have no scripts on their path."""
    done = started(sys.executable, "-m", "pipeline", "list", "tasks").ended()
    assert [line.split()[0] for line in done.out.splitlines()] == ["prm", "rm", "sft"]


_STARTS = {
    name: f"import sys; sys.argv = [{name!r}, '--json']\n"
    f"from posttrain_pipeline.command import {start}; {start}()"
    for name, start in (("pipeline", "main"), ("pipeline-openrlhf", "openrlhf"))
}
_STARTS["import"] = (
    "import posttrain_pipeline as pp; pp.run('sft', model='qwen2-1.5b', data='x.jsonl')"
)


@pytest.mark.parametrize(("start", "name", "kind"), table("refusals.toml")["shadows"])
def test_a_shadowing_folder_is_named(tmp_path, start, name, kind):
    """A folder or file named like one of our packages, in front of ours, is named by every start.

    The commands say so in one sentence with the way out, and as an object; an import raises it.
    """
    shadow = tmp_path / name / "__init__.py" if kind == "package" else tmp_path / f"{name}.py"
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text("raise SystemExit('it was imported')\n")
    done = run_python(_STARTS[start], tmp_path, PYTHONPATH=str(tmp_path))
    where = shadow.parent if kind == "package" else shadow
    sentence = f"Python finds package {name!r} in {where}, before posttrain-pipeline's."
    if start == "import":
        assert f"ShadowedError: {sentence} Rename that folder" in done.err
        return
    assert done.err.startswith(f"Error: {sentence}\n")
    assert "Traceback" not in done.err
    found = object_of(done)
    assert (found["status"], found["code"], found["message"]) == ("failed", 2, sentence)


def test_a_folder_without_python_code_shadows_nothing(tmp_path):
    """Folders of data with our packages' names stand in nobody's way."""
    for name in ("stages", "pipeline", "expectations"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text("{}\n")
    code = _STARTS["pipeline"].replace("--json", "--version")
    run_python(code, tmp_path, PYTHONPATH=str(tmp_path)).ended()


VALUES = TOLD["options_of_tasks"]  # that options take; others take any


@pytest.mark.parametrize("task", tasks.names())
def test_an_option_of_other_tasks_is_refused(pipeline, tmp_path, task):
    """By its command, whose help does not list it, by plan, by recipes and from Python."""
    data, page = SAMPLES / "sft" / "chat.jsonl", pipeline("run", task, "--help").out
    every = {name for other in tasks.names() for name in tasks.load(other).options}
    foreign = sorted(every - {*tasks.load(task).options})
    for option in foreign:
        flag, value = f"--{option.replace('_', '-')}", VALUES.get(option, "ZZ")
        assert flag not in page
        with pytest.raises(pp.UsageError, match=f"{flag} is an option of .*, not of {task}"):
            pp.plan(task, model="qwen2-1.5b", data=data, **{option: value})
    asked = (*MODEL, f"--{foreign[0].replace('_', '-')}", VALUES.get(foreign[0], "ZZ"))
    recipe = f'task = "{task}"\ndata = "{data}"\nmodel = "qwen2-1.5b"\n'
    (tmp_path / "r.toml").write_text(f'{recipe}{foreign[0]} = "{asked[-1]}"\n')
    for words in (
        ("run", task, data, *asked),
        ("plan", data, "--task", task, *asked),
        ("build", "r.toml"),
    ):
        pipeline(*words).refused(2, f"{asked[-2]} is an option of ")


# The commands that a refusal prints.


@pytest.mark.parametrize(("arguments", "remedy", "wanted"), TOLD["ways"])
def test_ways_are_read_from_a_remedy(arguments, remedy, wanted):
    """Options that are complete; a sentence that only speaks of an option offers nothing."""
    assert reads_stdin(f"pipeline {arguments} -o -") == arguments.endswith(" -")
    base = re.sub(r" --(map|format|task)[ =]\S+", "", arguments)
    assert commands(arguments.split(), remedy) == [f"pipeline {base} {way}" for way in wanted]


def test_options_stand_before_a_double_dash():
    """What follows it is data."""
    found = commands(["run", "sft", "--", "--odd.jsonl"], "Add --already-templated.")
    assert found == ["pipeline run sft --already-templated -- --odd.jsonl"]


@pytest.mark.slow
def test_rows_that_were_piped_in_are_to_be_piped_in_again(tmp_path):
    """The message names standard input, and says what each command needs; it then builds."""
    row = {"chosen": "Yes.", "rejected": "No."}
    write_rows(tmp_path / "rows", ({**row, "prompt": f"{n}?"} for n in range(12)))
    command = "pipeline run sft - --model qwen2-1.5b -o out --cache-dir cache < rows"
    ran = in_shell(command, tmp_path)
    ran.refused(3, "Error: stdin: no format of conversations fits")
    (command,) = re.findall(r"^Run, with the same rows piped in:\n  (.*)$", ran.err, re.M)
    assert command == "pipeline run rm - --model qwen2-1.5b -o out --cache-dir cache"
    in_shell(f"{command} < rows", tmp_path).ended()


@pytest.mark.slow
def test_errors_are_wrapped_at_words_on_a_terminal(pipeline):
    """COLUMNS says how wide it is; without one, a sentence is one line."""
    words = ("run", "sft", SAMPLES / "rm" / "pairs.jsonl", *MODEL)
    plain = pipeline(*words)
    assert plain.err.startswith("Error: ")
    for columns in (60, 80):
        ran = pipeline(*words, COLUMNS=str(columns))
        long = [one for one in ran.err.splitlines() if len(one) > columns]
        assert all(str(SAMPLES) in one for one in long), long
        assert ran.err.replace(" \\\n", " ").split() == plain.err.split()


# The Tab key, in the shells that are there, and what is installed for it.

BIN = Path(sys.executable).parent


def _asked(folder: Path, line: str, shell: str = "bash") -> list[str]:
    """What the program answers to a shell; the last word is being typed."""
    words = line.split(" ")
    asked = {
        "_PIPELINE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    return started(BIN / "pipeline", folder=folder, env={**os.environ, **asked}).out.split()


@pytest.fixture
def folder(tmp_path) -> Path:
    """Data, a recipe, two builds and a page."""
    for name in ("chats.jsonl", "chats.txt", "table.parquet", "daily.toml", "page.html"):
        (tmp_path / name).touch()
    for build in ("chats-sft", "more/pairs-rm"):
        (tmp_path / build).mkdir(parents=True)
        (tmp_path / build / "manifest.json").write_text("{}")
    return tmp_path


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("line", "wanted"), few(map(tuple, table("completions.toml")["answers"]), 5)
)
def test_what_a_shell_is_answered(folder, line, wanted):
    """Names by what the place takes; files by what they are."""
    assert _asked(folder, f"pipeline {line}") == wanted


def test_each_shell_gets_one_word_a_line(folder):
    """Nothing else, so that a script of a few lines is enough."""
    for shell in ("zsh", "fish"):
        assert _asked(folder, "pipeline export axo", shell) == ["axolotl"]


def test_completion_imports_nothing_heavy(tmp_path, monkeypatch):
    """It runs at every press of the key."""
    monkeypatch.setenv("_PIPELINE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "pipeline run sft --model qwen2-1")
    monkeypatch.setenv("COMP_CWORD", "4")
    heavy = {"numpy", "pyarrow", "polars", "pydantic", "tokenizers", "jinja2", "datasets"}
    assert heavy & support.modules_of((), tmp_path) == set()


_START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}


@pytest.mark.parametrize("shell", _START)
def test_the_key_completes_in_the_shell_itself(folder, shell):
    """On a terminal of its own: a model's name, and then a file's."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (folder / "completion").write_text(shells.shells()[shell].script)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(folder)}
        os.execvp(_START[shell][0], _START[shell])
    try:
        for typed, wanted in (
            (b"source ./completion; echo 'so'urced\n", "sourced"),
            (b"echo pipeline; pipeline export axolo\t", "axolotl"),
            (b"\x15pipeline run sft chats.j\t", "chats.jsonl"),
        ):
            os.write(terminal, typed)
            shown, end = "", time.monotonic() + 60
            while wanted not in shown and time.monotonic() < end:
                if select.select([terminal], [], [], 1)[0]:
                    shown += os.read(terminal, 4096).decode("utf-8", "replace").replace("\a", "")
            assert wanted in shown
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


@pytest.mark.parametrize("shell", _START)
def test_it_is_installed_once_and_removed(shell, pipeline, tmp_path):
    """The files are named, a second time nothing is written, and removal leaves what was there."""
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "ZDOTDIR": ""}
    start = tmp_path / f".{shell}rc"
    before = "alias ll='ls -l'"
    start.write_text(before)
    ran = pipeline("completion", "install", shell, **home)
    wrote = [Path(line.removeprefix("wrote ")) for line in ran.out.splitlines()[:-1]]
    assert f"pipeline completion remove {shell}" in ran.ended().out
    assert len(wrote) == (1 if shell == "fish" else 2)
    assert wrote[0].read_text() == pipeline("completion", "show", shell).out
    text = start.read_text()
    assert text.startswith(before)
    assert (str(wrote[0]) in text) is (shell != "fish")
    again = pipeline("completion", "install", **home, SHELL=f"/usr/bin/{shell}")
    assert "It was installed already." in again.out
    assert start.read_text() == text
    pipeline("completion", "remove", shell, **home).ended()
    assert start.read_text().rstrip("\n") == before
    assert not wrote[0].exists()
    assert "It was not installed." in pipeline("completion", "remove", shell, **home).out


# Faults that were found once, each with the input that showed it.

SFT = ("run", "sft", "--model", "qwen2-1.5b", "--max-reject", "1", "-o", "out")


def test_inputs_with_and_without_null_labels_go_together(built):
    """Parts whose label columns differ in nulls are gathered as they are."""
    files = [SAMPLES / "prm" / name for name in ("math_shepherd.jsonl", "first_error.json")]
    rows = load_from_disk(str(built("prm", *files)))["train"]
    assert sum(row["step_labels"].count(None) for row in rows) == 13


def test_a_link_as_output_keeps_pointing(pipeline, tmp_path):
    """What it points to is replaced, not the link."""
    os.symlink("real", tmp_path / "out")
    for layout in ("packed", "ragged"):
        pipeline(*SFT, GOOD, "--layout", layout).ended()
        assert (tmp_path / "out").is_symlink()
        assert support.read_manifest(tmp_path / "real")["layout"] == layout


COMMANDS: list[str] = table("refusals.toml")["no_files"]


@pytest.mark.sweep(4)
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "command"), few(itertools.product(("pipe", "device"), COMMANDS), 5)
)
def test_a_command_refuses_what_is_no_file(kind, command, pipeline, tmp_path):
    """Data, templates, recipes and the files of a model; the error names the path."""
    (tmp_path / "model").mkdir()
    for path in (tmp_path / "data", tmp_path / "model" / "config.json"):
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    line = command.replace("MODEL", " ".join(MODEL)).replace("PROBLEMS", str(GOOD))
    pipeline(*line.split()).refused(2, "is not a regular file")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("command", few(["check", "show", "report", "diff", "publish"], 1))
@pytest.mark.timeout(60)
def test_a_build_with_a_pipe_for_a_shard_is_read_by_nobody(command, pipeline, built, tmp_path):
    """Each command ends, and names the shard."""
    whole = built("sft", GOOD)
    writable(shutil.copytree(whole, tmp_path / "out"))
    (shard,) = (tmp_path / "out" / "train").glob("*.arrow")
    shard.unlink()
    os.mkfifo(shard)
    others = {"diff": [whole], "publish": ["there"]}
    ran = pipeline(command, "out", *others.get(command, []))
    assert ran.status in (2, 3), ran.err
    assert "is not a regular file" in ran.err + ran.out
