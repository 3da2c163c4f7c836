"""The guides: their commands run, their links lead somewhere, their versions are the tested ones.

A block ``sh`` is run as it stands, in a folder with ``sample_data/``. A block ``bash`` needs what
the tests have not (a trainer, a model, a download): what can be known of it is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support import ROOT, SAMPLES, Ran

from pipeline import exports, tasks
from pipeline.cli import cli
from stages.tokenizers.profiles import own_families

DOCS = ROOT / "docs"
FOLDERS = ("families", "trainers", "tasks", "how")
PAGES = sorted(path for folder in FOLDERS for path in (DOCS / folder).glob("*.md"))
PAGES += [DOCS / f"{stem}.md" for stem in ("failures", "tutorial", "commands", "output", "install")]


def blocks(page: Path, kind: str) -> list[str]:
    """The lines of a page's blocks of one kind, without comments."""
    text = page.read_text("utf-8")
    found = re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.splitlines() if line and line[0] != "#"]


def name(path: Path) -> str:
    """A page's path below ``docs/``."""
    return path.relative_to(DOCS).as_posix()


@pytest.mark.sweep(8)
@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=name)
def test_commands_run(page: Path, pipeline: Callable[..., Ran], tmp_path: Path) -> None:
    """In the order of the page; and launch scripts that the page starts then exist."""
    os.symlink(SAMPLES, tmp_path / "sample_data")
    for line in blocks(page, "sh"):
        program, *words = shlex.split(line)
        if page.stem == "tutorial" and "tiny" in line:
            break  # tests/training runs all of it
        assert program == "pipeline", line
        ran = pipeline(*words)
        assert ran.status == 0, f"{line}\n{ran.err}"
    for line in blocks(page, "bash"):
        program, *words = shlex.split(line)
        if program == "sh":
            assert (tmp_path / words[0]).is_file(), line


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash")], ids=name)
def test_commands_that_need_more_exist(page: Path) -> None:
    """Each is a command of ours with options that it has, a launch script, or an installation of
    what the parity tests run."""
    tested = {
        path.stem.rpartition("-")[::2] for path in (ROOT / "tests/parity/peers").glob("*.txt")
    }
    for line in blocks(page, "bash"):
        program, *words = shlex.split(line)
        if program == "pip":
            for requirement in words[1:]:
                package, _, version = requirement.partition("==")
                assert not version or (package, version) in tested, line
        elif program == "pipeline":
            found = cli
            while words and not words[0].startswith("-") and hasattr(found, "get_command"):
                found = found.get_command(None, words.pop(0))
                assert found is not None, line
            known = {option for one in found.params for option in one.opts}
            assert {word for word in words if word.startswith("-")} <= known, line
        else:
            assert program == "sh", line


def test_the_record_of_the_trainers_is_of_the_pinned_releases() -> None:
    """Its tests exist and passed, with the requirements that are pinned now.

    ``make compatibility`` writes the record; docs/compatibility.md shows it, and says which pinned
    releases have none.
    """
    folder = ROOT / "tests" / "parity"
    pinned = {path.stem: path.read_bytes() for path in (folder / "peers").glob("*.txt")}
    recorded = json.loads((folder / "ran.json").read_text("utf-8"))
    assert recorded
    assert set(recorded) <= set(pinned), "run `make compatibility`"
    page = (DOCS / "compatibility.md").read_text("utf-8")
    for peer in set(pinned) - set(recorded):
        assert f"| `{peer}` | not recorded |" in page
    for peer, said in recorded.items():
        now = hashlib.sha256(pinned[peer]).hexdigest()
        assert said["requirements"] == now, f"{peer} has other requirements now"
        assert said["tests"], peer
        assert set(said["tests"].values()) == {"passed"}, peer
        for test in said["tests"]:
            file, _, function = test.partition("[")[0].partition("::")
            assert f"def {function}(" in (ROOT / file).read_text("utf-8"), test


def test_every_trainer_task_and_family_has_its_page() -> None:
    """One page each; a text-only variant of a trainer is told on that trainer's page."""
    trainers = {path.stem for path in (DOCS / "trainers").glob("*.md")}
    assert trainers | {"openrlhf-text"} == set(exports.names())
    assert {path.stem for path in (DOCS / "tasks").glob("*.md")} == set(tasks.names())
    told = "".join(path.read_text("utf-8") for path in (DOCS / "families").glob("*.md"))
    found = re.findall(r"<!-- table: family (\w+) -->", told)
    assert sorted(found) == sorted(own_families())


@pytest.mark.slow
def test_pictures_are_current() -> None:
    """They are what ``docs/pictures.py`` draws from the builds that this version makes."""
    drawn = runpy.run_path(str(DOCS / "pictures.py"))["pages"]()
    assert len(drawn) == len(list((DOCS / "how").glob("*.svg"))) == 4
    for path, text in drawn.items():
        assert path.read_text("utf-8") == text, f"{path.name}: run docs/pictures.py"


_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


def _anchors(page: Path) -> set[str]:
    """What links may name in a page, as GitHub and mkdocs make it from headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head).strip().lower() for head in heads]
    return {head.replace(" ", "-") for head in plain}


LINKING = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that there is, and to a heading of it."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target, anchor in _LINK.findall(text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in _anchors(file), f"{target}#{anchor}"
