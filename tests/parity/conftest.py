"""Peers as they were published, side by side in several versions, and builds to feed them."""

from __future__ import annotations

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
from support import SAMPLES, Ran

PEERS = Path(os.environ.get("POSTTRAIN_PEERS", Path(sys.prefix) / "peers"))
Build = Callable[..., Path]
Use = Callable[..., Callable[[str], Any]]
Words = Callable[[Path, str, str], list[str]]


def _forget(package: str) -> None:
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _their_warnings() -> Iterator[None]:
    """What other packages warn of is not judged here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """``peer("trl", "1.16.0")`` gives an importer of that release's own modules.

    With ``bare``, packages on the way are entered without running their ``__init__``, which for
    some ask for kernels that need a GPU; the modules themselves run as they are.
    """
    used: list[str] = []

    def use(package: str, version: str, bare: tuple[str, ...] = ()) -> Callable[[str], Any]:
        root = PEERS / f"{package}-{version}"
        if not root.is_dir():
            pytest.fail(f"{root} is missing: make test-parity installs it")
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
    """The first lines of a file of lines."""
    lines = path.read_bytes().splitlines(keepends=True)[:count]
    made = folder / path.name
    made.write_bytes(b"".join(lines))
    return made


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
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
def build(pipeline: Callable[..., Ran], tmp_path: Path) -> Build:
    """Build through the command line; returns the folder."""

    def make(task: str, data: Path, *options: object, model: str = "qwen2-1.5b") -> Path:
        name = f"build{len(list(tmp_path.iterdir()))}"
        more = ("--max-length", 16384, "--max-reject", 1, *options)
        ran = pipeline("run", task, data, "--model", model, "-o", name, *more)
        assert ran.status == 0, ran.err
        trainer = options[options.index("--for") + 1] if "--for" in options else ""
        beside = tmp_path / name / str(trainer)  # where it reads other columns than ours
        return beside if trainer and beside.is_dir() else tmp_path / name

    return make


@pytest.fixture
def words(tmp_path: Path) -> Words:
    """``words(folder, "verl", "torchrun")``: what a launch script passes to the program it starts,
    which is not run; the model's directory is called MODEL."""

    def found(folder: Path, trainer: str, program: str) -> list[str]:
        shim, said = tmp_path / "bin" / program, tmp_path / "words.json"
        shim.parent.mkdir(exist_ok=True)
        body = f"import json, sys; json.dump(sys.argv[1:], open({str(said)!r}, 'w'))"
        shim.write_text(f"#!{sys.executable}\n{body}\n")
        shim.chmod(0o755)
        env = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"}
        subprocess.run(
            ["sh", folder / "launch" / f"{trainer}.sh", "MODEL"], check=True, env=env, cwd=tmp_path
        )
        made: list[str] = json.loads(said.read_text())
        return made

    return found
