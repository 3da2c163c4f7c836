"""The worker pool, of processes that start anew or are copies: a dead worker costs a retry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SAMPLES, Ran, raised, started, sweep, table
from worker_tasks import die, die_once, square

import posttrain_pipeline as pp
from pipeline import processes
from pipeline.builder import assembly
from pipeline.processes import pmap
from pipeline.shards.gather import ShardWork
from pipeline.shards.part import Work
from stages.contract import Split
from stages.errors import DataError, ExpectationError, SurroundingsError


def _refuse(shared: None, item: int) -> int:
    if item == 1:
        raise DataError("row 7 is bad.", "Correct it.")
    return item


def test_every_worker_leaves_interruptions_to_its_parent():
    """Also the first one of a process, with which multiprocessing starts a helper of its own."""
    code = "from pipeline.processes import pmap; import worker_tasks as here; "
    code += "print(*(left for _, _, left in dict(pmap(here.parent, None, range(4), 2)).values()))"
    tests = Path(__file__).parent
    assert started(sys.executable, "-c", code, folder=tests).ended().out.split() == ["True"] * 4


def test_every_item_is_done_once():
    """Results come with their index, whatever the number of workers."""
    for workers in (1, 3):
        assert dict(pmap(square, 1, range(7), workers)) == {i: 1 + i * i for i in range(7)}


def test_killed_workers_are_replaced(tmp_path):
    """Each task whose worker was killed is tried again."""
    assert dict(pmap(die_once, str(tmp_path), range(3), 2)) == {0: 0, 1: 1, 2: 2}


def test_a_task_that_kills_its_workers_is_named():
    """Three deaths, then an error that says which item, and no hang."""
    with pytest.raises(SurroundingsError, match="2 killed its worker 3 times"):
        dict(pmap(die, None, range(4), 2))


def _die_at_once(shared: None, item: object) -> object:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


@pytest.mark.slow
def test_a_killed_part_or_shard_is_named_in_words():
    """The message names file and lines, or the shard; never the arrays that it would hold."""
    split = Split("in/data.jsonl", 0, 10, "0" * 64, "jsonl", lines=4)
    works = [Work(split, "openai", "parts", "ab"), Work(split, "openai", "parts", "cd", 4)]
    assert works[1].place(0) == "data.jsonl:5"
    with pytest.raises(SurroundingsError, match=r"data.jsonl, lines (1 to 4|5 to 8), killed its"):
        dict(pmap(_die_at_once, None, works, 2))
    ids = np.arange(1000)
    shard = ShardWork("train/data-00000-of-00001.arrow", "train", ids, ids)
    with pytest.raises(SurroundingsError, match=r"^Shard train/data-00000-of-00001.arrow killed"):
        dict(pmap(_die_at_once, None, [shard, shard], 2))


def test_an_exception_arrives_as_it_was_raised():
    """Our errors keep their text and remedy on the way out of a worker."""
    caught = raised(DataError, dict, pmap(_refuse, None, range(3), 2))
    assert (caught.what, caught.remedy) == ("row 7 is bad.", "Correct it.")


class _Fatal:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (7,)


@pytest.mark.slow
def test_a_worker_that_dies_at_its_start_is_no_riddle():
    """Whoever starts it does not wait for a reader that is gone, however much there is to read."""
    shared = (b"x" * (1 << 22), _Fatal(), b"y" * (1 << 22))
    with pytest.raises(SurroundingsError, match="killed its worker 3 times"):
        dict(processes.pooled(_first, shared, range(4), 2))


def _first(shared: Any, item: int) -> int:
    return item


_PROGRAM: str = table("programs.toml")["phases_in_workers"]


def _ran(body: str, folder: Path) -> Ran:
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    here = {"PYTHONPATH": str(Path(__file__).parent), "FOLDER": str(folder)}
    program = _PROGRAM.replace("    BODY", indented)
    return started(sys.executable, "-c", program, env={**os.environ, **here})


_LAWS: dict[str, str] = table("process_laws.toml")


def test_workers_last_for_all_phases(tmp_path):
    """They are copies of this process, where it can be copied."""
    bodies = (f"print({law!r})\n{body}" for law, body in _LAWS.items())
    ran = _ran("\n".join(bodies), tmp_path)
    assert ran.out.splitlines() == [*_LAWS, "done"], ran.err


def test_all_end_with_the_process_that_asked(tmp_path):
    """Also when it is killed: nobody is left to write into its folder."""
    ran = _ran(table("scripts.toml")["killed_by_itself"], tmp_path)
    assert ran.status == -signal.SIGKILL, ran.err
    workers = [*map(int, ran.out.split())]
    assert workers
    deadline = time.monotonic() + 30
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_runs, workers))


def test_a_process_ends_whose_parent_ended_before_it_asked_to_end_with_it(tmp_path):
    """A copy that lives on has the pipes of its parent, and whoever reads them waits for it."""
    program = table("scripts.toml")["child_of_nobody"].replace("LIVES", str(tmp_path / "lives"))
    # The child holds this pipe as long as it lives.
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert not (tmp_path / "lives").exists()


def _runs(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


# What a build does at the same time at its start and end, and what is left where that stops.

_DATA = SAMPLES / "sft" / "word_problems.jsonl"
_RUN: str = table("programs.toml")["build_that_is_changed"]
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


@sweep(2)
@pytest.mark.parametrize(
    "name",
    [
        "pipeline.builds.publish:shutil.rmtree",  # of what an earlier run may have left
        "pipeline.builder.assembly:audit",  # while the other process judges
        "pipeline.inputs.recipe:find_model",
        "pipeline.builder.assembly:report_page.write",
    ],
)
def test_ctrl_c_leaves_nothing(name, tmp_path, cache_dir, tokenizer_json):
    """Whatever is going on at the same time ends with the build."""
    ran = _run(name, _INTERRUPTED, tmp_path, cache_dir)
    assert ran.returncode == 130
    assert ran.stderr.strip() == "interrupted; nothing was published"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_judge_that_dies_is_replaced(tmp_path, cache_dir):
    """Killed while it judges: the build is judged where it is made."""
    kill = "os.kill(arguments[0].process.pid, signal.SIGKILL)"
    ran = _run("pipeline.builder.judge:_answer", kill, tmp_path, cache_dir)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert pp.open(tmp_path / "out").validation.passed


@pytest.mark.parametrize("broken", [False, True])
def test_the_verdict_is_said_before_an_audit_that_fails(broken, tmp_path, cache_dir, monkeypatch):
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
