"""The rules of the house: layers, sizes, names, and what is never needed."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support import ROOT

PACKAGES = ("stages", "expectations", "pipeline", "posttrain_pipeline")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_MODULE = 350
MAX_FUNCTION = 50


def _broken_rules(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    if len(text.splitlines()) > MAX_MODULE:
        yield f"it has {len(text.splitlines())} lines"
    if not ast.get_docstring(tree):
        yield "it has no docstring"
    if path.stem in ("utils", "helpers", "common", "misc"):
        yield "its name says nothing"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > MAX_FUNCTION:
                yield f"{node.name} has {length} lines"
    for node in tree.body:
        public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"
        if public and not ast.get_docstring(node):
            yield f"{node.name} has no docstring"


def test_every_module_keeps_the_house_rules() -> None:
    """At most 350 lines, functions of at most 50, a docstring, and no drawer called utils."""
    assert len(MODULES) > 100
    broken = {str(path.relative_to(ROOT)): [*_broken_rules(path)] for path in MODULES}
    assert {path: rules for path, rules in broken.items() if rules} == {}


@pytest.mark.parametrize("package", ["expectations"])
def test_no_underscore_crosses_a_folder(package: str) -> None:
    """What starts with an underscore is imported in its own folder only."""
    for path in (ROOT / package).rglob("*.py"):
        folder = path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
                for name in node.names:
                    words = f"{node.module}.{name.name}".split(".")
                    hidden = [i for i, word in enumerate(words) if word.startswith("_")]
                    assert all(".".join(words[:i]) == folder for i in hidden), f"{path}: {words}"


def test_layers() -> None:
    """pipeline imports expectations imports stages, and never back; and the layers inside."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_torch_is_absent_and_nothing_asks_for_it() -> None:
    """No requirement, direct or through another package, brings torch."""
    assert importlib.util.find_spec("torch") is None
    seen: set[str] = set()
    waiting = ["posttrain-pipeline"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            wanted = [Requirement(line) for line in requires(name) or ()]
        except ModuleNotFoundError:
            continue  # asked for under another platform's marker
        waiting += [r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    assert "torch" not in seen
    assert {"tokenizers", "pyarrow", "click"} <= seen


def test_the_wheel_has_our_packages_and_their_data(tmp_path: Path) -> None:
    """The wheel's top level is ours alone, with templates and type markers."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    done = subprocess.run(
        [*map(str, command), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    for wanted in (
        "stages/profiles/chat_templates/qwen2.jinja",
        "stages/profiles/qwen2.toml",
        "pipeline/report/page.jinja",
        "pipeline/exports/scripts/trl.sh.jinja",
        "pipeline/exports/scripts/train_trl.py.jinja",
        "stages/py.typed",
        "pipeline/py.typed",
    ):
        assert wanted in names
