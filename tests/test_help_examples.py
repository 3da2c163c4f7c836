"""The examples that --help shows: each is run, in a folder with the files that it names."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from preloaded import Server, outputs
from stub_server import Stub, serve
from support import SAMPLES, Ran
from test_help import commands as every_command
from test_overlay import model_dir
from tokenizers import Tokenizer

from pipeline.cli import cli

Run = Callable[..., Ran]
_DATA = {
    "data.jsonl": "sft/word_problems.jsonl",
    "pairs.jsonl": "rm/pairs_margin.jsonl",
    "steps.jsonl": "prm/stepwise.jsonl",
}
_MODEL = ("--model", "qwen2-1.5b")
_SFT = ("run", "sft", "data.jsonl", *_MODEL, "--quiet", "-o")
_MADE = (
    (*_SFT, "build"),
    (*_SFT, "other", "--max-length", "512"),
    (*_SFT, "old", "--max-length", "1024"),
    (*_SFT, "releases", "--keep", "3"),
    (*_SFT, "releases", "--keep", "3", "--max-length", "512"),
    ("versions", "hold", "releases", "current"),
    ("versions", "hold", "releases", "current", "--as", "training"),
    ("overlay", "model", "--build", "build", "-o", "trained"),
    ("run", "sft", "data.jsonl", *_MODEL, "--until", "normalize", "-o", "rows.arrow"),
    ("run", "sft", "data.jsonl", *_MODEL, "--until", "render", "-o", "text.arrow"),
)
_RANKS = tuple(
    ("parts", *what, "--shard-id", str(rank), "--num-shards", "2", "--quiet")
    for what in (("recipe.toml",), ("data.jsonl", "--task", "sft", *_MODEL))
    for rank in (0, 1)
)
_BEFORE = {("shards",): _RANKS, ("commit",): _RANKS}  # what runs before some examples
_SHELL = ("$", "|", ">", "&&", "'")  # what only a shell reads


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, commands: Server, cache_home: Path) -> Path:
    """A folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    for name, source in _DATA.items():
        shutil.copy(SAMPLES / source, folder / name)
    ids = {"input_ids": [40, 1079, 1588, 151645], "labels": [-100, 1079, 1588, 151645]}
    (folder / "ids.jsonl").write_text(json.dumps(ids) + "\n")
    (folder / "recipe.toml").write_text(
        'task = "sft"\ndata = "data.jsonl"\nmodel = "qwen2-1.5b"\noutput = "from-recipe"\n'
        "keep = 0\n"
    )
    (folder / "cache").mkdir()
    model_dir(folder / "model", "BF16")
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1"}
    for words in _MADE:
        assert commands([*words], folder, variables) == 0, outputs(folder)[1].read_text("utf-8")
    return folder


@pytest.fixture
def here(prepared: Path, tmp_path: Path) -> Path:
    """A copy of it, where commands run."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True, symlinks=True)
    return tmp_path


@pytest.fixture
def url(prepared: Path) -> Iterator[str]:
    """A sound server of a model that was trained on the build."""
    files = prepared / "build" / "tokenizer"
    config = json.loads((files / "tokenizer_config.json").read_bytes())
    tokenizer = Tokenizer.from_file(str(files / "tokenizer.json"))
    with serve(Stub(tokenizer, config["chat_template"])) as address:
        yield address


def _examples() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    found = []
    for path in every_command():
        command: click.Command | None = cli
        for name in path:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name)
        if not isinstance(command, click.Group):
            found.append((path, tuple(words for words, _ in getattr(command, "examples", ()))))
    return found


def _in_shell(words: str, here: Path, variables: dict[str, str]) -> Ran:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", words],
        cwd=here,
        env={**os.environ, **variables, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.sweep(10)
@pytest.mark.slow
@pytest.mark.parametrize(("path", "examples"), _examples(), ids=lambda one: " ".join(one)[:40])
def test_the_examples_of_help_run(
    path: tuple[str, ...],
    examples: tuple[str, ...],
    here: Path,
    pipeline: Run,
    cache_home: Path,
    url: str,
) -> None:
    """Each ends with status 0, in the order of the page."""
    if path[:2] in (("run", "rm"), ("run", "prm")):
        shutil.copy(
            here / {"rm": "pairs.jsonl", "prm": "steps.jsonl"}[path[1]], here / "data.jsonl"
        )
    variables = {"XDG_CACHE_HOME": str(cache_home), "HF_HUB_OFFLINE": "1", "URL": url}
    variables |= {"HOME": str(here), "SHELL": "/bin/bash"}
    if path == ("stops",):
        shutil.rmtree(here / "model")
        (here / "trained").rename(here / "model")
    for before in _BEFORE.get(path, ()):
        assert pipeline(*before).status == 0
    assert len(examples) >= 1
    for words in examples:
        first = words.split()[0]
        if first != "pipeline" or any(mark in words for mark in _SHELL) or path[0] == "completion":
            ran = _in_shell(words, here, variables)
        else:
            ran = pipeline(*shlex.split(words)[1:])
        assert ran.status == 0, f"{words}\n{ran.out}{ran.err}"
