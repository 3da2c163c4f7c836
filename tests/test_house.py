"""The rules of the house: sizes, names, and what is never needed."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support import ROOT

from pipeline import __version__

PACKAGES = ("stages", "expectations", "pipeline", "posttrain_pipeline")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_MODULE = 350
MAX_FUNCTION = 50


def _broken_rules(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    if (lines := len(text.splitlines())) > MAX_MODULE:
        yield f"it has {lines} lines"
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


def test_every_module_keeps_the_house_rules():
    """At most 350 lines, functions of at most 50, a docstring, no drawer called utils."""
    assert len(MODULES) > 100
    broken = {str(path.relative_to(ROOT)): [*_broken_rules(path)] for path in MODULES}
    assert {path: rules for path, rules in broken.items() if rules} == {}


def test_no_underscore_crosses_a_folder_of_expectations():
    """What starts with an underscore is imported in its own folder only."""
    for path in (ROOT / "expectations").rglob("*.py"):
        folder = path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
                for name in node.names:
                    words = f"{node.module}.{name.name}".split(".")
                    hidden = [i for i, word in enumerate(words) if word.startswith("_")]
                    assert all(".".join(words[:i]) == folder for i in hidden), f"{path}: {words}"


# The files of a release beside the packages: each agrees with the one place of its facts.

CONSTRAINTS = ROOT / ".ci" / "constraints.txt"


def _pinned() -> dict[str, str]:
    lines = CONSTRAINTS.read_text("utf-8").splitlines()
    pins = [line.partition("==")[::2] for line in lines if line and line[0] != "#"]
    return {canonicalize_name(name): version for name, version in pins}


def _group(groups: dict[str, Any], name: str) -> list[str]:
    wanted: list[str] = []
    for entry in groups[name]:
        wanted += [entry] if isinstance(entry, str) else _group(groups, entry["include-group"])
    return wanted


def _asked() -> list[Requirement]:
    """What the tests' environment installs: dependencies, and the group of developers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lines = project["project"]["dependencies"] + _group(project["dependency-groups"], "dev")
    return [Requirement(line) for line in lines]


def test_the_locked_version_is_one_that_is_asked_for():
    """Each requirement has a locked version that it allows."""
    pinned = _pinned()
    for asked in _asked():
        version = pinned.get(canonicalize_name(asked.name), "nothing")
        assert version in asked.specifier, f"{asked} is locked at {version}: make lock"


def test_locked_versions_are_exact_and_from_the_index():
    """No path, no address, no range."""
    for line in CONSTRAINTS.read_text("utf-8").splitlines():
        assert re.fullmatch(r"[\w.-]+==[\w.!+-]+", line), line


def test_every_file_has_the_version_of_the_package():
    """The changelog's newest version and the citation's are ``pipeline.__version__``."""
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == __version__ == version("posttrain-pipeline")
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [__version__]


def test_the_image_runs_our_command_without_rights():
    """Its last user is not root, it starts ``pipeline``, and what it copies is there."""
    lines = (ROOT / "Containerfile").read_text("utf-8").splitlines()
    words = [line.split() for line in lines if line[:1].isupper()]
    users = [line[1] for line in words if line[0] == "USER"]
    assert users[-1:] == ["pipeline"]
    assert [line[1:] for line in words if line[0] == "ENTRYPOINT"] == [['["pipeline"]']]
    copied = [path for line in words if line[:1] == ["COPY"] for path in line[1:-1]]
    ours = [path for path in copied if path[0] not in "-/"]
    assert {"stages", "expectations", "pipeline", "posttrain_pipeline"} <= set(ours)
    assert all((ROOT / path).exists() for path in ours)


def test_the_readme_fits_on_two_screens():
    """The rest is in docs/."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 110
