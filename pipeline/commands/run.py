"""``pipeline run``: raw rows in, a published build out."""

from __future__ import annotations

from typing import Any

import click

from pipeline import tasks
from pipeline.options.command_line import OUTPUT, config_from, not_read, with_options
from pipeline.options.command_line import of_task as options_of


class _Builder(click.Command):
    """The command of one task; an option of another task is named as that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            key = error.option_name.lstrip("-").replace("-", "_")
            foreign = not_read(key, str(self.name))
            if foreign is None:
                raise
            raise click.UsageError(foreign, ctx) from error


class _Tasks(click.Group):
    """One subcommand per task, by its file's name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return tasks.names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return of_task(name) if name in tasks.names() else None


@click.command(name="run", cls=_Tasks, help="Build shards from raw rows.")
def COMMAND() -> None:
    """Holds one subcommand per task."""


def _until(config: Any, stage: str, in_json: bool) -> None:
    from pipeline.messages.result import BUILT, Result
    from pipeline.messages.session import current
    from pipeline.options.path_values import require_local
    from pipeline.stagewise.stagewise import run_until

    output = config.run.output
    require_local(output, "-o", build=False)
    if output.suffix != ".arrow":
        output = output.with_name(f"{output.name}.{stage}.arrow")
    refused = run_until(config.but(output=output), stage)
    session = current()
    session.in_json |= in_json
    if not session.in_lines:
        click.echo(f"{refused} rows refused", err=True)
    if not session.in_json:
        click.echo(str(output))
    message = f"stage {stage} is in {output}; {refused} rows were refused"
    figures = {"refused": refused}
    session.end(Result(BUILT, 0, message, figures=figures, paths={"stage": str(output)}))


def of_task(name: str) -> click.Command:
    """The command that builds for one task, with the options that it reads."""
    task = tasks.load(name)

    @click.command(name=name, cls=_Builder, help=task.help)
    @click.argument("data", nargs=-1, required=True)
    @with_options(options_of(task), OUTPUT)
    @click.option("--until", metavar="STAGE", help="Stop after a stage and write its Arrow file.")
    @click.option(
        "--dry-run",
        is_flag=True,
        help="Only show the plan, as pipeline plan does; write nothing.",
    )
    def command(
        data: tuple[str, ...],
        as_json: bool,
        quiet: bool,
        until: str | None,
        dry_run: bool,
        **given: Any,
    ) -> None:
        config = config_from(name, data, given)
        if dry_run:
            from pipeline.commands.plan import print_plan

            print_plan(config, as_json)
        elif until is not None:
            _until(config, until, as_json)
        else:
            from pipeline.run_build import build_and_report

            build_and_report(config, as_json, quiet)

    return command
