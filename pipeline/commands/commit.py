"""``pipeline commit``: what the ranks of a job array have made becomes a published build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pipeline.commands import _ranks
from pipeline.options import headings as under
from pipeline.options.help_page import Command

if TYPE_CHECKING:
    from pipeline.builder.build import MadeParts, Prepared, Report

_EXAMPLES = (
    ("pipeline commit recipe.toml", "Publish what all runs have made"),
    ("pipeline commit recipe.toml --json --quiet", "The same, with its manifest on stdout"),
    ("pipeline commit data.jsonl --task sft --model qwen2-1.5b -o build", "Without a recipe"),
)


def _joined(prepared: Prepared, report: Report) -> MadeParts:
    from pipeline.builder import planning, ranks

    return ranks.joined(prepared, planning.reads_examples(prepared.config))


@click.command(
    name="commit",
    cls=Command,
    heading=under.MACHINES,
    examples=_EXAMPLES,
    help="Publish a build of the parts and shards that pipeline parts and pipeline shards have "
    "made; shards that are missing are made.",
)
@_ranks.of_builds(ranked=False)
def COMMAND(
    data: tuple[str, ...],
    task: str | None,
    changes: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """The last phase of a build in a job array: one run, after all others."""
    configs = _ranks.configs_of(data, task, changes, given)
    from pipeline.run_build import build_each

    build_each(configs, as_json, quiet, _joined)
