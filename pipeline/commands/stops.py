"""``pipeline stops``: whether a trained model, or a server of it, ends its answers."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline import lines
from pipeline.messages.result import print_object
from pipeline.options.command_line import JSON
from pipeline.options.help_page import command
from pipeline.options.paths import FOLDER

if TYPE_CHECKING:
    from pipeline.serving.declared import Examined

REFUSED = 3


def _result(examined: "Examined", limit: float) -> dict[str, Any]:
    faults = [finding for finding in examined.findings if finding.fault]
    return {
        "target": examined.target,
        "passed": not faults and examined.running_on() <= limit,
        "answers": len(examined.answers),
        "ran_on": sum(not answer.ended for answer in examined.answers),
        "share_running_on": round(examined.running_on(), 6),
        "limit": limit,
        "counts": examined.counts(),
        "findings": [dataclasses.asdict(finding) for finding in examined.findings],
        "examples": [dataclasses.asdict(a) for a in examined.answers if not a.ended][:3],
    }


@command("stops")
@click.argument("target", metavar="MODEL_DIR|URL")
@click.option(
    "--build", required=True, type=FOLDER, help="The sft build that the model was trained on."
)
@click.option(
    "--tokenizer-only",
    is_flag=True,
    help="Compare only tokenizer, template and stop ids; needs no torch, runs no prompt.",
)
@click.option(
    "--prompts",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Prompts of each kind: single, multi-turn, with tools, a batch with padding.",
)
@click.option(
    "--max-new-tokens",
    "most",
    type=click.IntRange(1),
    help="Tokens after which an answer counts as running on [twice the longest trained answer].",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Temperature of the sampled answers.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sampled answers.")
@click.option(
    "--limit",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Share of answers that may run on.",
)
@click.option("--served", default="", help="Model name on the server [the first that it lists].")
@click.option(
    "--key-env",
    default="OPENAI_API_KEY",
    show_default=True,
    metavar="VARIABLE",
    help="Environment variable with the server's key, if it needs one.",
)
@JSON
def COMMAND(target: str, as_json: bool, limit: float, key_env: str, **given: Any) -> None:
    """Exit status 0 when answers end and nothing is wrong, 3 otherwise."""
    from pipeline.serving.examine import StopRun, examine

    given["most"] = given["most"] or 0
    examined = examine(StopRun(target, key=os.environ.get(key_env, ""), **given))
    result = _result(examined, limit)
    if as_json:
        print_object(0 if result["passed"] else REFUSED, result)
    else:
        page = lines.templates(Path(__file__).parent).get_template("stops.jinja")
        click.echo(page.render(seen=result, asked=examined.asked), nl=False)
    if not result["passed"]:
        raise click.exceptions.Exit(REFUSED)
