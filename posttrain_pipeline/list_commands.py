"""``pipeline list``, ``explain``, ``completion``: what there is, and what it means."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from pipeline import lines
from pipeline.options import shells
from pipeline.options.help_page import DATA, RUN, Choice, argument, command, group, option
from stages import catalog
from stages.errors import UsageError


def models() -> list[tuple[str, str]]:
    """Profiles and their hub ids."""
    from stages.tokenizers.profiles import all_profiles

    return [(name, ", ".join(p.model_ids)) for name, p in sorted(all_profiles().items())]


def formats() -> list[tuple[str, str]]:
    """Record formats and what a row is."""
    from stages import formats as known

    rows = []
    for name in catalog.names("stages.formats"):
        ways = [f"{name}/{way}" for way in known.load(name).variants]
        also_named = f" Also named: {', '.join(ways)}." if ways else ""
        rows.append((name, catalog.summary("stages.formats", name) + also_named))
    return rows


def columns() -> list[tuple[str, str, str]]:
    """What rows of each format may say, and the columns that it is read from."""
    from stages import formats as known

    return [
        (name, meaning, " ".join(names))
        for name in catalog.names("stages.formats")
        for meaning, names in known.load(name).columns.items()
    ]


def containers() -> list[tuple[str, str]]:
    """Containers, what they are, and the suffixes of their files."""
    from stages import readers

    summary = partial(catalog.summary, readers.__name__)
    names = catalog.names(readers.__name__)
    return [(name, " ".join([summary(name), *readers.load(name).suffixes])) for name in names]


def tasks() -> list[tuple[str, str]]:
    """Tasks and what they train."""
    package = "pipeline.tasks"
    return [(name, catalog.summary(package, name)) for name in catalog.names(package)]


def expectations() -> list[tuple[str, str]]:
    """Invariants and why they matter."""
    from expectations.invariants import invariants

    return [(law.name, law.why) for law in invariants()]


def audits() -> list[tuple[str, str]]:
    """Audits, what they look at, and their tolerances."""
    from expectations.audits import audits as every

    return [(one.name, f"{one.about}{_limits(one.tolerances)}") for one in every()]


def _limits(tolerances: Mapping[str, float]) -> str:
    text = ", ".join(f"{name} {value:g}" for name, value in tolerances.items())
    return f" ({text})" if text else ""


def stages() -> list[tuple[str, str]]:
    """Stages per task, with their columns."""
    from pipeline.builder.stagewise import stage_table

    return [
        (f"{task} {name}", f"{', '.join(reads)} -> {', '.join(writes) or 'the same rows, checked'}")
        for task, name, reads, writes in stage_table()
    ]


def trainers() -> list[tuple[str, str]]:
    """Trainers, the versions read, and the layouts that each task can be stored in."""
    from pipeline import exports, tasks

    rows = []
    for export in map(exports.load, exports.names()):
        taken = [(name, export.takes.get(tasks.kind_of(name).trains_as)) for name in tasks.names()]
        takes = "; ".join(f"{name}: {', '.join(layouts)}" for name, layouts in taken if layouts)
        rows.append((export.name, f"{export.versions}: {takes or 'nothing that is tokenized'}"))
    return rows


_KINDS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    listed.__name__: listed
    for listed in (models, formats, containers, tasks, stages, trainers, expectations, audits)
}


@command("list")
@argument("kind", metavar="KIND", type=Choice([*_KINDS]), heading=DATA)
@option("--columns", "with_columns", is_flag=True)
def COMMAND(kind: str, with_columns: bool) -> None:
    """Two columns: a name and what it is."""
    if with_columns and kind != "formats":
        raise UsageError("--columns works only with formats.", "pipeline list formats --columns")
    if with_columns:
        click.echo("\n".join(_column_lines(lines.width())))
        return
    click.echo("\n".join(lines.entries(_KINDS[kind](), lines.width(), most=26)))


def _column_lines(columns_wide: int) -> list[str]:
    """The NAMEs of ``--map``: for each format what it reads, and the names of each of these."""
    found: list[str] = []
    before = ""
    for name, meaning, names in columns():
        if columns_wide > lines.WIDE:
            found.append(f"{name:<18}  {meaning:<12}  {names}")
            continue
        found += [name] if name != before else []
        found += lines.wrapped(names, columns_wide, f"  {meaning:<18}  ")
        before = name
    return found


# ``pipeline explain``: what a code means, an example of it, and the fix.


def _codes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from pipeline.messages.explanations import GROUPS, INVARIANTS, group

    named = [name for name in GROUPS if name != INVARIANTS]  # those import the most
    codes = {one.code for name in named for one in group(name).codes}
    return [CompletionItem(code) for code in sorted(codes) if code.startswith(incomplete)]


@command("explain")
@argument("code", required=False, heading=DATA, shell_complete=_codes)
def EXPLAIN(code: str | None) -> None:
    """The same text as the page of the code in docs/codes."""
    from pipeline.messages import explanations

    if code is None:
        click.echo(explanations.listing([explanations.group(name) for name in explanations.GROUPS]))
        return
    click.echo("\n\n\n".join(map(explanations.plain, explanations.find(code))))


# ``pipeline completion``: the Tab key completes files, models, formats, trainers and builds.


_KNOWN = click.Choice(sorted(shells.shells()))
_SHELL = argument("shell", required=False, metavar="[SHELL]", type=_KNOWN, heading=RUN)


@group("completion")
def COMPLETION() -> None:
    """For bash, zsh and fish."""


def _named(shell: str | None) -> shells.Shell:
    name = shell or shells.own()
    if not name:
        known = ", ".join(sorted(shells.shells()))
        raise UsageError("$SHELL names no shell that is known.", f"Give one of {known}.")
    return shells.shells()[name]


def _listed(paths: list[Path], words: str) -> None:
    for path in paths:
        click.echo(f"{words} {path}")


@COMPLETION.subcommand("install")
@_SHELL
def install(shell: str | None) -> None:
    """A second time it writes nothing."""
    named = _named(shell)
    changed = shells.install(named)
    _listed(changed, "wrote")
    said = "Open a new shell to use it." if changed else "It was installed already."
    click.echo(f"{said} To undo it: pipeline completion remove {named.name}")


@COMPLETION.subcommand("remove")
@_SHELL
def remove(shell: str | None) -> None:
    """What else is in the shell's files stays."""
    changed = shells.remove(_named(shell))
    _listed(changed, "changed")
    if not changed:
        click.echo("It was not installed.")


@COMPLETION.subcommand("show")
@_SHELL
def show(shell: str | None) -> None:
    """Nothing is installed."""
    click.echo(_named(shell).script, nl=False)
