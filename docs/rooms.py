"""The table of the folders in CONTRIBUTING.md, from the import contracts of pyproject.toml and the
first sentence of each folder."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
_BLOCK = re.compile(r"(?<=<!-- rooms -->\n).*(?=<!-- end of rooms -->)", re.DOTALL)


def _contracts() -> list[dict[str, Any]]:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    contracts: list[dict[str, Any]] = tools["importlinter"]["contracts"]
    return [one for one in contracts if one["type"] == "layers"]


def _sentence(folder: str) -> str:
    """What a folder holds: the first sentence of its docstring."""
    text = (ROOT / folder / "__init__.py").read_text("utf-8")
    told = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(re.split(r"(?<=\.)\s|\n\n", told)[0].split()).replace("``", "`")


def _rows() -> Iterator[tuple[int, str]]:
    """Every folder with the number of its layer, from the top; those of one layer do not import
    each other."""
    packages, *inside = _contracts()
    layers = {one["containers"][0]: one["layers"] for one in inside if one.get("exhaustive")}
    number = 0
    for package in packages["layers"]:
        number += 1
        yield number, package
        for layer in layers.get(package, ()):
            folders = [f"{package}/{name}" for name in layer.split(" | ")]
            folders = [one for one in folders if (ROOT / one / "__init__.py").exists()]
            number += bool(folders)
            yield from ((number, folder) for folder in folders)


def text() -> str:
    """CONTRIBUTING.md with the picture as it should be."""
    lines = ["", "| layer | folder | what it holds |", "|---|---|---|"]
    lines += [f"| {number} | `{folder}` | {_sentence(folder)} |" for number, folder in _rows()]
    return _BLOCK.sub(lambda _: "\n".join([*lines, "", ""]), PAGE.read_text("utf-8"))
