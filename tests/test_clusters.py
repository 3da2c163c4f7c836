"""What ``examples/clusters`` has for machines in numbers: each is parsed by its tool, or run."""

import getpass
import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import NAME
from stub_s3 import BUCKET, S3Stub, serve_s3
from support import ROOT, SAMPLES, files_of, own_cache, started, sweep, tool
from test_docs import require_command

from pipeline.builds import store_versions
from pipeline.stores import open_store

CLUSTERS = ROOT / "examples" / "clusters"
PROGRAMS = Path(sys.executable).parent
DRAWN = sweep(4, "clusters")


def _read(name: str) -> Any:
    return yaml.safe_load((CLUSTERS / name).read_text("utf-8"))


def _pods(content: Any) -> list[Any]:
    """The pods of a job, as documents of their own."""
    if content["kind"] == "Job":
        templates = [content["spec"]["template"]]
    else:
        cluster = content["spec"]["rayClusterSpec"]
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        templates = [group["template"] for group in groups]
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": one["spec"]}
        for one in templates
    ]


def test_the_commands_of_all_examples_exist():
    """In their scripts and in their comments, with all their options."""
    job, ray = _read("kubernetes-indexed-job.yaml"), _read("kuberay-rayjob.yaml")
    require_command(_pods(job)[0]["spec"]["containers"][0]["command"])
    require_command(shlex.split(ray["spec"]["entrypoint"]))
    names = sorted(path.name for path in CLUSTERS.iterdir())
    assert len(names) == 5
    for name in names:
        text = (CLUSTERS / name).read_text("utf-8").replace("\n# ", " ")
        commands = [line.split('"')[0] for line in text.split("pipeline ")[1:]]
        assert commands or name == "one-machine.sh"
        for words in commands:
            named = words.split()[0].strip("'\"")
            if named in ("parts", "shards", "commit", "build"):
                options = [word for word in words.split() if word.startswith("--")]
                require_command(["pipeline", named, *options])


@DRAWN
@pytest.mark.parametrize("name", ["kubernetes-indexed-job.yaml", "kuberay-rayjob.yaml"])
def test_kubernetes_takes_its_pods(name, tmp_path):
    """And the job, where it is one of Kubernetes' own."""
    content = _read(name)
    documents = _pods(content) + ([content] if content["kind"] == "Job" else [])
    for number, document in enumerate(documents):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(document))
        started(tool("kubernetes-validate"), "--strict", path).ended()


@DRAWN
def test_ray_takes_its_cluster():
    """By the schema of ``ray up``."""
    code = (
        "import sys, yaml; from ray.autoscaler._private import util; "
        "util.validate_config(util.prepare_config(yaml.safe_load(open(sys.argv[1]))))"
    )
    python = Path(tool("ray")).parent / "python"
    started(python, "-c", code, CLUSTERS / "ray-cluster.yaml").ended()


@DRAWN
def test_one_machine_builds(tmp_path, cache_dir):
    """With its cache where the script puts it."""
    shutil.copyfile(SAMPLES / "sft" / "chat.jsonl", tmp_path / "chat.jsonl")
    recipe = f'task = "sft"\nmodel = "{NAME}"\ndata = ["chat.jsonl"]\noutput = "out"\nkeep = 0\n'
    (tmp_path / "recipe.toml").write_text(recipe)
    variables = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    variables["TMPDIR"] = str(tmp_path)
    variables.pop("XDG_CACHE_HOME", None)
    own_cache(tmp_path / "posttrain" / "posttrain-pipeline", cache_dir)
    script = CLUSTERS / "one-machine.sh"
    started("bash", script, "recipe.toml", folder=tmp_path, env=variables).ended()
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert list((tmp_path / "posttrain").rglob("*.arrow"))


# Builds on a Ray cluster of this machine, whose workers and machines die: the same bytes.

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
    return str(Path(tool("ray")).parent / "python")


@pytest.fixture(scope="module")
def cluster(python, s3, tmp_path_factory) -> Iterator[str]:
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
        address = process.stdout.readline().strip()
        assert address, (folder / "log").read_text()
        yield address
        process.communicate(timeout=60)


@pytest.fixture
def data(tmp_path) -> list[str]:
    """Six inputs, large enough to be seen while they are encoded."""
    names = [f"rows{number}.jsonl" for number in range(6)]
    for number, name in enumerate(names):
        with (tmp_path / name).open("w") as file:
            for row in range(ROWS):
                question = f"What is {number} times {row}? " + f"Explain {row % 7} steps. " * 12
                answer = f"It is {number * row}. " * (1 + row % 40)
                file.write(json.dumps({"prompt": question, "completion": answer}) + "\n")
    return names


def _until(done: Callable[[], Any], why: Callable[[], str], seconds: float = 120) -> Any:
    """What ``done`` gives, as soon as it gives something."""
    end = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < end, why()
        time.sleep(0.02)
    return found


