"""Scripts and configurations that exports write, each linted as what its name says it is."""

from __future__ import annotations

import itertools
import json
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support import ROOT, model_record, started

from pipeline import exports, tasks
from pipeline.exports import ExportFacts

TEMPLATES = ROOT / "pipeline" / "exports" / "scripts"
TOKENS = ("<|im_end|>", "a 'b\" \\n ${BUILD} {{ ки }}")  # an ordinary one, and one to be quoted
MODELS = [
    model_record(pad_token=x, eos_token=x, step_token=x, good_token=x, bad_token=x) for x in TOKENS
]
# Not asked of programs that are written: they print, and a value may make a line longer.
ASKED_OF_SOURCES_ONLY = "E501,I001,SIM401,T201"


def facts_of(name: str) -> Iterator[ExportFacts]:
    """Builds that differ in all that a template of this trainer may ask for."""
    for task in tasks.names():
        for layout in exports.load(name).takes.get(tasks.kind_of(task).trains_as, ()):
            for model, splits, rows, columns, without in itertools.product(
                MODELS, (("train",), ("train", "test")), (3, 40, 128), ((), ("margin",)), (0, 2)
            ):
                yield ExportFacts(
                    task,
                    layout,
                    512,
                    model,
                    columns=columns,
                    splits=splits,
                    rows=rows,
                    without_margin=without,
                )


def written(name: str, folder: Path) -> list[Path]:
    """Every different text that a trainer's templates become, in files."""
    export = exports.load(name)
    texts = {
        one
        for facts in facts_of(name)
        for one in {f"{name}.sh": export.launch(facts), **export.files(facts)}.items()
    }
    found = []
    for number, (file, text) in enumerate(sorted(texts)):
        path = folder / str(number) / file
        path.parent.mkdir()
        path.write_text(text, "utf-8")
        found.append(path)
    return found


@pytest.mark.parametrize("name", exports.names())
def test_what_is_written_is_well_formed(name: str, tmp_path: Path) -> None:
    """As a program, a script or a configuration, whatever the build and the tokens are."""
    paths = written(name, tmp_path)
    shells = [path for path in paths if path.suffix == ".sh"]
    for path in paths:
        text = path.read_text("utf-8")
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        match path.suffix:
            case ".sh":
                started("bash", "-n", path).ended()
            case ".py":
                compile(text, path, "exec")
            case ".yaml":
                assert isinstance(yaml.safe_load(text), dict)
            case ".toml":
                tomllib.loads(text)
            case ".json":
                json.loads(text)
            case other:
                pytest.fail(f"{path.name}: no linter for {other}")
    if shutil.which("shellcheck"):
        # a loop over the splits may have one
        started("shellcheck", "-S", "warning", "-e", "SC2043", *shells).ended()
    ruff = Path(sys.executable).with_name("ruff")
    rules = ("--config", ROOT / "pyproject.toml", "--extend-ignore", ASKED_OF_SOURCES_ONLY)
    started(ruff, "check", "--no-cache", *rules, tmp_path).ended()


def test_every_template_is_some_trainers(tmp_path: Path) -> None:
    """So that all of them are linted; those that others extend or include begin with ``_``."""
    names = {"forward.sh"}
    for name in exports.names():
        (tmp_path / name).mkdir()
        names |= {path.name for path in written(name, tmp_path / name)}
    here = {path.name for path in TEMPLATES.iterdir() if not path.name.startswith("_")}
    assert here == {f"{name}.jinja" for name in names}


def test_tokens_are_quoted_for_the_language(tmp_path: Path) -> None:
    """Whatever characters they have."""
    for name, task, file in (
        ("axolotl", "sft", "axolotl.yaml"),
        ("open-r1", "sft", "open-r1.yaml"),
    ):
        for token, model in zip(TOKENS, MODELS, strict=True):
            known = ExportFacts(task, "ragged", 512, model)
            config = yaml.safe_load(exports.load(name).files(known)[file])
            assert config.get("special_tokens", config)["eos_token"] == token
    for name in ("openrlhf", "openrlhf-text"):
        for token, model in zip(TOKENS, MODELS, strict=True):
            text = exports.load(name).launch(ExportFacts("prm", "ragged", 512, model))
            assert shlex.split(text, comments=True).count(token) == 3
