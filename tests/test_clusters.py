"""What ``examples/clusters`` has for machines in numbers: each is parsed by its tool, or run."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import NAME
from support import ROOT, SAMPLES, own_cache, started

from pipeline.cli import cli

CLUSTERS = ROOT / "examples" / "clusters"
PROGRAMS = Path(sys.executable).parent


def _tool(name: str) -> str:
    """The path of a program; without it the test is skipped."""
    found = shutil.which(name, path=os.environ.get("SCHEDULERS", ""))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _read(name: str) -> Any:
    return yaml.safe_load((CLUSTERS / name).read_text("utf-8"))


def _require_known(command: list[str]) -> None:
    """The program has the command, and the command its options."""
    name, *words = command[1:]
    found = cli.get_command(None, name)  # type: ignore[arg-type]
    assert found is not None
    known = {flag for one in found.params for flag in one.opts}
    assert {word for word in words if word.startswith("--")} <= known


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


def test_the_commands_of_all_examples_exist() -> None:
    """In their scripts and in their comments, with all their options."""
    job, ray = _read("kubernetes-indexed-job.yaml"), _read("kuberay-rayjob.yaml")
    _require_known(_pods(job)[0]["spec"]["containers"][0]["command"])
    _require_known(shlex.split(ray["spec"]["entrypoint"]))
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
                _require_known(["pipeline", named, *options])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kubernetes-indexed-job.yaml", "kuberay-rayjob.yaml"])
def test_kubernetes_takes_its_pods(name: str, tmp_path: Path) -> None:
    """And the job, where it is one of Kubernetes' own."""
    content = _read(name)
    documents = _pods(content) + ([content] if content["kind"] == "Job" else [])
    for number, document in enumerate(documents):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(document))
        command = [_tool("kubernetes-validate"), "--strict", str(path)]
        started(*command).ended()


@pytest.mark.slow
def test_ray_takes_its_cluster() -> None:
    """By the schema of ``ray up``."""
    code = (
        "import sys, yaml; from ray.autoscaler._private import util; "
        "util.validate_config(util.prepare_config(yaml.safe_load(open(sys.argv[1]))))"
    )
    python = str(Path(_tool("ray")).parent / "python")
    command = [python, "-c", code, str(CLUSTERS / "ray-cluster.yaml")]
    started(*command).ended()


@pytest.mark.slow
def test_one_machine_builds(tmp_path: Path, cache_dir: Path) -> None:
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
