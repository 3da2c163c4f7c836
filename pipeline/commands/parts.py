"""``pipeline parts``: the parts of a build that one rank of a job array makes."""

from __future__ import annotations

from typing import Any

import click

from pipeline.commands import _ranks
from pipeline.options import headings as under
from pipeline.options.help_page import Command

_EXAMPLES = (
    (
        "pipeline parts recipe.toml --shard-id 0 --num-shards 2",
        "The first of two runs, which may be on two machines",
    ),
    (
        "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2 pipeline parts recipe.toml",
        "The other one, as a job array says",
    ),
    (
        "pipeline parts data.jsonl --task sft --model qwen2-1.5b --shard-id 0 --num-shards 2",
        "Without a recipe",
    ),
)


@click.command(
    name="parts",
    cls=Command,
    heading=under.MACHINES,
    examples=_EXAMPLES,
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
