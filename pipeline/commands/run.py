"""``pipeline run``: raw rows in, a published build out."""

from pathlib import Path
from typing import Any

import click

from pipeline import tasks
from pipeline.messages.session import current
from pipeline.options import command_line as shared
from pipeline.options import paths, shells
from pipeline.options.help_page import DATA, Command, Group, argument, command, group, option
from stages.errors import UsageError, counted

_RUN = "pipeline run {task} data.jsonl --model qwen2-1.5b"
_EXAMPLES = (
    (_RUN, "Build; it goes to data-{task}-qwen2-1.5b"),
    (f"{_RUN} --dry-run", "Only show what would be built"),
    (
        f"{_RUN} --layout ragged --max-length 2048 --test-size 0.1 -o {{task}}-rows",
        "One example a row, at most 2048 tokens, a tenth of the rows as test split",
    ),
)


def _examples(task: str) -> tuple[tuple[str, str], ...]:
    return tuple((words.format(task=task), does.format(task=task)) for words, does in _EXAMPLES)


class _Builder(Command):
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


class _Tasks(Group):
    """One subcommand per task, by its file's name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return tasks.names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return of_task(name) if name in tasks.names() else None


@group("run", _Tasks, examples=[_examples(task)[0] for task in tasks.names()])
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
    @option("--until", metavar="STAGE", help="Stop after a stage and write its Arrow file.")
    @option(
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
            from pipeline.commands.plan import print_plan

            print_plan(config, as_json)
        elif until is not None:
            _until(config, until, as_json)
        else:
            from pipeline.run_build import build_each

            build_each((config,), as_json, quiet)

    return run


# ``pipeline build``: the builds that a TOML recipe describes, for scheduled runs.


@command("build")
@argument(
    "recipe",
    type=paths.FILE,
    help="A TOML recipe, as pipeline init writes one.",
    shell_complete=shells.files(".toml"),
    heading=DATA,
)
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
