"""The schedules of ``examples/schedules``: each is parsed by its own tool, and its commands run.

Tools that are no dependency of the tests are looked for on ``PATH`` and in the folders that
``SCHEDULERS`` lists, which ``make test-schedules`` installs them into; a test whose tool is nowhere
is skipped.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, SAMPLES, program, read_manifest, started, sweep, table, tool

from pipeline.publish.check import check

SCHEDULES = ROOT / "examples" / "schedules"
PROGRAM = shutil.which("pipeline", path=str(Path(sys.executable).parent))

DRAWN = sweep(3, "schedulers")  # each of them takes half a minute to start


class Project:
    """A folder with a recipe and its data, and commands that run in it."""

    def __init__(self, folder: Path, cache_home: Path) -> None:
        self.folder = folder
        (folder / "data").mkdir(parents=True)
        shutil.copyfile(SAMPLES / "sft" / "word_problems.jsonl", folder / "data" / "a.jsonl")
        shutil.copyfile(SCHEDULES / "recipe.toml", folder / "recipe.toml")
        assert PROGRAM is not None
        self.variables = {
            **os.environ,
            "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(cache_home),
            "HF_HUB_OFFLINE": "1",
            "PUBLISH_TO": str(folder.parent / "published"),
            "POSTTRAIN_FOLDER": str(folder),
        }

    def run(self, *command: str, **more: str) -> str:
        """Run a command; what it printed."""
        return started(*command, folder=self.folder, env={**self.variables, **more}).ended().out

    def require_published(self, build: str = "releases/current") -> None:
        """The build is there, and so is its copy."""
        published = self.folder.parent / "published"
        assert check(published, self.folder).faults == []
        build_id = read_manifest(self.folder / build)["build_id"]
        assert read_manifest(published)["build_id"] == build_id


@pytest.fixture
def project(tmp_path, cache_home) -> Project:
    """Nothing is built in it yet."""
    return Project(tmp_path / "project", cache_home)


def moved(text: str, project: Project) -> str:
    """An example with the paths of this machine in place of its own."""
    assert PROGRAM is not None
    bin_folder = str(Path(PROGRAM).parent)
    return text.replace("/opt/posttrain/bin", bin_folder).replace(
        "/srv/posttrain", str(project.folder)
    )


def cron_lines() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Variables of the crontab, and each time with its command."""
    variables, jobs = {}, []
    for line in (SCHEDULES / "crontab").read_text("utf-8").splitlines():
        if re.match(r"[A-Z_]+=", line):
            name, _, value = line.partition("=")
            variables[name] = value
        elif line and not line.startswith("#"):
            *when, command = line.split(maxsplit=5)
            jobs.append((" ".join(when), command))
    return variables, jobs


@DRAWN
def test_cron(project):
    """cron gives the command to the shell of SHELL, with the variables above it and little else."""
    variables, [(_, command)] = cron_lines()
    assert "%" not in command  # cron would end the command there
    kept = {name: project.variables[name] for name in ("XDG_CACHE_HOME", "HF_HUB_OFFLINE")}
    given = {name: moved(value, project) for name, value in variables.items()}
    given["PUBLISH_TO"] = project.variables["PUBLISH_TO"]
    started(
        *(variables["SHELL"], "-c", moved(command, project)),
        folder=project.folder.parent,
        env={"HOME": str(project.folder), **given, **kept},
    ).ended()
    project.require_published()


def test_times_are_cron_times():
    """Of cron and of all that took its five fields over."""
    croniter = pytest.importorskip("croniter").croniter
    actions = yaml.safe_load((SCHEDULES / "github-actions.yml").read_text("utf-8"))
    cronjob = yaml.safe_load((SCHEDULES / "kubernetes-cronjob.yaml").read_text("utf-8"))
    times = [when for when, _ in cron_lines()[1]]
    times += [one["cron"] for one in actions[True]["schedule"]]  # YAML 1.1 reads "on" as true
    times.append(cronjob["spec"]["schedule"])
    for name in ("airflow_dag.py", "dagster_job.py"):
        times += re.findall(r'schedule="([^"]+)"', (SCHEDULES / name).read_text("utf-8"))
    assert len(times) == 5
    assert all(croniter.is_valid(when) for when in times)


def unit_commands(project: Project) -> Iterable[list[str]]:
    """What the service starts, with its variables put in as systemd does."""
    text = moved((SCHEDULES / "posttrain-data.service").read_text("utf-8"), project)
    for line in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE):
        yield line.replace("${PUBLISH_TO}", project.variables["PUBLISH_TO"]).split()


def step_commands(project: Project) -> Iterable[list[str]]:
    """The steps of GitHub Actions that are commands, but for the installation."""
    workflow = yaml.safe_load((SCHEDULES / "github-actions.yml").read_text("utf-8"))
    for step in workflow["jobs"]["build"]["steps"]:
        if "run" in step and step["name"] != "Install":
            yield ["bash", "-e", "-c", step["run"]]


