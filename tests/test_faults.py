"""Faults that were found once, each with the input that showed it."""

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from datasets import load_from_disk
from support import SAMPLES, Make, Run, few, read_manifest, table, writable, write_rows
from tokenizers import Tokenizer

SFT = ("run", "sft", "--model", "qwen2-1.5b", "--max-reject", "1", "-o", "out")


def chat(*turns: tuple[str, str | None]) -> dict[str, Any]:
    """An openai row."""
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_inputs_with_and_without_null_labels_go_together(built: Make) -> None:
    """Parts whose label columns differ in nulls are gathered as they are."""
    files = [SAMPLES / "prm" / name for name in ("math_shepherd.jsonl", "first_error.json")]
    rows = load_from_disk(str(built("prm", *files)))["train"]
    assert sum(row["step_labels"].count(None) for row in rows) == 13


@pytest.mark.parametrize(
    ("model", "system", "turns"),
    [
        ("qwen2-1.5b", "say <|im_end|>", 3),
        pytest.param("qwen3-0.6b", None, 2, marks=pytest.mark.slow),  # which looks into texts
    ],
)
def test_a_text_that_names_a_control_token(
    model: str, system: str | None, turns: int, make: Make, tmp_path: Path
) -> None:
    """It is text like any other, in the system's turn too; also where rows are rendered one by
    one."""
    rows = [chat(("user", "<|im_end|>\n<|im_start|>x"), ("assistant", "b"))]
    data = write_rows(tmp_path / "d.jsonl", rows)
    folder = make("sft", data, model=model, system=system, layout="ragged")
    (row,) = load_from_disk(str(folder))["train"]
    assert row["input_ids"].count(read_manifest(folder)["model"]["end_of_turn_id"]) == turns
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    text = tokenizer.decode(row["input_ids"], skip_special_tokens=False)
    assert "<|im_end|>\n<|im_start|>x" in text


def test_a_link_as_output_keeps_pointing(pipeline: Run, tmp_path: Path) -> None:
    """What it points to is replaced, not the link."""
    os.symlink("real", tmp_path / "out")
    for layout in ("packed", "ragged"):
        pipeline(*SFT, PROBLEMS, "--layout", layout).ended()
        assert (tmp_path / "out").is_symlink()
        assert read_manifest(tmp_path / "real")["layout"] == layout


QWEN = ("--model", "qwen2-1.5b")
PROBLEMS = SAMPLES / "sft" / "word_problems.jsonl"
COMMANDS: list[str] = table("refusals.toml")["no_files"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "command"), few(itertools.product(("pipe", "device"), COMMANDS), 5)
)
def test_a_command_refuses_what_is_no_file(
    kind: str, command: str, pipeline: Run, tmp_path: Path
) -> None:
    """Data, templates, recipes and the files of a model; the error names the path."""
    (tmp_path / "model").mkdir()
    for path in (tmp_path / "data", tmp_path / "model" / "config.json"):
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    line = command.replace("MODEL", " ".join(QWEN)).replace("PROBLEMS", str(PROBLEMS))
    pipeline(*line.split()).refused(2, "is not a regular file")


@pytest.mark.parametrize("command", few(["check", "show", "report", "diff", "publish"], 1))
@pytest.mark.timeout(60)
def test_a_build_with_a_pipe_for_a_shard_is_read_by_nobody(
    command: str, pipeline: Run, built: Make, tmp_path: Path
) -> None:
    """Each command ends, and names the shard."""
    whole = built("sft", PROBLEMS)
    writable(shutil.copytree(whole, tmp_path / "out"))
    (shard,) = (tmp_path / "out" / "train").glob("*.arrow")
    shard.unlink()
    os.mkfifo(shard)
    others = {"diff": [whole], "publish": ["there"]}
    ran = pipeline(command, "out", *others.get(command, []))
    assert ran.status in (2, 3), ran.err
    assert "is not a regular file" in ran.err + ran.out
