"""A command that stops for a question prints itself, corrected, once for each answer; each runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Ran, few

from pipeline.messages.corrected import commands, reads_stdin

Run = Callable[..., Ran]
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


@pytest.mark.parametrize("name", few(CASES, 3))
def test_each_corrected_command_builds(name: str, pipeline: Run, tmp_path: Path) -> None:
    """Pasted as they stand, all of them; and the error names them to programs too."""
    task, rows, ways = CASES[name]
    (tmp_path / "my rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    stopped = ("run", task, "my rows.jsonl", "--model", "qwen2-1.5b", "--seed=7")
    ran = pipeline(*stopped, "--json")
    assert ran.status == 3, ran.err
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
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", *more)
    assert ran.status == 3
    assert "They read as rm data (chosen and rejected in 12 of 12 sampled rows)" in ran.err
    (command,) = _given(ran.err)
    assert command == f"pipeline run rm {data} --model qwen2-1.5b --max-reject 0.5 -o out"
    assert pipeline(*shlex.split(command)[1:]).status == 0
    ran = pipeline("run", "sft", data, "--model", "qwen2-1.5b", "--format", "preference")
    assert ran.status == 2
    assert _given(ran.err) == [f"pipeline run rm {data} --model qwen2-1.5b --format preference"]


def test_an_empty_file_among_others(pipeline: Run, tmp_path: Path) -> None:
    """The option that goes on without it."""
    (tmp_path / "no.jsonl").touch()
    data = SAMPLES / "sft" / "word_problems.jsonl"
    ran = pipeline("run", "sft", data, "no.jsonl", "--model", "qwen2-1.5b")
    assert ran.status == 3
    (command,) = _given(ran.err)
    assert command.endswith("no.jsonl --model qwen2-1.5b --empty warn")
    assert pipeline(*shlex.split(command)[1:]).status == 0


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
    base = re.sub(r" --(map|format|task)[ =]\S+", "", arguments)
    assert commands(arguments.split(), remedy) == [f"pipeline {base} {way}" for way in wanted]


def test_rows_that_were_piped_in_are_to_be_piped_in_again(pipeline: Run, tmp_path: Path) -> None:
    """The message names standard input, and says what each command needs; it then builds."""
    rows = _rows(12, prompt="{n}?", chosen="Yes {n}.", rejected="No.")
    (tmp_path / "rows").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

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
    assert not reads_stdin("pipeline run sft a.jsonl -o -")
    assert reads_stdin("pipeline run sft --quiet -")


def test_options_stand_before_a_double_dash() -> None:
    """What follows it is data."""
    found = commands(["run", "sft", "--", "--odd.jsonl"], "Add --already-templated.")
    assert found == ["pipeline run sft --already-templated -- --odd.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("biuld", "x"), "Did you mean 'build'?"),
        (("run", "stf", "x"), "Did you mean 'sft'?"),
        (("run", "sft", "x", "--layuot", "y"), "Did you mean '--layout'?"),
        (("run", "sft", "x", "--layout", "pakced"), "Did you mean 'packed'?"),
        (("list", "modles"), "Did you mean 'models'?"),
        (("run", "sft", "DATA", "--model", "qwen2-15b"), "qwen2-1.5b"),
        (("run", "sft", "DATA", "--model", "qwen2-1.5b", "--format", "sharegtp"), "sharegpt"),
        (("run", "sft", "DATA", "--model", "qwen2-1.5b", "--for", "axolotle"), "axolotl"),
        (
            ("run", "sft", "DATA", "--model", "qwen2-1.5b", "--map", "answer=anwser"),
            "Did you mean --map answer=answer?",
        ),
        (("run", "sft", "DATA", "--model", "qwen2-1.5b", "--ignore", "anwser"), "--ignore answer?"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    pipeline: Run, arguments: tuple[str, ...], meant: str
) -> None:
    """Commands, options, values, models, formats, trainers, columns; and where to look."""
    data = str(SAMPLES / "sft" / "word_problems.jsonl")
    ran = pipeline(*(data if word == "DATA" else word for word in arguments))
    assert (ran.status, ran.out) == (2, "")
    assert meant in ran.err
    assert re.match(r"Error: .*\n(Fix|Try):   \S", ran.err), ran.err


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
