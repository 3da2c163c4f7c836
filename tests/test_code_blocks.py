"""No code in the docs is untested: each block is run or read by the program, or is said to be text.

``sh`` runs as it stands (tests/test_docs.py and tests/test_guides.py); of ``bash`` commands, which
need what the tests have not, names and options exist. ``python`` runs, ``toml`` is a recipe or a
profile that is read, ``json`` is JSON. What is printed, or shows a shape, is ``text``. Examples of
docs/codes are those of tests/test_explain.py, and those of CONTRIBUTING.md of test_extending.py.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import click
import pytest
from support import ROOT, Ran, run_python
from test_guides import PAGES

from pipeline.cli import cli
from pipeline.options.recipe import builds_of
from stages.tokenizers import profiles

Run: TypeAlias = Callable[..., Ran]

DOCS = ROOT / "docs"
RUN_ELSEWHERE = {ROOT / "README.md", *PAGES}  # whose blocks sh run


class Block(NamedTuple):
    """A block of code; ``line`` is where it begins."""

    page: Path
    line: int
    kind: str
    text: str


def _blocks(page: Path) -> list[Block]:
    """Fenced blocks, and those that four blanks make, whose kind is empty."""
    found: list[Block] = []
    kind: str | None = None
    lines = page.read_text("utf-8").splitlines()
    listed = False  # in a list, four blanks continue an item
    for number, line in enumerate(lines, 1):
        fence = re.match(r" *```+(\w*)$", line)
        if fence is not None and kind is None:
            kind, begun, text = fence[1], number, []
        elif fence is not None:
            assert kind is not None
            found.append(Block(page, begun, kind, "\n".join(text)))
            kind = None
        elif kind is not None:
            text.append(line)
        elif line.strip():
            before = lines[number - 2].strip() if number > 1 else ""
            if re.match(r" {4}\S", line) and not before and not listed:
                found.append(Block(page, number, "", line))
            listed = bool(re.match(r" *([-*]|\d+\.) ", line)) or (listed and line[0] == " ")
    assert kind is None, f"{page.name}: a block is not closed"
    return found


# Generated pages are tested with what generates them.
GENERATED = {DOCS / "reference.md", *(DOCS / "codes").glob("*.md")}
EVERY = [
    block
    for page in sorted({*DOCS.rglob("*.md"), ROOT / "README.md"} - GENERATED)
    for block in _blocks(page)
]


def of(*kinds: str) -> list[Block]:
    """The blocks of some kinds."""
    return [block for block in EVERY if block.kind in kinds]


def name(block: Block) -> str:
    """Where a block stands."""
    return f"{block.page.relative_to(ROOT).as_posix()}:{block.line}"


def test_every_block_says_what_it_is() -> None:
    """No other kinds, and no block of four blanks, of which nothing says what it is."""
    known = {"sh", "bash", "python", "toml", "json", "text"}
    others = [name(block) for block in EVERY if block.kind not in known]
    assert not others
    assert {block.kind for block in EVERY} >= {"sh", "bash", "python", "toml", "text"}


def test_blocks_that_run_are_on_pages_whose_blocks_are_run() -> None:
    """Of which test_docs.py and test_guides.py have a list."""
    assert [name(block) for block in of("sh") if block.page not in RUN_ELSEWHERE] == []


_PROGRAMS = ("pip", "make", "pytest", "duckdb", "sh", "python", ".venv/bin/python")


def _targets() -> set[str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    return set(re.findall(r"^([\w-]+):", text, re.MULTILINE))


_EMPTY = click.Context(cli)


def _require_command(words: list[str]) -> None:
    """A command of ours with options that it has."""
    command: click.Command | None = cli
    words = words[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        if command.name == "versions" and words[0] not in command.list_commands(_EMPTY):
            break  # pipeline versions DIR
        command = command.get_command(_EMPTY, words.pop(0))
    assert command is not None
    known = {option for one in command.params for option in one.opts} | {"-h", "--help"}
    assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= known


@pytest.mark.parametrize(
    "block", [block for block in of("bash") if block.page not in PAGES], ids=name
)
def test_commands_that_cannot_run_here_exist(block: Block) -> None:
    """Programs, targets of make, files and options of ours."""
    for line in block.text.replace("\\\n", " ").splitlines():
        for part in re.split(r" && |; do |; ", line.partition(" #")[0]):
            words = shlex.split(part, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words.pop(0)  # a variable of the environment
            if not words or words[0] in ("for", "done", "wait"):
                continue
            if words[0] == "pipeline":
                _require_command([word for word in words if word not in ("&", "done")])
            else:
                assert words[0] in _PROGRAMS, part
            for word in words[1:]:
                if words[0] == "make":
                    assert word in _targets(), part
                if word.endswith(".py"):
                    assert (ROOT / word).is_file(), part


def test_json_is_json() -> None:
    """Each line is a value, or the whole block is one."""
    for block in of("json"):
        try:
            json.loads(block.text)
        except ValueError:
            for line in block.text.splitlines():
                assert json.loads(line) is not None, name(block)


@pytest.mark.parametrize("block", of("toml"), ids=name)
def test_toml_is_a_recipe_or_a_profile(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program reads it; a part of a recipe is read with what a recipe must have."""
    monkeypatch.setenv("EXTRA", str(tmp_path))
    (tmp_path / "evals").mkdir()
    for file in ("gsm8k.jsonl", "more.parquet"):  # that a recipe names
        (tmp_path / "evals" / file).touch()
    path = tmp_path / "file.toml"
    table = tomllib.loads(block.text)
    if block.page.stem == "profiles":
        path.write_text(block.text, "utf-8")
        assert (profiles.models_of if "models" in table else profiles.load)(path)
        return
    needed = {"task": '"sft"', "model": '"qwen2-1.5b"', "data": '["data.jsonl"]'}
    missing = [] if "build" in table or "source" in table else needed.keys() - table.keys()
    lines = [f"{key} = {needed[key]}" for key in missing]
    path.write_text("\n".join([*lines, block.text]), "utf-8")
    assert builds_of(path, trust=True)


# Pages whose Python other tests run.
PYTHON_ELSEWHERE = {"tutorial", "python", "README"}
PYTHON = [block for block in of("python") if block.page.stem not in PYTHON_ELSEWHERE]


def _with_torch(block: Block) -> bool:
    return "torch" in block.text


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for b in PYTHON if not _with_torch(b)], ids=name)
def test_python_runs(block: Block, pipeline: Run, tmp_path: Path, cache_home: Path) -> None:
    """In a folder where DIR is a build, with an index of packs where the page is about that."""
    rows = [{"prompt": f"What is {n} + 1?", "completion": f"It is {n + 1}."} for n in range(300)]
    (tmp_path / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    indexed = ["--index-only"] if block.page.stem == "index" else []
    done = pipeline("run", "sft", "data.jsonl", "--model", "qwen2-1.5b", "-o", "DIR", *indexed)
    assert done.status == 0, done.err
    ran = run_python(block.text, tmp_path, XDG_CACHE_HOME=str(cache_home))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("block", [b for b in PYTHON if _with_torch(b)], ids=name)
def test_python_that_needs_torch_names_what_there_is(block: Block) -> None:
    """What it imports of ours is defined there; tests/training and tests/failures use it."""
    imported = [
        node
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipeline")
    ]
    assert imported
    for node in imported:
        path = ROOT / str(node.module).replace(".", "/")
        text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
        for one in node.names:
            assert re.search(rf"\b{one.name}\b", text), one.name
