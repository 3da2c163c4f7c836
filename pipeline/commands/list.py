"""``pipeline list``: what there is to choose from."""

from __future__ import annotations

import click

_KINDS = ("models", "formats", "tasks", "stages", "expectations")


def _models() -> list[tuple[str, str]]:
    from stages.profiles import all_profiles

    return [(name, ", ".join(p.model_ids)) for name, p in sorted(all_profiles().items())]


def _summary(package: str, name: str) -> str:
    import importlib

    text = importlib.import_module(f"{package}.{name}").__doc__ or ""
    return " ".join(text.strip().split("\n\n")[0].split())


def _formats() -> list[tuple[str, str]]:
    from stages import catalog

    return [(name, _summary("stages.formats", name)) for name in catalog.names("stages.formats")]


def _tasks() -> list[tuple[str, str]]:
    from stages import catalog

    return [(name, _summary("pipeline.tasks", name)) for name in catalog.names("pipeline.tasks")]


def _expectations() -> list[tuple[str, str]]:
    from expectations.suite import invariants

    return [(law.name, law.why) for law in invariants()]


def _stages() -> list[tuple[str, str]]:
    from pipeline.stage_table import stage_table

    return [
        (f"{task} {name}", f"{', '.join(reads)} -> {', '.join(writes) or 'the same rows, judged'}")
        for task, name, reads, writes in stage_table()
    ]


@click.command(name="list", help="What there is to choose from.")
@click.argument("kind", type=click.Choice(_KINDS))
def COMMAND(kind: str) -> None:
    """Two columns: a name and what it is."""
    rows = {
        "models": _models,
        "formats": _formats,
        "tasks": _tasks,
        "stages": _stages,
        "expectations": _expectations,
    }[kind]()
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")
