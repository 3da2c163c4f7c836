"""``pipeline init``: the recipe that it writes is one, and builds as it is."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from support import SAMPLES, Run, few, write_rows
from test_recipe import VALIDATOR, _json

from pipeline.options.recipe import builds_of

MODEL = ("--model", "qwen2-1.5b")
FILES = {
    "sft": SAMPLES / "sft" / "word_problems.jsonl",
    "rm": SAMPLES / "rm" / "pairs.jsonl",
    "prm": SAMPLES / "prm" / "math_shepherd.jsonl",
}


def _uncommented(text: str) -> str:
    """With every offered line, each alone in front of its comment."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("# More options"))
    offered = [line.removeprefix("# ") if " = " in line else line for line in lines[start:]]
    return "\n".join([*lines[:start], *offered, ""])


@pytest.mark.parametrize("task", few(FILES, 1))
def test_what_it_writes_builds(pipeline: Run, tmp_path: Path, task: str) -> None:
    """The task is found, and the build is that of ``run``; what it offers is right too."""
    assert pipeline("init", FILES[task], *MODEL).ended().out == "recipe.toml\n"
    path = tmp_path / "recipe.toml"
    VALIDATOR.validate(_json(path.read_text()))
    assert tomllib.loads(path.read_text())["task"] == task
    pipeline("build", "recipe.toml", "-o", "one", "--quiet").ended()
    pipeline("run", task, FILES[task], *MODEL, "-o", "two", "--quiet").ended()
    one, two = (tmp_path / name / "manifest.json" for name in ("one/current", "two"))
    assert one.read_bytes() == two.read_bytes()
    every = tmp_path / "every.toml"
    every.write_text(_uncommented(path.read_text()))
    VALIDATOR.validate(_json(every.read_text()))
    (config,) = builds_of(every)
    assert config.plan.trainer == "trl"
    pipeline("init", FILES[task], *MODEL).refused(2, "is there already")


def test_data_that_is_read_in_two_ways_becomes_two_sources(pipeline: Run, tmp_path: Path) -> None:
    """One for each format; paths count from the recipe, and a dollar sign is one."""
    folder = tmp_path / "a $b [c]"
    folder.mkdir()
    chat = folder / "chat.jsonl"
    chat.write_bytes((SAMPLES / "sft" / "chat.jsonl").read_bytes())
    words = os.path.relpath(FILES["sft"], tmp_path)
    pipeline("init", words, "a $b [c]/chat.jsonl", *MODEL, "-o", "sub/mix.toml").ended()
    path = tmp_path / "sub" / "mix.toml"
    table = _json(path.read_text())
    VALIDATOR.validate(table)
    assert table["source"][1]["data"] == ["../a $$b [c]/chat.jsonl"]
    (config,) = builds_of(path)
    assert [one.name for one in config.sources] == ["word_problems", "chat"]


def test_a_question_about_the_data_is_asked(pipeline: Run, tmp_path: Path) -> None:
    """As by a build; the option that answers it is then in the recipe."""
    rows = [{"question": f"q {at}?", "answer": "a", "label": at % 2 == 0} for at in range(40)]
    write_rows(tmp_path / "rated.jsonl", rows)
    asked = ("init", "rated.jsonl", *MODEL, "--task", "sft")
    pipeline(*asked).refused(3, "--where label=true")
    assert not (tmp_path / "recipe.toml").exists()
    pipeline(*asked, "--where", "label=true").ended()
    (config,) = builds_of(tmp_path / "recipe.toml")
    assert config.source.where == ("label=true",)


def _chats(path: Path, words: int) -> None:
    """Forty rows, a tenth of which have answers of so many words."""
    answers = ("yes " * (words if at % 10 == 0 else 3) for at in range(400))
    write_rows(path, [{"question": f"q {at}", "answer": text} for at, text in enumerate(answers)])


def test_a_length_that_rows_fit_in_is_chosen(pipeline: Run, tmp_path: Path) -> None:
    """Where the default would refuse too many of them."""
    _chats(tmp_path / "chats.jsonl", 5000)
    pipeline("init", "chats.jsonl", *MODEL).ended()
    (config,) = builds_of(tmp_path / "recipe.toml")
    assert config.plan.max_length == 8192
    assert "# max-length" not in (tmp_path / "recipe.toml").read_text()


@pytest.mark.slow
def test_what_a_build_would_refuse_is_said_in_the_recipe(pipeline: Run, tmp_path: Path) -> None:
    """The recipe is there to be changed, and the status is that of a build of it."""
    _chats(tmp_path / "chats.jsonl", 40_000)
    ran = pipeline("init", "chats.jsonl", *MODEL)
    ran.refused(3, "recipe.toml is written, but a build of it is refused")
    assert ran.out == "recipe.toml\n"
    text = (tmp_path / "recipe.toml").read_text()
    why = r"# As it stands, a build of it is refused:\n#   \d+ examples longer than 4,096 tokens\n"
    assert re.search(why, text), text
    pipeline("build", "recipe.toml", "--quiet").ended(3)


def test_test_files_are_not_trained_on(pipeline: Run, tmp_path: Path) -> None:
    """Where other files are named too; alone, a file of that name is data."""
    for name, first in (("train", 0), ("test", 900), ("testimony", 700)):
        rows = [{"question": f"q {n}?", "answer": "a"} for n in range(first, first + 20)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    pipeline("init", "train.jsonl", "test.jsonl", "testimony.jsonl", *MODEL).ended()
    table = _json((tmp_path / "recipe.toml").read_text())
    VALIDATOR.validate(table)
    assert (table["data"], table["test"]) == (["train.jsonl", "testimony.jsonl"], ["test.jsonl"])
    pipeline("init", "test.jsonl", *MODEL, "-o", "alone.toml").ended()
    assert _json((tmp_path / "alone.toml").read_text())["data"] == ["test.jsonl"]


def test_only_the_task_that_could_read_the_rows_asks(pipeline: Run, tmp_path: Path) -> None:
    """What other tasks say is that they cannot."""
    row = {"prompt": "### Instruction:\nsay it\n\n### Response:\n", "response": "it"}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 9)
    ran = pipeline("init", "rows.jsonl", *MODEL)
    assert (ran.status, "--already-templated" in ran.err, "[rm]" in ran.err) == (3, True, False)
    pipeline("init", "rows.jsonl", *MODEL, "--already-templated").ended()
    assert "already-templated = true" in (tmp_path / "recipe.toml").read_text()


def test_it_prints_the_schema(pipeline: Run) -> None:
    """That of this installation; the shipped one where no other package adds anything."""
    assert json.loads(pipeline("init", "--schema").out) == VALIDATOR.schema
    pipeline("init").ended(2)
