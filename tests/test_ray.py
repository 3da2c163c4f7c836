"""Builds on a Ray cluster of this machine, whose workers and machines die: the same bytes.

Ray is no dependency of the tests: it is looked for in the folders that ``SCHEDULERS`` lists, into
one of which ``make test-clusters`` installs it; where it is nowhere, its tests are skipped.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import NAME
from stub_s3 import BUCKET, S3Stub, serve_s3
from support import ROOT, Run, files_of, started

from pipeline.stores import open_store

TESTS = ROOT / "tests"
ROWS = 1500  # of each input
OPTIONS = ("--model", NAME, "--shuffle", "--test-size", "0.1", "--quiet")


def _variables(cache: Path) -> dict[str, str]:
    """A process with another Python imports what this one does."""
    paths = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "HF_HUB_OFFLINE": "1"}
    return {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(cache), **quiet}


@pytest.fixture(scope="module")
def python() -> str:
    """The Python that has Ray."""
    found = shutil.which("ray", path=os.environ.get("SCHEDULERS", ""))
    if found is None:
        pytest.skip("ray is not installed")
    return str(Path(found).parent / "python")


@pytest.fixture(scope="module")
def s3(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Stub]:
    """A store on the loopback."""
    with serve_s3(tmp_path_factory.mktemp("s3")) as stub:
        yield stub


@pytest.fixture(scope="module")
def cluster(python: str, s3: S3Stub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a head with three raylets, which know the store."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [python, str(TESTS / "ray_cluster.py"), "3"],
            env=_variables(folder) | s3.environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (folder / "log").read_text()
        yield address
        process.communicate(timeout=60)


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    """Six inputs, large enough to be seen while they are encoded."""
    names = [f"rows{number}.jsonl" for number in range(6)]
    for number, name in enumerate(names):
        with (tmp_path / name).open("w") as file:
            for row in range(ROWS):
                question = f"What is {number} times {row}? " + f"Explain {row % 7} steps. " * 12
                answer = f"It is {number * row}. " * (1 + row % 40)
                file.write(json.dumps({"prompt": question, "completion": answer}) + "\n")
    return names


def _processes(name: str) -> Iterator[tuple[int, int]]:
    """Ids of processes whose title begins so, with their parents'."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                title = (process / "cmdline").read_bytes()
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:  # it has ended
                continue
            if title.startswith(name.encode()):
                yield int(process.name), int(parent)


