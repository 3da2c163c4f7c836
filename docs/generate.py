"""Writes the generated pages from the program itself: docs/reference.md, docs/extending.md, the
tables of docs/formats.md, docs/recipes.md, docs/dependencies.md and the guides (docs/guides.py),
the JSON Schema of recipes, docs/suites/, and from what was measured docs/performance.md,
docs/scale.md and the costs in docs/reliability.md.

And docs/codes/, a page for each code of pipeline explain. With --check it only compares.

python docs/generate.py [--check]
"""

import difflib
import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

from benchmarks import page, tables, worked
from benchmarks.figures import Figures
from benchmarks.sampled import NETS
from docs import code_pages, dependencies, guides, rooms
from docs.guides import table
from expectations.contract import APART, PLANNED, RENDERED, Context
from expectations.gx_suites import shipped
from expectations.invariants import invariants
from pipeline import tasks
from pipeline.builder.stagewise import stage_table
from pipeline.options import build_options, help_page, recipe_model
from pipeline.tasks import kind_of
from posttrain_pipeline.commands import cli
from posttrain_pipeline.list_commands import audits, columns, formats, trainers
from stages import catalog

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "reference.md"
SUITES = ROOT / "docs" / "suites"


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            if found := command.get_command(context, inner):
                yield from _commands(found, f"{name} {inner}")


_HEAD = """# Reference

Written by `make docs`; the tests compare it. It says what `pipeline COMMAND --help` says, but has
the options of a build once: a command names those that it takes, and lists below its examples what
else it takes or reads otherwise. Every command takes `-h` or `--help` (show its help) and `--debug`
(show the traceback of an error). Square brackets behind an option have its default and its limits;
round ones name the tasks that read it, where others do not, or say that it is for recipes.
"""
Options = dict[str, tuple[str, str]]  # as they are spelled: heading and sentence


def _options(command: click.Command) -> Options:
    """What a command takes beside what every command takes."""
    return {
        ", ".join(f"`{way}`" for way in (spelled, *option.secondary_opts)): (heading, text)
        for heading, found in help_page.by_heading(command, help_page.Context(command)).items()
        for option, (spelled, text) in found
        if option.opts[-1] not in ("--debug", "--help")
    }


def _item(spelled: str, sentence: str) -> str:
    return f"- {spelled}: {' '.join(sentence.split()).replace('<', '&lt;')}"


def _section(name: str, command: click.Command, build: Options) -> list[str]:
    """A command: what it does, its examples, and what it takes."""
    context, found = help_page.Context(command), _options(command)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    said = [*(command.help or "").split(), f"Usage: `{usage}`."]
    if taken := [one for one in build if found.get(one) == build[one]]:
        others = [one for one in build if one not in found]
        start, named = ("", taken) if len(taken) < len(others) else ("all but ", others)
        flags = re.findall(r"`(?:-o, )?(--(?!no-)[\w-]+)", " ".join(named))
        which = start + ", ".join(f"`{flag}`" for flag in flags) if flags else "all"
        said.append(f"[Options of a build](#options-of-a-build): {which}.")
    lines = [f"## {name}", "", " ".join(said), ""]
    if examples := getattr(command, "examples", ()):
        lines += ["```sh", *(f"{words}  # {does}" for words, does in examples), "```", ""]
    own = [_item(one, found[one][1]) for one in found if one not in taken]
    if isinstance(command, help_page.Group):
        at = name.replace(" ", "-")
        for heading, rows in command.listed_by_heading(context).items():
            own.append(_item(heading, ", ".join(f"[{one}](#{at}-{one})" for one, _ in rows)))
    return [*lines, *own, ""] if own else lines


def reference() -> str:
    """The page."""
    commands = dict(_commands(cli, "pipeline"))
    build = _options(commands["pipeline build"])
    build.pop("`RECIPE`")
    read = {task: _options(commands[f"pipeline run {task}"]) for task in tasks.names()}
    lines = [*_HEAD.split("\n"), *_section("pipeline", commands.pop("pipeline"), build)]
    lines += ["## Options of a build", ""]
    for heading, rows in groupby(build, lambda one: build[one][0]):
        lines += [f"### {heading}", ""]
        for one in rows:
            by = [task for task in read if one in read[task]]
            only = "" if by == [*read] else f" ({', '.join(by) or 'recipes'})"
            lines.append(_item(f"{one}{only}", build[one][1]))
        lines.append("")
    for name, command in commands.items():
        lines += _section(name, command, build)
    lines += ["## Formats", "", table(("format", "what a row is"), formats())]
    families = sorted(path.stem for path in (ROOT / "docs" / "families").glob("*.md"))
    named = ", ".join(f"[{family}](families/{family}.md)" for family in families)
    lines += ["## Models", "", f"Profiles and hub ids are on the page of a family: {named}.", ""]
    head = ("trainer", "versions read, and layouts by task")
    lines += ["## Trainers", "", table(head, trainers())]
    stages = [(t, f"`{n}`", ", ".join(r), ", ".join(w)) for t, n, r, w in stage_table()]
    lines += ["## Stages", "", table(("task", "stage", "reads", "writes"), stages)]
    lines += ["## Audits", "", table(("audit", "what it looks at (tolerances)"), audits())]
    laws = [(f"`{law.name}`", law.severity, law.level, law.why) for law in invariants()]
    head = ("invariant", "severity", "about", "why")
    lines += ["## Invariants", "", table(head, laws)]
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
    made = table(("format", "what", "columns, the usual one first"), rows)
    return _BLOCK.sub(lambda _: made, guides.pages()[FORMATS])


