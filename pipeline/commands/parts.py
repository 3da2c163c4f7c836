"""``pipeline parts``: the parts of a build that one rank of a job array makes."""

from __future__ import annotations

from typing import Any

import click

from pipeline.commands import _ranks


@click.command(
    name="parts",
    help="Make one share of a build's parts, in one of several runs on as many machines.",
)
@_ranks.of_builds(ranked=True)
def COMMAND(
    data: tuple[str, ...],
    task: str | None,
    changes: tuple[str, ...],
    shard_id: int | None,
    num_shards: int | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """The first phase of a build in a job array; pipeline shards or pipeline commit is the next."""
    configs = _ranks.configs_of(data, task, changes, given)
    rank = _ranks.rank_of(shard_id, num_shards)
    from pipeline import run_ranks

    run_ranks.run_each(configs, run_ranks.parts, rank, as_json, quiet)