def container_commands(project: Project) -> Iterable[list[str]]:
    """The command of the container of Kubernetes, in the folder that the volume stands for."""
    cronjob = yaml.safe_load((SCHEDULES / "kubernetes-cronjob.yaml").read_text("utf-8"))
    job = cronjob["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == container["name"]
    yield [*container["command"], *container["args"]]


@DRAWN
@pytest.mark.parametrize("commands", [unit_commands, step_commands, container_commands])
def test_its_commands_build_and_publish(project, commands):
    """One after another."""
    for command in commands(project):
        project.run(*command)
    project.require_published()


def test_systemd_units_are_valid(project, tmp_path):
    """By ``systemd-analyze verify``, which also looks for the programs."""
    program = tool("systemd-analyze")
    names = ("posttrain-data.service", "posttrain-data.timer")
    for name in names:
        (tmp_path / name).write_text(moved((SCHEDULES / name).read_text("utf-8"), project), "utf-8")
    ran = started(program, "verify", *(tmp_path / name for name in names)).ended()
    assert "posttrain-data" not in ran.err


def test_github_actions_is_valid():
    """By the schema of workflows."""
    command = (tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows")
    started(*command, SCHEDULES / "github-actions.yml").ended()


@DRAWN
def test_kubernetes_is_valid():
    """By the schemas of its API."""
    started(tool("kubernetes-validate"), "--strict", SCHEDULES / "kubernetes-cronjob.yaml").ended()


@DRAWN
def test_slurm(project):
    """bash runs it as Slurm would; a stand-in for sbatch notes the next run."""
    shutil.copyfile(SCHEDULES / "slurm.sbatch", project.folder / "slurm.sbatch")
    stand_in = program(project.folder / "bin" / "sbatch", 'echo "$@" > submitted')
    path = f"{stand_in.parent}:{project.variables['PATH']}"
    project.run("bash", "slurm.sbatch", PATH=path)
    project.require_published()
    assert (
        project.folder / "submitted"
    ).read_text().strip() == "--begin=tomorrow 02:17 slurm.sbatch"
    head = (SCHEDULES / "slurm.sbatch").read_text("utf-8").splitlines()
    directives = [line for line in head if line.startswith("#SBATCH")]
    assert directives
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=\S+", line) for line in directives)


@DRAWN
def test_dvc(project):
    """``dvc repro`` builds, and does nothing where nothing changed."""
    program = tool("dvc")
    shutil.copyfile(SCHEDULES / "dvc.yaml", project.folder / "dvc.yaml")
    own = {"DVC_NO_ANALYTICS": "1", "HOME": str(project.folder.parent)}
    project.run(program, "init", "--no-scm", "--quiet", **own)
    project.run(program, "repro", **own)
    project.require_published("build")
    assert json.loads((project.folder / "published.json").read_text())["status"] == "published"
    assert "up to date" in project.run(program, "repro", **own)
    with (project.folder / "data" / "a.jsonl").open("a") as data:
        data.write(json.dumps({"messages": [
            {"role": "user", "content": "What is 2 and 2?"}, {"role": "assistant", "content": "4."}
        ]}) + "\n")  # fmt: skip
    before = read_manifest(project.folder / "build")["build_id"]
    project.run(program, "repro", **own)
    assert read_manifest(project.folder / "build")["build_id"] != before
    project.require_published("build")


def by_python(project: Project, program: str, code: str, **more: str) -> Any:
    """Run code with the Python of a tool's own environment; the JSON of its last line."""
    python = str(Path(tool(program)).parent / "python")
    return json.loads(project.run(python, "-W", "ignore", "-c", code, **more).splitlines()[-1])


@DRAWN
def test_airflow(project, tmp_path):
    """The DAG is imported without an error, and runs; a recipe that is refused is final."""
    program = tool("airflow")
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copyfile(SCHEDULES / "airflow_dag.py", dags / "airflow_dag.py")
    own = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
    }
    project.run(program, "db", "migrate", **own)
    project.run(program, "dags", "test", "training_data", "2026-01-02", **own)
    project.require_published()
    code = table("scripts.toml")["airflow_dag"].replace("FOLDER", str(dags))
    errors, order = by_python(project, "airflow", code, **own)
    assert errors == {}
    assert order == {"build": ["publish"], "publish": [], "refused": ["failed"]}


@DRAWN
def test_dagster(project, tmp_path):
    """Its job runs in one process: both assets are made."""
    code = table("scripts.toml")["dagster_job"].replace("FOLDER", str(SCHEDULES))
    home = {"DAGSTER_HOME": "", "HOME": str(tmp_path)}
    assert by_python(project, "dagster", code, **home) == [
        True,
        ["published_data", "training_data"],
    ]
    project.require_published()
