"""pipeline-openrlhf over OpenRLHF's own programs, as far as they go without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES, Ran

from pipeline.openrlhf_launch import check_version, split_arguments
from stages.errors import UsageError

Use = Callable[..., Callable[[str], Any]]
PEERS = Path(os.environ.get("POSTTRAIN_PEERS", Path(sys.prefix) / "peers"))

# Imported before anything else happens; a call of one ends the program with its name.
_NAMES = ("flash_attn", "deepspeed", "peft", "pylatexenc", "optree", "ray", "loralib", "torchdata")


@pytest.mark.parametrize(
    ("version", "task"), [("0.11.2", "sft"), ("0.11.2", "rm"), ("0.9.5", "prm")]
)
def test_the_command_of_a_build_runs_until_a_gpu_is_asked_for(
    pipeline: Callable[..., Ran], tmp_path: Path, version: str, task: str
) -> None:
    """The launch script's own words reach OpenRLHF's program, which takes every option and begins
    to train with our class in its dataset's place. It stops where it first asks the GPU's
    libraries to do something: at the start of deepspeed."""
    source = {"sft": "sft/chat.jsonl", "rm": "rm/pairs.jsonl", "prm": "prm/math_shepherd.jsonl"}
    command = ("run", task, SAMPLES / source[task], "--model", "qwen2-1.5b", "-o", "build")
    ran = pipeline(*command, "--for", "openrlhf")
    assert ran.status == 0, ran.err
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "deepspeed"  # in its place: our launcher, in this environment
    program = f"""#!{sys.executable}
import importlib.metadata, sys
sys.path.insert(0, {str(PEERS / f"openrlhf-{version}")!r})
sys.path.append({str(Path(__file__).parent)!r})
import recorder
recorder.stand_in({_NAMES!r})
sys.argv = sys.argv[2:]
import openrlhf.datasets
from pipeline import openrlhf_launch, torch_data
import pipeline.torch_data.openrlhf as ours
module = openrlhf_launch.TASKS[{task!r}]
sys.argv = [sys.argv[0], "--local_rank=-1", *sys.argv[1:]]
try:
    openrlhf_launch.main()
finally:
    taken = getattr(openrlhf.datasets, module[1])
    print("CLASS", taken is getattr(ours, module[2]), file=sys.stderr)
"""
    shim.write_text(program)
    shim.chmod(0o755)
    done = subprocess.run(
        ["sh", tmp_path / "build" / "launch" / "openrlhf.sh", "MODEL"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "STOPPED at deepspeed" in done.stderr, done.stderr
    assert "CLASS True" in done.stderr
    assert "setup_distributed" in done.stderr or "init_distributed" in done.stderr


@pytest.mark.parametrize(
    ("task", "version", "says"),
    [
        ("prm", (0, 11, 2), "no process reward trainer"),
        ("prm", (0, 7, 3), "another form than 0.7.4"),
        ("sft", (0, 7, 0), "another form than 0.7.1"),
    ],
)
def test_versions_that_cannot_work_are_refused(
    task: str, version: tuple[int, ...], says: str
) -> None:
    """Before anything of theirs is imported."""
    with pytest.raises(UsageError, match=says):
        check_version(task, version)
    for good in ((0, 7, 4), (0, 9, 5)):
        check_version("prm", good)
    for good in ((0, 7, 1), (0, 11, 2)):
        check_version("sft", good)


def test_launchers_put_their_own_options_in_front() -> None:
    """deepspeed's --local_rank comes before the task, which is taken out of the middle."""
    task, rest = split_arguments(["--local_rank=3", "rm", "--data.dataset", "x"])
    assert (task, rest) == ("rm", ["--local_rank=3", "--data.dataset", "x"])
    with pytest.raises(UsageError, match="No task is named"):
        split_arguments(["--local_rank=3", "x", "rm"])
