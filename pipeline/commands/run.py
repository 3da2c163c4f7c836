"""``pipeline run``: raw rows in, a published build out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from pipeline.options import BUILD, OUTPUT, config_from, with_options

_TASKS = {
    "sft": "Supervised fine-tuning: conversations whose assistant turns are trained.",
    "rm": "Reward models: pairs of answers to one prompt.",
    "prm": "Process reward models: solutions whose steps are rated.",
}


@click.group(name="run", help="Build shards from raw rows.")
def COMMAND() -> None:
    """Holds one subcommand per task."""


def _until(config: Any, stage: str) -> None:
    from pipeline.stagewise import run_until

    output = config.output
    if output.suffix != ".arrow":
        output = output.with_name(f"{output.name}.{stage}.arrow")
    refused = run_until(replace(config, output=output), stage)
    click.echo(f"{refused} rows refused", err=True)
    click.echo(str(output))


def _add(task: str, text: str) -> None:
    @COMMAND.command(name=task, help=text)
    @click.argument("data", nargs=-1, required=True)
    @with_options(BUILD, OUTPUT)
    @click.option("--until", metavar="STAGE", help="Stop after a stage and write its Arrow file.")
    @click.option(
        "--dry-run",
        is_flag=True,
        help="Do what pipeline plan does; write nothing.",
    )
    def command(
        data: tuple[str, ...],
        as_json: bool,
        quiet: bool,
        until: str | None,
        dry_run: bool,
        **given: Any,
    ) -> None:
        config = config_from(task, data, given)
        if dry_run:
            from pipeline.commands.plan import tell

            tell(config, as_json)
        elif until is not None:
            _until(config, until)
        else:
            from pipeline.progress import build_and_report

            build_and_report(config, as_json, quiet)


for _task, _text in _TASKS.items():
    _add(_task, _text)
