"""What a build does at the same time at its start and end, and what is left where that stops."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import SAMPLES

import posttrain_pipeline as pp
from pipeline.builder import assembly
from pipeline.inputs import proved
from pipeline.options.config import Config
from stages.errors import ExpectationError
from stages.late import once

_DATA = SAMPLES / "sft" / "word_problems.jsonl"
_RUN = """
import importlib, os, signal, sys, time
from pipeline import run_build
workers = run_build.workers
def change(*arguments):  # when the process that judges has been forked
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
run_build.workers = change
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


@pytest.mark.parametrize(
    "name",
    [
        "pipeline.builds.publish:shutil.rmtree",  # of what an earlier run may have left
        "pipeline.builder.assembly:audit",  # while the other process judges
        # In a thread, while the program is imported.
        pytest.param("pipeline.inputs.proved:_parse", marks=pytest.mark.slow),
        pytest.param("pipeline.inputs.recipe:find_model", marks=pytest.mark.slow),
        pytest.param("pipeline.builder.assembly:report_page.write", marks=pytest.mark.slow),
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


@pytest.mark.parametrize(
    "name",
    [
        "pipeline.builder.build:remember",  # the hashes, for the next build
        pytest.param("pipeline.builds.failed:clear", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_after_publication_changes_nothing(
    name: str, tmp_path: Path, cache_dir: Path
) -> None:
    """The build is there: the status says so, and stdout where."""
    ran = _run(name, _INTERRUPTED, tmp_path, cache_dir)
    said = "warning: out is published all the same: interrupted"
    assert (ran.returncode, ran.stderr.strip()) == (0, said)
    assert ran.stdout == "out/manifest.json\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert pp.open(tmp_path / "out").validation.passed


@pytest.mark.slow
def test_a_judge_that_dies_is_replaced(tmp_path: Path, cache_dir: Path) -> None:
    """Killed while it judges: the build is judged where it is made."""
    kill = "os.kill(arguments[0]._pool.workers[0].process.pid, signal.SIGKILL)"
    ran = _run("pipeline.builder.judge:Judge._verdict", kill, tmp_path, cache_dir)
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


def test_who_asks_while_it_is_computed_waits() -> None:
    """Two threads that ask for the same get one result, computed once."""
    began, go, calls, found = threading.Event(), threading.Event(), [], []

    @once(1)
    def slow(number: int) -> list[int]:
        calls.append(number)
        began.set()
        go.wait(10)
        return [number]

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(lambda: found.append(slow(3)))
        assert began.wait(10)
        time.sleep(0.05)
        go.set()
    assert calls == [3]
    assert found[0] is found[1]


def test_what_is_parsed_ahead_is_the_tokenizer_of_the_build(
    tmp_path: Path, cache_dir: Path, tokenizer_json: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be parsed twice. What cannot be parsed ahead is left to who asks for it."""
    contents: list[bytes] = []
    monkeypatch.setattr(proved, "parsed", contents.append)
    options = {"model": "qwen2-1.5b", "output": tmp_path / "out", "cache_dir": cache_dir}
    for task in ("sft", "prm"):
        config = Config.of(task, (str(_DATA),), **options)
        with proved.tokenizer(config):
            pass
        assert contents.pop() == proved.find_model(config)[1].tokenizer_json
    for other in (config.but(cache_dir=tmp_path), config.but(model="x/y")):
        with proved.tokenizer(other):
            pass
    assert contents == []

    def failing(content: bytes) -> None:
        raise ValueError(content[:9])

    monkeypatch.setattr(proved, "parsed", failing)
    with proved.tokenizer(config):
        pass
