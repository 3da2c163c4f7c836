"""Peers as they were published, side by side in several versions, and builds to feed them."""

import importlib
import json
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import support
from datasets import fingerprint
from parity import ran as record
from parity.releases import peer_folder
from support import SAMPLES, started

Build = Callable[..., Path]
Use = Callable[..., Callable[[str], Any]]
Words = Callable[[Path, str, str], list[str]]
Train = Callable[..., list[dict[str, Any]]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test begins, and the releases that it takes are noted."""
    record.begin(f"tests/parity/{item.path.name}::{item.name}")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[Any]:
    """Its outcome: of its call, or of a setup that failed or was skipped."""
    report = yield
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        record.end(report.outcome)
    return report


def _forget(package: str) -> None:
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _their_warnings() -> Iterator[None]:
    """What other packages warn of is not judged here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(autouse=True)
def _drawn_fingerprints(monkeypatch) -> None:
    """``datasets`` hashes what it maps with, to know the outcome again: of a tokenizer that takes
    it ten seconds, and nothing is mapped twice here. Trainers' own programs do it as ever."""
    drawn = staticmethod(lambda value: fingerprint.generate_random_fingerprint())
    monkeypatch.setattr(fingerprint.Hasher, "hash", drawn)


@pytest.fixture
def peer(monkeypatch) -> Iterator[Use]:
    """``peer("trl", "1.16.0")`` gives an importer of that release's own modules.

    With ``bare``, packages on the way are entered without running their ``__init__``, which for
    some ask for kernels that need a GPU; the modules themselves run as they are.
    """
    used: list[str] = []

    def use(package: str, version: str, bare: tuple[str, ...] = ()) -> Callable[[str], Any]:
        root = peer_folder(f"{package}-{version}")
        names = {package, *(name.partition(".")[0] for name in bare)}
        for name in names:
            _forget(name)
        used.extend(names)
        monkeypatch.syspath_prepend(str(root))
        for name in bare:
            module = types.ModuleType(name)
            module.__path__ = [str(root / name.replace(".", "/"))]
            monkeypatch.setitem(sys.modules, name, module)
        return importlib.import_module

    yield use
    for package in used:
        _forget(package)


def _head(path: Path, folder: Path, count: int = 300) -> Path:
    """The first rows of a file of lines, or of one array."""
    made = folder / path.name
    if path.suffix == ".json":
        made.write_text(json.dumps(json.loads(path.read_bytes())[:count]))
    else:
        made.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:count]))
    return made


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> dict[str, Path]:
    """Raw rows by task: the real cases where they are at hand, else the sample data."""
    folder = os.environ.get("POSTTRAIN_CASES")
    if folder and Path(folder).is_dir():
        cases = Path(folder)
        return {
            "sft": next((cases / "sft" / "sharegpt_zh").glob("*.json*")),
            "single": _head(
                next((cases / "sft" / "gsm8k_train").glob("*.jsonl")),
                tmp_path_factory.mktemp("heads"),
            ),
            "rm": next((cases / "rm" / "lf_dpo_en").glob("*.json*")),
            "prm": next((cases / "prm" / "math_shepherd_40").glob("*.json*")),
        }
    return {
        "sft": SAMPLES / "sft" / "chat.jsonl",
        "single": SAMPLES / "sft" / "word_problems.jsonl",
        "rm": SAMPLES / "rm" / "pairs.jsonl",
        "prm": SAMPLES / "prm" / "math_shepherd.jsonl",
    }


@pytest.fixture
def build(pipeline, tmp_path) -> Build:
    """Build through the command line; returns the folder."""

    def make(task: str, data: Path, *options: object, model: str = "qwen2-1.5b") -> Path:
        record.now.tasks.add(task)
        name = f"build{len(list(tmp_path.iterdir()))}"
        more = ("--max-length", 16384, "--max-reject", 1, *options)
        pipeline("run", task, data, "--model", model, "-o", name, *more).ended()
        trainer = options[options.index("--for") + 1] if "--for" in options else ""
        beside = tmp_path / name / str(trainer)  # where it reads other columns than ours
        return beside if trainer and beside.is_dir() else tmp_path / name

    return make


@pytest.fixture
def words(tmp_path) -> Words:
    """``words(folder, "verl", "torchrun")``: what a launch script passes to the program it starts,
    which is not run; the model's directory is called MODEL."""

    def found(folder: Path, trainer: str, program: str) -> list[str]:
        said = tmp_path / "words.json"
        body = f"import json, sys; json.dump(sys.argv[1:], open({str(said)!r}, 'w'))"
        shim = support.program(tmp_path / "bin" / program, body, sys.executable)
        env = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"}
        subprocess.run(
            ["sh", folder / "launch" / f"{trainer}.sh", "MODEL"], check=True, env=env, cwd=tmp_path
        )
        return json.loads(said.read_text())

    return found


@pytest.fixture
def few(sources, tmp_path) -> dict[str, Path]:
    """The first rows of each source, for programs that train on everything they are given."""
    (tmp_path / "few").mkdir()
    return {name: _head(path, tmp_path / "few", 40) for name, path in sources.items()}


_COMMAND = """
import sys
sys.path.insert(0, {root!r})
sys.path += {here!r}
import absent, recorder
# numba's decorator compiles a function that runs as it is as well; of wandb no run is going on.
absent.stand_in(*{absent!r}, njit=lambda function: function, run=None)
{before}
if __name__ == "__main__":  # some start processes that import this again
    recorder.run({entry!r}, {out!r})
"""
ABSENT = {
    # What needs a GPU, sends something, or reports to some service; none is called.
    "axolotl": (
        "axolotl.monkeypatch.trainer.utils",  # imports triton
        *("bitsandbytes", "evaluate", "fastcore", "numba", "posthog", "wandb"),
    ),
    "llamafactory": ("torchaudio",),
}
COMMANDS = {
    "axolotl": ("axolotl", "axolotl.cli.main:main"),
    "llamafactory": ("llamafactory-cli", "llamafactory.cli:main"),
}


@pytest.fixture
def train(pipeline, tmp_path) -> Train:
    """Train on a build with its launch script; returns the batches that the model was given.

    The trainer is its own published program with the releases that it asks for, in a process of
    its own; the model is a tiny one, in a directory that ``pipeline overlay`` wrote. A batch has
    the tensors by name, what the model's trunk made of them (``hidden``), and ``training``.
    """

    def run(peer: str, build: Path, *options: str, before: str = "") -> list[dict[str, Any]]:
        import torch
        from parity.releases import overlaid

        name, out = peer.partition("-")[0], tmp_path / "batches.pt"
        root = peer_folder(peer)
        overlaid(pipeline, tmp_path, build)
        command, entry = COMMANDS[name]
        here = [str(folder) for folder in Path(__file__).parents[:2]]
        told = {"absent": ABSENT[name], "before": before, "entry": entry, "out": str(out)}
        body = _COMMAND.format(root=str(root), here=here, **told)
        shim = support.program(tmp_path / "bin" / command, body, sys.executable)
        variables = {
            **os.environ,
            "PATH": f"{shim.parent}:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1",
            "AXOLOTL_DO_NOT_TRACK": "1",
        }
        words = ("sh", build / "launch" / f"{name}.sh", tmp_path / "model", *options)
        started(*words, folder=tmp_path, env=variables).ended()
        return torch.load(out)

    return run