def _wait(done: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """The same, while a process runs."""

    def why() -> str:
        process.kill()
        return str(process.communicate())

    return _until(lambda: process.poll() is not None or done(), why)


def _running(*names: str) -> Iterator[tuple[int, list[bytes]]]:
    """Ids of processes, with what is in these of their files in ``/proc``."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            yield int(process.name), [(process / name).read_bytes() for name in names]


def _processes(name: str) -> Iterator[tuple[int, int]]:
    """Ids of processes whose title begins so, with their parents'."""
    for own, (title, state) in _running("cmdline", "stat"):
        if title.startswith(name.encode()):
            yield own, int(state.rpartition(b")")[2].split()[1])


def _rank(number: int, command: str) -> int | None:
    """The process of a rank of the job array."""
    for own, (title, variables) in _running("cmdline", "environ"):
        runs = b"python" in title.partition(b"\0")[0] and f"\0{command}\0".encode() in title
        if runs and f"SLURM_ARRAY_TASK_ID={number}\0".encode() in variables:
            return own
    return None


def _stored(s3: S3Stub) -> dict[str, bytes | None]:
    """The files of the build in the store, but for the record of its run."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        store = open_store(f"s3://{BUCKET}/out")
        names = store.list(str(store_versions.current(store).build_id))
        found = {name.partition("/")[2]: store.get(name) for name in names}
    return {name: content for name, content in found.items() if name != "run.json"}


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


@DRAWN
def test_a_lost_worker_and_a_lost_machine_change_no_byte(pipeline, python, cluster, data, tmp_path):
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


@DRAWN
def test_a_cluster_that_shares_no_folder_meets_in_a_store(
    pipeline, python, s3, cluster, data, tmp_path
):
    """Workers put parts there, and the build goes there: the bytes of a local one."""
    names = [str(tmp_path / name) for name in data[:3]]
    cache, output = f"s3://{BUCKET}/cache", f"s3://{BUCKET}/out"
    places = ("--cache-dir", cache, "-o", output)
    process = _build(python, tmp_path, cluster, *names, *places, **s3.environment)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    stored = {path for way, path, _ in s3.requests if way == "PUT" and "/parts/" in path}
    assert len(stored) == 3 * 4
    pipeline("run", "sft", *names, *OPTIONS, "-o", "one").ended()
    assert _stored(s3) == files_of(tmp_path / "one")


@DRAWN
def test_an_interrupted_build_ends_as_everywhere(python, cluster, data, tmp_path):
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


@DRAWN
def test_what_workers_raise_and_refuse_is_told(python, cluster, tmp_path):
    """Errors come through as themselves; what kills workers, differs or is not shared is named."""
    code = "import sys, pathlib, ray_tasks; ray_tasks.main(sys.argv[1], pathlib.Path(sys.argv[2]))"
    words = (python, "-c", code, cluster, (tmp_path / "shared"))
    found = json.loads(started(*words, folder=tmp_path, env=_variables(tmp_path)).ended().out)
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


@DRAWN
def test_a_cluster_that_is_not_there_is_said_so(python, tmp_path):
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
def test_without_ray_the_extra_is_named(pipeline, tmp_path):
    """One sentence on what to install; an address without the engine is refused, too."""
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    pipeline("run", "sft", "a.jsonl", "--model", NAME, "-o", "out", "--engine", "ray").refused(
        2, "pip install 'posttrain-pipeline[ray]'"
    )
    pipeline("run", "sft", "a.jsonl", "--model", NAME, "--ray-address", "auto").refused(
        2, "is for --engine ray"
    )


# A build as a job array of Slurm, on two machines that are daemons here: the same bytes.

SCRIPT = ROOT / "examples" / "clusters" / "slurm-array.sh"
RECIPE = (
    f'task = "sft"\nmodel = "{NAME}"\ndata = ["data/*.jsonl"]\noutput = "s3://{BUCKET}/out"\n'
    "keep = 0\nworkers = 1\nshuffle = true\n"
)
SETTINGS = (ROOT / "tests" / "tables" / "slurm.conf").read_text("utf-8")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


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
def slurm(tmp_path) -> Iterator[Slurm]:
    """Two machines."""
    root = Path(tool("sbatch")).resolve().parent.parent.parent
    (tmp_path / "slurm").mkdir()
    slurm = Slurm(root, tmp_path / "slurm")
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def _logs(folder: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text()}" for path in folder.glob("*.log"))


def _built_by_one(slurm: Slurm, folder: Path) -> dict[str, bytes]:
    """The same recipe in one process with an empty cache, into a folder."""
    slurm.variables["XDG_CACHE_HOME"] = str(folder / "another")
    told = slurm.run("pipeline", "build", "recipe.toml", "-o", "one", "--quiet", folder=folder)
    assert (folder / "one" / "manifest.json").exists(), told
    return files_of(folder / "one")


@DRAWN
def test_a_job_array_puts_its_build_into_a_store(slurm, tmp_path):
    """A rank is killed, and the jobs after it do not begin; commit names it, and the script goes on
    where it was. Nothing is in the store until the build is whole."""
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "recipe.toml").write_text(RECIPE)
    for name in ("chat", "turn_weights", "word_problems", "zh_dialogues"):
        shutil.copyfile(SAMPLES / "sft" / f"{name}.jsonl", folder / "data" / f"{name}.jsonl")

    def submit() -> None:
        jobs = slurm.run("bash", str(SCRIPT), "recipe.toml", "3", folder=folder)
        assert len(jobs.split()) == 3, jobs

    with serve_s3(tmp_path) as s3:
        slurm.variables.update(s3.environment)
        slurm.variables["XDG_CACHE_HOME"] = str(folder / "cache")
        submit()
        os.kill(_until(lambda: _rank(1, "parts"), slurm.log), signal.SIGKILL)
        _until(lambda: slurm.run("squeue", "-h") == "", slurm.log)
        assert "shards" not in _logs(folder)
        told = slurm.run("pipeline", "commit", "recipe.toml", folder=folder)
        assert "parts are missing: those of rank 1 of 3." in told, told
        assert not [path for way, path, _ in s3.requests if way == "PUT" and ".arrow" in path]
        submit()
        _until(lambda: slurm.run("squeue", "-h") == "", slurm.log)
        assert _stored(s3) == _built_by_one(slurm, folder), _logs(folder)
