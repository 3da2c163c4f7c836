"""What is opened by a name is a regular file: a pipe or a device ends a command at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support import SAMPLES, Ran

MODEL = ("--model", "qwen2-1.5b")
ROWS = SAMPLES / "sft" / "word_problems.jsonl"

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    "command",
    [
        *(("plan", "data", *MODEL), ("run", "sft", "data", *MODEL), ("init", "data")),
        ("run", "sft", ROWS, *MODEL, "--test", "data"),
        ("run", "sft", ROWS, *MODEL, "--chat-template", "data"),
        ("run", "sft", ROWS, *MODEL, "--decontaminate", "data"),
        *(
            ("run", "sft", ROWS, "--model", "./model"),
            ("build", "data"),
            ("doctor", "--model", "./model"),
        ),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_command_refuses_what_is_no_file(
    kind: str, command: tuple[object, ...], pipeline: Callable[..., Ran], tmp_path: Path
) -> None:
    """Data, templates, recipes and the files of a model; the error names the path."""
    (tmp_path / "model").mkdir()
    for path in (tmp_path / "data", tmp_path / "model" / "config.json"):
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    ran = pipeline(*command)
    assert ran.status == 2, ran.err
    assert "is not a regular file" in ran.err


@pytest.mark.parametrize("command", ["check", "show", "report", "diff", "publish"])
def test_a_build_with_a_pipe_for_a_shard_is_read_by_nobody(
    command: str, pipeline: Callable[..., Ran], tmp_path: Path
) -> None:
    """Each command ends, and names the shard."""
    assert pipeline("run", "sft", ROWS, *MODEL, "-o", "out").status == 0
    shutil.copytree(tmp_path / "out", tmp_path / "whole")
    (shard,) = (tmp_path / "out" / "train").glob("*.arrow")
    shard.unlink()
    os.mkfifo(shard)
    others = {"diff": ["whole"], "publish": ["there"]}
    ran = pipeline(command, "out", *others.get(command, []))
    assert ran.status in (2, 3), ran.err
    assert "is not a regular file" in ran.err + ran.out
