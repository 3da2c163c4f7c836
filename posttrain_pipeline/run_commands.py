"""``pipeline run``: raw rows in, a published build out; ``plan``: what would come out."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipeline import tasks
from pipeline.messages.result import print_object, with_status
from pipeline.messages.session import current
from pipeline.options import command_line as shared
from pipeline.options import help_page as under
from pipeline.options import paths, shells
from pipeline.options.config import Config
from stages.errors import DataError, UsageError, counted

if TYPE_CHECKING:
    from pipeline.builder.forecast import Forecast
    from pipeline.builder.planning import MadeParts
    from pipeline.builder.preparation import Prepared
    from pipeline.builder.ranks import Rank
    from pipeline.messages.progress import Report


def _examples(task: str) -> list[list[str]]:
    listed = under.declared()["run TASK"]["examples"]
    return [[words.replace("TASK", task) for words in one] for one in listed]


class _Builder(under.Command):
    """The command of one task; an option of another task is named as that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            key = error.option_name.lstrip("-").replace("-", "_")
            foreign = shared.not_read(key, str(self.name))
            if foreign is None:
                raise
            raise click.UsageError(foreign, ctx) from error


class _Tasks(under.Group):
    """One subcommand per task, by its file's name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return tasks.names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return of_task(name) if name in tasks.names() else None


@under.group("run", _Tasks, examples=[_examples(task)[0] for task in tasks.names()])
def COMMAND() -> None:
    """Holds one subcommand per task."""


def _until(config: Any, stage: str, in_json: bool) -> None:
    from pipeline.builder.stagewise import run_until
    from pipeline.messages.result import BUILT, Result

    output = config.run.output
    if output.suffix != ".arrow":
        output = output.with_name(f"{output.name}.{stage}.arrow")
    refused = run_until(config.but(output=output), stage)
    session = current()
    session.begin(in_json)
    if not session.in_lines:
        click.echo(f"{counted(refused, 'row')} refused", err=True)
    if not session.in_json:
        click.echo(str(output))
    message = f"stage {stage} is in {output}; {counted(refused, 'row')} refused"
    figures = {"refused": refused}
    session.end(Result(BUILT, 0, message, figures=figures, paths={"stage": str(output)}))


def of_task(name: str) -> click.Command:
    """The command that builds for one task, with the options that it reads."""
    task = tasks.load(name)

    @click.command(name, cls=_Builder, help=task.help, examples=_examples(name))
    @shared.data()
    @shared.with_options(shared.of_task(task), shared.OUTPUT)
    @under.option("--until", metavar="STAGE", help="Stop after a stage and write its Arrow file.")
    @under.option(
        "--dry-run", is_flag=True, help="Only show the plan, as pipeline plan does; write nothing."
    )
    def run(
        data: tuple[str, ...],
        as_json: bool,
        quiet: bool,
        until: str | None,
        dry_run: bool,
        **given: Any,
    ) -> None:
        config = shared.config_from(name, data, given)
        if dry_run:
            _print_each([config], as_json)
        elif until is not None:
            _until(config, until, as_json)
        else:
            from pipeline.run_build import build_each

            build_each((config,), as_json, quiet)

    return run


# ``pipeline build``: the builds that a TOML recipe describes, for scheduled runs.


@under.command("build")
@under.argument("recipe", type=paths.FILE, shell_complete=shells.files(".toml"), heading=under.DATA)
@shared.with_options(shared.OF_RECIPE, shared.OUTPUT, shared.CHANGES)
def BUILD(recipe: Path, changes: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> None:
    """Paths in a recipe are relative to its folder, those given here to the working directory."""
    from pipeline.options.recipe import builds_of, notified_by
    from pipeline.run_build import build_each

    session = current()
    try:
        configs = builds_of(recipe, changes, shared.given_flags(given), session.trust)
    except UsageError:
        if session.trust:  # who is to be notified may be readable all the same
            session.notify = session.notify or notified_by(recipe)
        raise
    build_each(configs, as_json, quiet)


# What the commands of a job array have in common: which builds, and which rank this is.

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Job arrays have the rank and how many there are in variables; Kubernetes does not say how many.
_RANK = (
    under.option(
        "--shard-id",
        type=click.IntRange(min=0),
        envvar=["SLURM_ARRAY_TASK_ID", "AWS_BATCH_JOB_ARRAY_INDEX", "JOB_COMPLETION_INDEX"],
    ),
    under.option(
        "--num-shards",
        type=click.IntRange(min=1),
        envvar=["SLURM_ARRAY_TASK_COUNT", "AWS_BATCH_JOB_ARRAY_SIZE"],
    ),
)


def of_builds(ranked: bool) -> Callable[[Decorated], Decorated]:
    """The options of a command that goes on with builds.

    Args:
        ranked: it has a rank.
    """
    own = (shared.data("DATA...|RECIPE.toml"), shared.for_task())
    ranks = _RANK if ranked else ()
    return shared.with_options(own, shared.OF_RECIPE, shared.OUTPUT, ranks, shared.CHANGES)


def of_share(name: str) -> click.Command:
    """The command of a phase that each rank does its share of: the function of ``run_build`` that
    has the command's name."""

    @under.command(name)
    @of_builds(ranked=True)
    def share(
        shard_id: int | None, num_shards: int | None, as_json: bool, quiet: bool, **given: Any
    ) -> None:
        configs = shared.configs_of(given, current().trust)
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


