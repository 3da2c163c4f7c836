"""What a build does at the same time at its start and end, and what is left where that stops."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES

import posttrain_pipeline as pp
from pipeline.builder import assembly
from stages.errors import ExpectationError

_DATA = SAMPLES / "sft" / "word_problems.jsonl"
_RUN = """
import importlib, os, signal, sys, time
from pipeline.builder import build
workers = build.workers
def change(*arguments):  # when the process that judges has been started
    place = importlib.import_module({module!r})
    *path, last = {name!r}.split(".")
    for part in path:
        place = getattr(place, part)
    function = getattr(place, last)
    def then(*arguments, **named):
        BODY
        return function(*arguments, **named)
    setattr(place, last, then)
    return workers(*arguments)
build.workers = change
sys.argv = ["pipeline", *{arguments!r}]
from posttrain_pipeline.command import main
main()
"""
_INTERRUPTED = "os.killpg(0, signal.SIGINT); time.sleep(0.1)"


def _living(group: int) -> list[str]:
    """The processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, own = path.read_text().rpartition(")")[2].split()[:3]
            if int(own) == group and state != "Z":
                found.append(path.parent.name)
    return found


def _run(name: str, body: str, folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """A build in a real process, in which something happens before a function is called."""
    module, _, name = name.partition(":")
    arguments = f"run sft {_DATA} --model qwen2-1.5b -o out --quiet --workers 2".split()
    arguments += ["--cache-dir", str(cache)]
    code = _RUN.replace("BODY", body).format(module=module, name=name, arguments=arguments)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)
    out, err = process.communicate(timeout=120)
    end = time.monotonic() + 5
    while _living(process.pid) and time.monotonic() < end:  # who was killed may still be ending
        time.sleep(0.05)
    assert _living(process.pid) == []
    return subprocess.CompletedProcess(code, process.returncode, out, err)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "pipeline.builds.publish:shutil.rmtree",  # of what an earlier run may have left
        "pipeline.builder.assembly:audit",  # while the other process judges
        "pipeline.inputs.recipe:find_model",
        "pipeline.builder.assembly:report_page.write",
    ],
)
def test_ctrl_c_leaves_nothing(
    name: str, tmp_path: Path, cache_dir: Path, tokenizer_json: bytes
) -> None:
    """Whatever is going on at the same time ends with the build."""
    ran = _run(name, _INTERRUPTED, tmp_path, cache_dir)
    assert ran.returncode == 130
    assert ran.stderr.strip() == "interrupted; nothing was published"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["builder.build:remember", "builds.failed:clear"])
def test_ctrl_c_after_publication_changes_nothing(
    name: str, tmp_path: Path, cache_dir: Path
) -> None:
    """The build is there: the status says so, and stdout where."""
    ran = _run(f"pipeline.{name}", _INTERRUPTED, tmp_path, cache_dir)
    said = "warning: out is published all the same: interrupted"
    assert (ran.returncode, ran.stderr.strip()) == (0, said)
    assert ran.stdout == "out/manifest.json\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert pp.open(tmp_path / "out").validation.passed


@pytest.mark.slow
def test_a_judge_that_dies_is_replaced(tmp_path: Path, cache_dir: Path) -> None:
    """Killed while it judges: the build is judged where it is made."""
    kill = "os.kill(arguments[0].process.pid, signal.SIGKILL)"
    ran = _run("pipeline.builder.judge:_answer", kill, tmp_path, cache_dir)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert pp.open(tmp_path / "out").validation.passed


@pytest.mark.parametrize("broken", [False, True])
def test_the_verdict_is_said_before_an_audit_that_fails(
    broken: bool, tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Audits are made before the verdict is there; of broken shards the verdict says more."""

    written: Any = vars(assembly)["write_dataset"]

    def damaging(folder: Path, *others: Any) -> None:
        written(folder, *others)
        (path,) = folder.glob("train/*.arrow")
        path.write_bytes(path.read_bytes()[:-40])

    monkeypatch.setattr(assembly, "audit", lambda *_: 1 / 0)
    if broken:
        monkeypatch.setattr(assembly, "write_dataset", damaging)
    with pytest.raises(ExpectationError if broken else ZeroDivisionError) as caught:
        pp.run("sft", data=_DATA, model="qwen2-1.5b", output=tmp_path / "out", cache_dir=cache_dir)
    if isinstance(caught.value, ExpectationError):  # a kept part may have rotted on the disk
        assert "Build again with --verify" in caught.value.remedy
    assert not (tmp_path / "out").exists()
