"""What the bytes of a build depend on beside its options and inputs: this code, and libraries.

Machines that make one build together must agree in all of it, or the build would depend on which
machine made what.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from stages import catalog
from stages.errors import UsageError

CODE = "this program's code"
LIBRARIES = (
    "datasets fastokens jinja2 numpy orjson polars pyarrow tokenizers xxhash zstandard".split()
)
ABSENT = "not installed"


@cache
def here() -> Mapping[str, str]:
    """The versions in this process, by what they are of."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {CODE: code_version(), "Python": python, **{name: _of(name) for name in LIBRARIES}}


def _of(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # which take long to import

    try:
        return version(library)
    except PackageNotFoundError:
        return ABSENT


def require_alike(wanted: Mapping[str, str], who: str) -> None:
    """This process makes the bytes that another one makes.

    Args:
        wanted: the versions there; ``who``: this process, as the message names it.

    Raises:
        UsageError: it has other versions; the message says of what.
    """
    told = difference(wanted, here())
    if told:
        raise UsageError(
            f"{who} has {told}.",
            "Install the same versions of this program and of its libraries on every machine.",
        )


def difference(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What differs, in words; empty where nothing does."""
    names = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    return ", ".join(
        f"{name} {_short(found.get(name, ABSENT))} instead of {_short(wanted.get(name, ABSENT))}"
        for name in names
    )


def _short(text: str) -> str:
    return text[:12] if len(text) == 64 else text


# Hashes that name a recipe and a part: of options, profile and code.


def _sources(folder: Path) -> list[str]:
    """The paths of the code in a folder and below it, in one order everywhere. Every build
    asks as it starts; ``Path.rglob`` takes longer than all the reading."""
    return sorted(
        f"{place}/{name}"
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith((".py", ".jinja", ".toml"))
    )


@cache
def code_version() -> str:
    """Hash of this installation's code, and of what other packages add to it: a part made by other
    code is another part."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in ("expectations", "pipeline", "stages"):
        for name in _sources(root / package):
            path = Path(name)
            digest.update(f"{name.removeprefix(f'{root}/')}\0".encode())
            digest.update(path.read_bytes())
    for added in catalog.installed():
        digest.update(added)
    return digest.hexdigest()


def hash_of(value: object) -> str:
    """Of a value, as JSON with sorted keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