def _wait(done: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """What ``done`` gives, as soon as it gives something, while a process runs."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        found = done()
        if found:
            return found
        time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate())


def _build(
    python: str, folder: Path, cluster: str, *data: str, **more: str
) -> subprocess.Popen[str]:
    command = [python, "-m", "pipeline", "run", "sft", "-o", "cluster", *OPTIONS, *data]
    return subprocess.Popen(
        [*command, "--engine", "ray", "--ray-address", cluster],
        cwd=folder,
        env=_variables(folder / "cache") | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_lost_worker_and_a_lost_machine_change_no_byte(
    pipeline: Run, python: str, cluster: str, data: list[str], tmp_path: Path
) -> None:
    """Both are a line on stderr; and with one, two and three processes it is the same build."""
    process = _build(python, tmp_path, cluster, *data)
    worker, _ = _wait(lambda: next(_processes("ray::encode: rows"), None), process)
    os.kill(worker, signal.SIGKILL)
    _, machine = _wait(
        lambda: next((p for p in _processes("ray::encode: rows") if p[0] != worker), None), process
    )
    os.kill(machine, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.strip() == "cluster/manifest.json"
    assert all(line.startswith("warning: ") and len(line) < 300 for line in err.splitlines()), err
    assert err.count("The worker of rows") >= 2, err
    built = files_of(tmp_path / "cluster")
    assert len(built) > 12
    for workers in ("1", "2", "3"):
        cached = ("--cache-dir", str(tmp_path / f"cache{workers}"))
        pipeline("run", "sft", *data, *OPTIONS, "-o", "one", "--workers", workers, *cached).ended()
        assert files_of(tmp_path / "one") == built
        shutil.rmtree(tmp_path / "one")


@pytest.mark.slow
def test_a_cluster_that_shares_no_folder_meets_in_a_store(
    pipeline: Run, python: str, s3: S3Stub, cluster: str, data: list[str], tmp_path: Path
) -> None:
    """Workers put parts there, and the build goes there: the bytes of a local one."""
    names = [str(tmp_path / name) for name in data[:3]]
    cache, output = f"s3://{BUCKET}/cache", f"s3://{BUCKET}/out"
    places = ("--cache-dir", cache, "-o", output)
    process = _build(python, tmp_path, cluster, *names, *places, **s3.environment)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    stored = {path for way, path, _ in s3.requests if way == "PUT" and "/parts/" in path}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        store = open_store(output)
        built = {name.partition("/")[2]: store.get(name) for name in store.list()}
    assert len(stored) == 3 * 4
    pipeline("run", "sft", *names, *OPTIONS, "-o", "one").ended()
    whole = files_of(tmp_path / "one")
    assert {name: content for name, content in built.items() if name in whole} == whole


@pytest.mark.slow
def test_an_interrupted_build_ends_as_everywhere(
    python: str, cluster: str, data: list[str], tmp_path: Path
) -> None:
    """Status 130, no build, no task that goes on; what was made is not made again."""
    process = _build(python, tmp_path, cluster, *data)
    _wait(lambda: next(_processes("ray::encode: rows"), None), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "interrupted; nothing was published" in err) == (130, True), err
    assert not (tmp_path / "cluster").exists()
    end = time.monotonic() + 30
    while list(_processes("ray::encode: rows")) and time.monotonic() < end:
        time.sleep(0.1)
    assert not list(_processes("ray::encode: rows"))
    assert not list((tmp_path / "cache").rglob(".seen-by-workers*"))


@pytest.mark.slow
def test_what_workers_raise_and_refuse_is_told(python: str, cluster: str, tmp_path: Path) -> None:
    """Errors come through as themselves; what kills workers, differs or is not shared is named."""
    code = "import sys, pathlib, ray_tasks; ray_tasks.main(sys.argv[1], pathlib.Path(sys.argv[2]))"
    shared = tmp_path / "shared"
    words = (python, "-c", code, cluster, shared)
    ran = started(*words, folder=tmp_path, env=_variables(tmp_path)).ended()
    found = json.loads(ran.out)
    assert found["squares"] == {str(n): 1 + n * n for n in range(20)}
    assert found["bounded"] == {str(n): 2 + n * n for n in range(5)}
    assert found["where"] == [str(tmp_path), "false"]
    assert found["own"] == ["DataError", 3, "row 7 is bad. Correct it."]
    assert found["parity"] == ["ParityError", None, "a.jsonl:1: input_ids"]
    assert found["odd"][0] == "PipelineError"
    assert "OnlyHereError" in found["odd"][2]
    assert found["poison"][:2] == ["SurroundingsError", 5]
    assert found["poison"][2].startswith("2 killed its worker 3 times (")
    assert sum("; it is made again." in line for line in found["lost"]) == 2
    name, code_, told = found["versions"]
    assert (name, code_) == ("UsageError", 2)
    assert "The machine " in told
    assert "pyarrow" in told
    assert "instead of 1.2.3" in told
    assert found["folders"][:2] == ["UsageError", 2]
    assert "does not see /absent of the driver" in found["folders"][2]
    assert found["left"] == []
    assert found["handlers"]


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_said_so(python: str, tmp_path: Path) -> None:
    """With status 5; an address for programs outside of a cluster with 2."""
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    for address, status, told in (
        ("127.0.0.1:9", 5, "There is no Ray cluster at 127.0.0.1:9"),
        ("ray://127.0.0.1:9", 2, "from outside of the cluster"),
    ):
        process = _build(python, tmp_path, address, "a.jsonl")
        _, err = process.communicate(timeout=120)
        assert process.returncode == status, err
        assert told in err


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed")
def test_without_ray_the_extra_is_named(pipeline: Run, tmp_path: Path) -> None:
    """One sentence on what to install; an address without the engine is refused, too."""
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    pipeline("run", "sft", "a.jsonl", "--model", NAME, "-o", "out", "--engine", "ray").refused(
        2, "pip install 'posttrain-pipeline[ray]'"
    )
    pipeline("run", "sft", "a.jsonl", "--model", NAME, "--ray-address", "auto").refused(
        2, "is for --engine ray"
    )
