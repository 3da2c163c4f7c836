"""Writes the generated pages from the program itself: docs/reference.md, docs/extending.md, the
tables of docs/formats.md, docs/recipes.md, docs/dependencies.md and the guides (docs/guides.py),
the JSON Schema of recipes, the commands as `pipeline --help` lists them, docs/suites/,
docs/performance.md and docs/scale.md from what was measured.

And docs/codes/, a page for each code of pipeline explain. With --check it only compares.

python docs/generate.py [--check]
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import pkgutil
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from benchmarks import page, worked
from docs import dependencies
from expectations.contract import PLANNED, Context
from expectations.gx.suites import shipped
from expectations.invariants import invariants
from pipeline import tasks
from pipeline.cli import LISTED, cli, listed_text
from pipeline.commands.list import audits, columns, formats, models, trainers
from pipeline.explain import explanations
from pipeline.explain import page as code_page
from pipeline.options import recipe_model
from pipeline.stagewise.stage_table import stage_table
from pipeline.tasks import kind_of
from stages import catalog

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference.md"
SUITES = ROOT / "docs" / "suites"


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _commands(found, (*path, name))


def _help(path: tuple[str, ...]) -> str:
    ran = CliRunner(env={"COLUMNS": "98"}).invoke(
        cli, [*path, "--help"], prog_name="pipeline", terminal_width=98
    )
    return ran.output.rstrip()


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def reference() -> str:
    """The page."""
    lines = ["# Reference", "", "Written by `make docs`; the tests compare it.", ""]
    for path in _commands(cli, ()):
        lines += [f"## {' '.join(('pipeline', *path))}", "", "```", _help(path), "```", ""]
    lines += ["## Formats", "", *_table(("format", "what a row is"), formats()), ""]
    lines += ["## Models", "", *_table(("profile", "hub id"), models()), ""]
    head = ("trainer", "versions read, and layouts by task")
    lines += ["## Trainers", "", *_table(head, trainers()), ""]
    stages = [(t, f"`{n}`", ", ".join(r), ", ".join(w)) for t, n, r, w in stage_table()]
    lines += ["## Stages", "", *_table(("task", "stage", "reads", "writes"), stages), ""]
    lines += ["## Audits", "", *_table(("audit", "what it looks at (tolerances)"), audits()), ""]
    laws = [(f"`{law.name}`", law.severity, law.level, law.why) for law in invariants()]
    head = ("invariant", "severity", "about", "why")
    lines += ["## Invariants", "", *_table(head, laws), ""]
    return "\n".join(lines)


FORMATS = ROOT / "docs" / "formats.md"
_BLOCK = re.compile(r"(?<=<!-- columns by format -->\n).*(?=<!-- end of columns -->)", re.DOTALL)
_WIDE = 300  # characters of a line that a difference shows
_MOST = 6  # names of one meaning that the page lists


def formats_page() -> str:
    """The page about formats with its table of columns as they are now."""
    rows = []
    for name, meaning, names in columns():
        listed = names.split()
        more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
        rows.append((f"`{name}`", meaning, ", ".join(f"`{n}`" for n in listed[:_MOST]) + more))
    table = "\n".join(_table(("format", "what", "columns, the usual one first"), rows))
    return _BLOCK.sub(lambda _: f"{table}\n", FORMATS.read_text("utf-8"))


RECIPES = ROOT / "docs" / "recipes.md"
_KEYS = re.compile(r"(?<=<!-- keys of recipes -->\n).*(?=<!-- end of keys -->)", re.DOTALL)


def recipes_page() -> str:
    """The page about recipes with its table of keys as they are now."""
    head = ("key", "value", "default", "where", "what it is for")
    rows = [
        (f"`{key}`", value, f"`{default}`" if default else "", where, sentence.replace("|", "\\|"))
        for key, value, default, where, sentence in recipe_model.rows()
    ]
    table = "\n".join(_table(head, rows))
    return _KEYS.sub(lambda _: f"{table}\n", RECIPES.read_text("utf-8"))


CODES = ROOT / "docs" / "codes"


def codes() -> dict[Path, str]:
    """A page for each code, and one that lists them."""
    groups = [explanations.group(name) for name in explanations.GROUPS]
    every = [one for group in groups for one in group.codes]
    found = {CODES / f"{one.page}.md": code_page.markdown(one) for one in every}
    return found | {CODES / "index.md": code_page.index(groups)}


EXTENDING = ROOT / "docs" / "extending.md"
# What can be added: the folder, and the modules with helper functions beside those in the folder.
_EXTENSIONS: dict[str, tuple[str, ...]] = {
    "stages.formats": ("stages.rows.watched",),
    "stages.readers": ("stages.files.file_version", "stages.files.strict_json"),
    "stages.profiles": ("stages.profiles",),
    "stages.probes": ("stages.probes", "stages.probes.tokens"),
    "stages.kinds": ("stages.rows.batches", "stages.conversations.examples"),
    "stages.layouts": ("stages.columns",),
    "pipeline.tasks": ("pipeline.tasks", "pipeline.recipe.stage_tools"),
    "pipeline.exports": ("pipeline.exports",),
    "pipeline.executors": (),
    "pipeline.commands": ("pipeline.options.command_line", "pipeline.build_dir.build"),
    "expectations.invariants": ("expectations.checks", "expectations.contract"),
    "expectations.audits": ("expectations.audits",),
}


def _helpers(package: str) -> list[str]:
    """Modules of a folder that are no extension themselves: their names begin with one ``_``."""
    path = importlib.import_module(package).__path__
    names = [module.name for module in pkgutil.iter_modules(path)]
    return [f"{package}.{name}" for name in names if re.match(r"_[a-z]", name)]


def _functions(module: str) -> list[tuple[str, ...]]:
    """Public functions and classes of a module, with the first sentence of each docstring."""
    found = importlib.import_module(module)
    rows = []
    for name, value in vars(found).items():
        own = getattr(value, "__module__", None) == module
        if (
            own
            and not name.startswith("_")
            and (inspect.isroutine(value) or inspect.isclass(value))
        ):
            text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
            named = inspect.signature(value).parameters if inspect.isroutine(value) else None
            call = name if named is None else f"{name}({', '.join(named)})"
            rows.append((f"`{call}`", text.replace("|", "\\|")))
    return rows


def extending() -> str:
    """The page of helper functions for everything that can be added."""
    lines = [
        "# Helpers for extensions",
        "",
        "Written by `make docs`; the tests compare it. [CONTRIBUTING.md](../CONTRIBUTING.md) has a",
        "complete file for each of these folders. A module whose name begins with `_` may change",
        "without notice.",
        "",
    ]
    for package, others in _EXTENSIONS.items():
        folder = package.rpartition(".")[2]
        lines += [f"## {folder.capitalize()}", ""]
        lines += [f"`{package.replace('.', '/')}/`; group `posttrain_pipeline.{folder}`.", ""]
        modules = [*_helpers(package), *others]
        lines += [] if modules else ["It needs no helper functions.", ""]
        for module in modules:
            rows = _functions(module)
            if rows:
                lines += [*_table((f"`{module}`", "what it does"), rows), ""]
    return "\n".join(lines)


def exported() -> dict[Path, str]:
    """The shipped suites of every task and layout, in the JSON of Great Expectations."""
    found = {}
    for name in catalog.names("pipeline.tasks"):
        for layout in tasks.load(name).layouts:
            context = Context(kind_of(name), layout, 0, None, PLANNED)
            content = [suite.described() for suite in shipped(context)]
            text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            found[SUITES / f"{name}-{layout}.json"] = text
    return found


def pages() -> dict[Path, str]:
    """Every generated file with the text that it should have."""
    guides = runpy.run_path(str(ROOT / "docs" / "guides.py"))["pages"]()
    return {
        **guides,
        TARGET: reference(),
        EXTENDING: extending(),
        FORMATS: formats_page(),
        RECIPES: recipes_page(),
        recipe_model.SCHEMA: recipe_model.schema_text(),
        LISTED: listed_text(),
        page.PAGE: page.text(),
        worked.PAGE: worked.page(),
        **codes(),
        dependencies.PAGE: dependencies.text(),
        **exported(),
    }


def stale() -> str:
    """What differs between the generated files and what they should be; empty when nothing does."""
    current = pages()
    gone = sorted({*CODES.glob("*.md")} - current.keys())
    differences = [f"{path.relative_to(ROOT)} is of no code" for path in gone]
    for path, text in current.items():
        old = path.read_text("utf-8") if path.exists() else ""
        name = path.relative_to(ROOT).as_posix()
        ends = (f"{name} (committed)", f"{name} (now)")
        found = difflib.unified_diff(old.splitlines(), text.splitlines(), *ends, n=0, lineterm="")
        differences += [line if len(line) <= _WIDE else f"{line[:_WIDE]}…" for line in found]
    return "\n".join(differences)


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        found = stale()
        sys.exit(f"{found}\nout of date; write them with: make docs" if found else 0)
    SUITES.mkdir(exist_ok=True)
    CODES.mkdir(exist_ok=True)
    current = pages()
    for path in {*CODES.glob("*.md")} - current.keys():
        path.unlink()  # of a code that there is no more
    for path, text in current.items():
        path.write_text(text, "utf-8")
