"""The docs say what the program does: generated pages are current, commands run."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

from support import ROOT, SAMPLES


def test_the_reference_is_current() -> None:
    """docs/reference.md is what docs/generate.py writes."""
    page = runpy.run_path(str(ROOT / "docs" / "generate.py"))["reference"]()
    assert (ROOT / "docs" / "reference.md").read_text("utf-8") == page


def test_every_command_of_the_readme_runs(tmp_path: Path, cache_home: Path) -> None:
    """The commands of README's shell blocks run as they are written."""
    os.symlink(SAMPLES, tmp_path / "sample_data")
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if line]
    assert len(commands) >= 5
    for line in commands:
        program, *arguments = shlex.split(line)
        done = subprocess.run(
            [str(Path(sys.executable).parent / program), *arguments],
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(cache_home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_readme_names_real_files() -> None:
    """Every local link of the README leads somewhere."""
    text = (ROOT / "README.md").read_text("utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / link).exists(), link


def test_every_public_name_of_the_catalog_is_explained() -> None:
    """Formats, readers, tasks, invariants and commands open with a sentence."""
    for folder in (
        "stages/formats",
        "stages/readers",
        "stages/probes",
        "pipeline/tasks",
        "expectations/invariants",
        "pipeline/commands",
    ):
        for path in (ROOT / folder).glob("[a-z]*.py"):
            assert re.match(r'"""[A-Z`].+\.', path.read_text("utf-8"), re.DOTALL), path


def test_the_version_is_in_one_place() -> None:
    """Package and metadata agree."""
    from importlib.metadata import version

    from pipeline import __version__

    assert version("posttrain-pipeline") == __version__
