"""``pipeline commit``: what the ranks of a job array have made becomes a published build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pipeline.commands import _ranks

if TYPE_CHECKING:
    from pipeline.build import MadeParts, Prepared, Report


def _joined(prepared: Prepared, report: Report) -> MadeParts:
    from pipeline.build import ranks

    return ranks.joined(prepared)


@click.command(
    name="commit",
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
    from pipeline.run_build import build_and_report, build_each

    if len(configs) == 1:
        build_and_report(configs[0], as_json, quiet, _joined)
    else:
        build_each(configs, as_json, quiet, _joined)
