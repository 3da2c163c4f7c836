"""A build as a job array of Slurm, on two machines that are daemons here: the same bytes.

Slurm is no dependency of the tests: it is looked for in the folders that ``SCHEDULERS`` lists, into
one of which ``make test-clusters`` unpacks Debian's packages; where it is nowhere, this is skipped.
"""

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import NAME
from stub_s3 import BUCKET, serve_s3
from support import ROOT, SAMPLES, files_of

from pipeline.stores import open_store

SCRIPT = ROOT / "examples" / "clusters" / "slurm-array.sh"
PROGRAMS = Path(sys.executable).parent
RECIPE = (
    f'task = "sft"\nmodel = "{NAME}"\ndata = ["data/*.jsonl"]\noutput = "out"\n'
    "keep = 0\nworkers = 1\nshuffle = true\n"
)
SETTINGS = (ROOT / "tests" / "tables" / "slurm.conf").read_text("utf-8")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _until(done: Callable[[], Any], why: Callable[[], str], seconds: float = 120) -> Any:
    """What ``done`` gives, as soon as it gives something."""
    end = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < end, why()
        time.sleep(0.05)
    return found


class Slurm:
    """A controller and two machines, and commands for them.

    Args:
        root: where the packages are unpacked.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        (plugins,) = root.glob("usr/lib/*/slurm*/auth_none.so")
        libraries = f"{plugins.parent.parent}:{plugins.parent}"
        settings = SETTINGS.format(
            host=socket.gethostname().partition(".")[0],
            ports=_free_ports(3),
            user=getpass.getuser(),
            plugins=plugins.parent,
            folder=folder,
        )
        (folder / "slurm.conf").write_text(settings)
        self.variables = {
            **os.environ,
            "LD_LIBRARY_PATH": libraries,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{PROGRAMS}:{root}/usr/bin:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1",
        }
        self._programs = {
            name: str(next((root / "usr" / "sbin").glob(f"{name}*")))
            for name in ("slurmctld", "slurmd", "slurmstepd")
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons, and wait for both machines."""
        self._daemon("slurmctld", "-D", "-c")
        for name in ("n1", "n2"):
            self._daemon("slurmd", "-D", "-N", name, "-d", self._programs["slurmstepd"])
        _until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D") == "2", self.log, 60)

    def _daemon(self, name: str, *arguments: str) -> None:
        command = [self._programs[name], *arguments]
        with (self.folder / "out").open("ab") as out:
            started = subprocess.Popen(command, env=self.variables, stdout=out, stderr=out)
        self._daemons.append(started)

    def stop(self) -> None:
        """End the daemons and all their jobs."""
        self.run("scancel", "--user", getpass.getuser())
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def log(self) -> str:
        """What the daemons have said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def run(self, *command: str, folder: Path | None = None) -> str:
        """Run a command; what it printed, with what went wrong."""
        done = subprocess.run(
            command,
            cwd=folder or self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return (done.stdout + done.stderr).strip()


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    """Two machines."""
    sbatch = shutil.which("sbatch", path=os.environ.get("SCHEDULERS", ""))
    if sbatch is None:
        pytest.skip("slurm is not installed")
    (tmp_path / "slurm").mkdir()
    slurm = Slurm(Path(sbatch).resolve().parent.parent.parent, tmp_path / "slurm")
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def _rank(number: int, command: str) -> int | None:
    """The process of a rank of the job array."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                title = (process / "cmdline").read_bytes()
                variables = (process / "environ").read_bytes()
            except OSError:  # it has ended
                continue
            runs = b"python" in title.partition(b"\0")[0] and f"\0{command}\0".encode() in title
            if runs and f"SLURM_ARRAY_TASK_ID={number}\0".encode() in variables:
                return int(process.name)
    return None


def _submit(slurm: Slurm, folder: Path) -> None:
    jobs = slurm.run("bash", str(SCRIPT), "recipe.toml", "3", folder=folder)
    assert len(jobs.split()) == 3, jobs


def _kill_a_rank(slurm: Slurm, folder: Path) -> None:
    """Submit the jobs, end one rank of the parts by force, and wait until nothing runs."""
    _submit(slurm, folder)
    process = _until(lambda: _rank(1, "parts"), slurm.log)
    os.kill(process, signal.SIGKILL)
    _until(lambda: slurm.run("squeue", "-h") == "", slurm.log)
    assert "shards" not in _logs(folder)
    told = slurm.run("pipeline", "commit", "recipe.toml", folder=folder)
    assert "parts are missing: those of rank 1 of 3." in told, told


def _logs(folder: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text()}" for path in folder.glob("*.log"))


def _work(folder: Path, output: str) -> None:
    """A recipe with its data, in a new folder."""
    (folder / "data").mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE.replace('"out"', f'"{output}"'))
    for name in ("chat", "turn_weights", "word_problems", "zh_dialogues"):
        shutil.copyfile(SAMPLES / "sft" / f"{name}.jsonl", folder / "data" / f"{name}.jsonl")


def _built_by_one(slurm: Slurm, folder: Path) -> dict[str, bytes]:
    """The same recipe in one process with an empty cache, into a folder."""
    slurm.variables["XDG_CACHE_HOME"] = str(folder / "another")
    told = slurm.run("pipeline", "build", "recipe.toml", "-o", "one", "--quiet", folder=folder)
    assert (folder / "one" / "manifest.json").exists(), told
    return files_of(folder / "one")


@pytest.mark.slow
def test_a_job_array_whose_rank_is_killed_makes_the_same_build(
    slurm: Slurm, tmp_path: Path
) -> None:
    """The jobs after it do not begin; commit names the rank; the script goes on where it was."""
    folder = tmp_path / "work"
    _work(folder, "out")
    slurm.variables["XDG_CACHE_HOME"] = str(folder / "cache")
    _kill_a_rank(slurm, folder)
    assert not (folder / "out").exists()
    _submit(slurm, folder)
    _until(lambda: slurm.run("squeue", "-h") == "", slurm.log)
    assert (folder / "out" / "manifest.json").exists(), _logs(folder)
    assert _built_by_one(slurm, folder) == files_of(folder / "out")


@pytest.mark.slow
def test_a_job_array_puts_its_build_into_a_store(slurm: Slurm, tmp_path: Path) -> None:
    """With a rank that is killed as well: nothing is in the store until the build is whole."""
    folder = tmp_path / "work"
    with serve_s3(tmp_path) as s3:
        slurm.variables.update(s3.environment)
        _work(folder, f"s3://{BUCKET}/out")
        slurm.variables["XDG_CACHE_HOME"] = str(folder / "cache")
        _kill_a_rank(slurm, folder)
        assert not [path for way, path, _ in s3.requests if way == "PUT" and ".arrow" in path]
        _submit(slurm, folder)
        _until(lambda: slurm.run("squeue", "-h") == "", slurm.log)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in s3.environment.items():
                patch.setenv(name, value)
            store = open_store(f"s3://{BUCKET}/out")
            current = store.get("current")
            assert current is not None, _logs(folder)
            version = json.loads(current)["build_id"]
            names = [name for name in store.list(version) if not name.endswith("run.json")]
            built = {name.partition("/")[2]: store.get(name) for name in names}
        assert built == _built_by_one(slurm, folder)
