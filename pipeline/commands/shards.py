"""``pipeline shards``: the shards of a build that one rank of a job array makes."""

from __future__ import annotations

from typing import Any

import click

from pipeline.commands import _ranks


@click.command(
    name="shards",
    help="Make one share of a build's shards, after all runs of pipeline parts.",
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
    """The second phase of a build in a job array, which may be left out, then pipeline commit."""
    configs = _ranks.configs_of(data, task, changes, given)
    rank = _ranks.rank_of(shard_id, num_shards)
    from pipeline import run_ranks

    run_ranks.run_each(configs, run_ranks.shards, rank, as_json, quiet)
