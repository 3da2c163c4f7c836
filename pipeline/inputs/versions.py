"""What the bytes of a build depend on beside its options and inputs: this code, and libraries.

Machines that make one build together must agree in all of it, or the build would depend on which
machine made what.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from pipeline.inputs.kept_answers import code_version
from stages.errors import UsageError

CODE = "this program's code"
LIBRARIES = (
    "datasets",
    "fastokens",
    "jinja2",
    "numpy",
    "orjson",
    "polars",
    "pyarrow",
    "tokenizers",
    "xxhash",
    "zstandard",
)
ABSENT = "not installed"


@cache
def here() -> Mapping[str, str]:
    """The versions in this process, by what they are of."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {CODE: code_version(), "Python": python, **{name: _of(name) for name in LIBRARIES}}


def _of(library: str) -> str:
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