RECIPES = ROOT / "docs" / "recipes.md"
_KEYS = re.compile(r"(?<=<!-- keys of recipes -->\n).*(?=<!-- end of keys -->)", re.DOTALL)


def _keys() -> Iterator[tuple[str, str, str, str, str]]:
    """Each key for the table of the docs: key, value, default, where, what for."""
    for option in build_options.EVERY.values():
        where = ["top"] if option.name in recipe_model.TOP else []
        where += ["source"] if option.name in recipe_model.SOURCE else []
        where += ["build"] if option.name in recipe_model.BUILD else []
        value = recipe_model.default_of(option)
        default = "" if value in (None, "", ()) else json.dumps(value)
        yield option.key, option.value.words, default, ", ".join(where), option.help


def recipes_page() -> str:
    """The page about recipes with its table of keys as they are now."""
    head = ("key", "value", "default", "where", "what it is for")
    rows = [
        (f"`{key}`", value, f"`{default}`" if default else "", where, sentence)
        for key, value, default, where, sentence in _keys()
    ]
    made = table(head, rows)
    return _KEYS.sub(lambda _: made, RECIPES.read_text("utf-8"))


RELIABILITY = ROOT / "docs" / "reliability.md"
_COST = re.compile(r"(?<=<!-- cost of the witness -->\n).*(?=<!-- end of cost -->)", re.DOTALL)


def reliability_page() -> str:
    """The page about reliability with what each net costs, on its line and in a table."""
    text, figures = RELIABILITY.read_text("utf-8"), Figures()
    for name in NETS:
        line = re.compile(rf"^(\| {re.escape(name)} \|.*\|)[^|\n]*\|$", re.MULTILINE)
        text = line.sub(rf"\1 {tables.net(figures, name)} |", text)
    made = tables.witness(figures) + "\n"
    return _COST.sub(lambda _: made, text)


EXTENDING = ROOT / "docs" / "extending.md"
# What can be added: the folder, and the modules with helper functions beside those in the folder.
_EXTENSIONS: dict[str, tuple[str, ...]] = {
    "stages.formats": ("stages.rows.column_names",),
    "stages.readers": ("stages.files.file_version", "stages.files.line_block"),
    "stages.tokenizers.profiles": ("stages.tokenizers.profiles",),
    "stages.tokenizers.probes": ("stages.tokenizers.probes", "stages.tokenizers.token_probes"),
    "stages.kinds": ("stages.rows.carried", "stages.rows.examples"),
    "stages.tokens.layouts": ("stages.columns",),
    "pipeline.tasks": ("pipeline.tasks", "pipeline.inputs.declared"),
    "pipeline.exports": ("pipeline.exports",),
    "pipeline.executors": ("pipeline.executors",),
    "posttrain_pipeline.commands": ("pipeline.options.command_line", "pipeline.builds.build"),
    "expectations.invariants": ("expectations.contract", "expectations.contract"),
    "expectations.audits": ("expectations.audits",),
}


def _helpers(package: str) -> list[str]:
    """Modules of a folder that are no extension themselves: their names begin with one ``_``."""
    path = getattr(importlib.import_module(package), "__path__", ())
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
            rows.append((f"`{call}`", text))
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
        path = package.replace(".", "/")
        path += "/" if (ROOT / path).is_dir() else ".py"
        lines += [f"`{path}`; group `posttrain_pipeline.{folder}`.", ""]
        modules = [*_helpers(package), *others]
        lines += [] if modules else ["It needs no helper functions.", ""]
        for module in modules:
            rows = _functions(module)
            if rows:
                lines += [table((f"`{module}`", "what it does"), rows)]
    return "\n".join(lines)


def exported() -> dict[Path, str]:
    """The shipped suites of every task and layout, in the JSON of Great Expectations."""
    found = {}
    for name in catalog.names("pipeline.tasks"):
        for layout in tasks.load(name).layouts:
            context = Context(kind_of(name), layout, 0, None, PLANNED, (RENDERED, APART))
            content = [suite.described() for suite in shipped(context)]
            text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            found[SUITES / f"{name}-{layout}.json"] = text
    return found


def pages() -> dict[Path, str]:
    """Every generated file with the text that it should have."""
    return {
        **guides.pages(),
        TARGET: reference(),
        EXTENDING: extending(),
        FORMATS: formats_page(),
        RECIPES: recipes_page(),
        RELIABILITY: reliability_page(),
        recipe_model.SCHEMA: recipe_model.schema_text(),
        page.PAGE: page.text(),
        worked.PAGE: worked.page(),
        **code_pages.codes(),
        dependencies.PAGE: dependencies.text(),
        rooms.PAGE: rooms.text(),
        **exported(),
    }


def stale() -> str:
    """What differs between the generated files and what they should be; empty when nothing does."""
    current = pages()
    gone = sorted({*code_pages.CODES.glob("*.md")} - current.keys())
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
    code_pages.CODES.mkdir(exist_ok=True)
    current = pages()
    for path in {*code_pages.CODES.glob("*.md")} - current.keys():
        path.unlink()  # of a code that there is no more
    for path, text in current.items():
        path.write_text(text, "utf-8")
