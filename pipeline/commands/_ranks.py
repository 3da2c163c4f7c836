"""What the commands of a job array have in common: which builds, and which rank this is."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipeline.messages.session import current
from pipeline.options import command_line as shared
from pipeline.options.help_page import command, option
from stages.errors import UsageError

if TYPE_CHECKING:
    from pipeline.builder.planning import MadeParts
    from pipeline.builder.preparation import Prepared
    from pipeline.builder.ranks import Rank
    from pipeline.messages.progress import Report

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Job arrays have the rank and how many there are in variables; Kubernetes does not say how many.
_RANK = (
    option(
        "--shard-id",
        type=click.IntRange(min=0),
        envvar=["SLURM_ARRAY_TASK_ID", "AWS_BATCH_JOB_ARRAY_INDEX", "JOB_COMPLETION_INDEX"],
        help="Number of this run, from 0 [SLURM_ARRAY_TASK_ID, AWS_BATCH_JOB_ARRAY_INDEX or "
        "JOB_COMPLETION_INDEX].",
    ),
    option(
        "--num-shards",
        type=click.IntRange(min=1),
        envvar=["SLURM_ARRAY_TASK_COUNT", "AWS_BATCH_JOB_ARRAY_SIZE"],
        help="How many runs there are [SLURM_ARRAY_TASK_COUNT or AWS_BATCH_JOB_ARRAY_SIZE].",
    ),
)


def of_builds(ranked: bool) -> Callable[[Decorated], Decorated]:
    """The options of a command that goes on with builds.

    Args:
        ranked: it has a rank.
    """
    of_task = shared.for_task("What DATA trains; a recipe says it.")
    own = (shared.data("DATA...|RECIPE.toml"), of_task)
    ranks = _RANK if ranked else ()
    return shared.with_options(own, shared.OF_RECIPE, shared.OUTPUT, ranks, shared.CHANGES)


def of_share(name: str) -> click.Command:
    """The command of a phase that each rank does its share of: the function of ``run_build`` that
    has the command's name."""

    @command(name)
    @of_builds(ranked=True)
    def share(
        data: tuple[str, ...],
        task: str | None,
        changes: tuple[str, ...],
        shard_id: int | None,
        num_shards: int | None,
        as_json: bool,
        quiet: bool,
        **given: Any,
    ) -> None:
        configs = shared.configs_of(data, task, changes, given, current().trust)
        rank = rank_of(shard_id, num_shards)
        from pipeline import run_build

        run_build.run_each(configs, getattr(run_build, name), rank, as_json, quiet)

    return share


def rank_of(shard_id: int | None, num_shards: int | None) -> "Rank":
    """Which rank this is, as was said or as the job array says.

    Raises:
        UsageError: nothing says it.
    """
    from pipeline.builder.ranks import Rank

    if shard_id is None or num_shards is None:
        unknown = "which run this is" if shard_id is None else "how many runs there are"
        raise UsageError(
            f"Nothing says {unknown}.",
            "Give --shard-id and --num-shards, as in --shard-id 0 --num-shards 8.",
        )
    return Rank(shard_id, num_shards)


# ``pipeline parts`` is the first phase of a build in a job array; ``pipeline shards``, which may be
# left out, is the second, and ``pipeline commit``, which publishes, the last.


PARTS = of_share("parts")
SHARDS = of_share("shards")


def _joined(prepared: "Prepared", report: "Report") -> "MadeParts":
    from pipeline.builder import planning, ranks

    return ranks.joined(prepared, planning.reads_examples(prepared.config))


@command("commit")
@of_builds(ranked=False)
def COMMIT(
    data: tuple[str, ...],
    task: str | None,
    changes: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """The last phase of a build in a job array: one run, after all others."""
    configs = shared.configs_of(data, task, changes, given, current().trust)
    from pipeline.run_build import build_each

    build_each(configs, as_json, quiet, _joined)