@under.command("commit")
@of_builds(ranked=False)
def COMMIT(as_json: bool, quiet: bool, **given: Any) -> None:
    """The last phase of a build in a job array: one run, after all others."""
    configs = shared.configs_of(given, current().trust)
    from pipeline.run_build import build_each

    build_each(configs, as_json, quiet, _joined)


# ``pipeline plan``: what a build would give, without building it.


def _print_each(configs: Sequence[Config], as_json: bool) -> None:
    """Print the forecast of each build; several have a line with their output above them."""
    from pipeline.builder.forecast import forecast

    _print(map(forecast, configs), as_json, len(configs) > 1)


def _print(estimates: "Iterable[Forecast]", as_json: bool, several: bool = False) -> None:
    """Print forecasts, and end as the worst of the builds would."""
    from pipeline.builder import plan_page
    from pipeline.builder.forecast import why_stop

    codes, found = [], []
    for estimate in estimates:
        codes.append(DataError.exit_code if why_stop(estimate) else 0)
        output = estimate.recipe.config.run.shown
        if as_json:
            found.append((output, codes[-1], plan_page.as_json(estimate)))
        else:
            click.echo((f"build     {output}\n" if several else "") + plan_page.as_text(estimate))
    if as_json and not several:
        print_object(*found[0][1:])
    elif as_json:
        builds = [{"output": output, **with_status(code, one)} for output, code, one in found]
        print_object(max(codes), {"builds": builds})
    if max(codes):
        raise click.exceptions.Exit(max(codes))


@under.command("plan")
@shared.data("DATA...|RECIPE.toml")
@shared.for_task()
@shared.with_options(shared.OF_RECIPE, shared.CHANGES)
@shared.JSON
def PLAN(as_json: bool, **given: Any) -> None:
    """Format and evidence, first rows, rejects, lengths and packing."""
    looks_first = given["task"] is None and shared.recipe_in(given["data"]) is None
    if not looks_first or given["changes"] or given["model"] is None:
        given["task"] = given["task"] or ""
        _print_each(shared.configs_of(given, current().trust), as_json)
        return
    data, *_ = (given.pop(name) for name in ("data", "task", "changes"))
    from pipeline.builder.first_recipe import fitting, looked_at
    from pipeline.builder.forecast import of_glimpses

    files, looks = looked_at(data, given)
    config = shared.config_from(fitting(data, given, looks), data, given)
    _print([of_glimpses(config, files, looks)], as_json)


# ``pipeline init``: a first recipe for some data, with comments, that builds as it is.


MODEL = "qwen2.5-7b-instruct"


@under.command("init")
@shared.data(required=False)
@shared.for_task()
@under.option("--model", heading=under.MODEL, shell_complete=shells.models, default=MODEL)
@shared.with_options(shared.of_phase("source", but=("group_by",)))
@shared.output(paths.LocalPath(dir_okay=False), default="recipe.toml", show_default=True)
@under.option("--schema", is_flag=True)
def INIT(data: tuple[str, ...], task: str | None, output: Path, schema: bool, **given: Any) -> None:
    """The path of the recipe goes to stdout."""
    if schema:
        from pipeline.options.recipe_model import schema_text

        click.echo(schema_text(), nl=False)
        return
    if not data:
        raise click.UsageError("Missing argument 'DATA...'.")
    if output.exists():
        raise UsageError(f"{output} is there already.", "Name another file with -o, or remove it.")
    if "-" in data:
        raise UsageError("Standard input can be read only once.", "Write the rows to a file first.")
    from pipeline.builder.first_recipe import write

    why = write(output, data, task, given)
    click.echo(str(output))
    if why:
        listed = "".join(f"\n  {one}" for one in why)
        raise DataError(
            f"{output} is written, but a build of it is refused:{listed}",
            "Change the recipe, another model included, and see what it gives with: "
            f"pipeline plan {output}",
        )
    click.echo(f"look at it, then: pipeline plan {output}; pipeline build {output}", err=True)
