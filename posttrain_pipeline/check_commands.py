"""``pipeline check``: a finished build looked at again, file by file and row by row; and the
commands that give it to others."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline import lines
from pipeline.messages.result import print_object
from pipeline.messages.session import current, following
from pipeline.options import build_options, paths, shells
from pipeline.options import command_line as shared
from pipeline.options.command_line import folder, output
from pipeline.options.help_page import LAYOUT, OUTPUT, argument, command, option
from pipeline.options.paths import FILE, FOLDER, BuildPath, LocalPath
from stages.errors import UsageError, counted
from stages.tokens import layouts

if TYPE_CHECKING:
    from pipeline.publish.checked_files import Checked
    from pipeline.serving.declared import Examined
    from stages.tokenizers.probes import ProbeVerdict

SHOWN = 20
_TRAINERS = shells.of_words(build_options.named_in("pipeline.exports"))


@command("check")
@folder("folder", "DIR", "The build.", click.Path(path_type=Path))
@shared.CACHE
@shared.JSON
def COMMAND(folder: Path, cache_dir: Path, as_json: bool) -> None:
    """Exit status 0 without faults, 3 where a file differs from what was built, and 1 where all of
    them are as they were written, but what was written is wrong."""
    from pipeline.publish.check import check
    from pipeline.stores import shown

    result = check(folder, paths.local_cache(cache_dir))
    columns = lines.width(sys.stderr)
    for note in result.notes:
        click.echo(lines.fit(f"note: {note}", columns), err=True)
    for fault in result.faults[:SHOWN]:
        problem = f"problem: {fault.where}: {fault.code}: {fault.detail}"
        click.echo(lines.fit(problem, columns), err=True)
    if len(result.faults) > SHOWN:
        click.echo(f"       and {len(result.faults) - SHOWN} more (see --json)", err=True)
    if result.faults:
        codes = dict.fromkeys(fault.code for fault in result.faults)
        click.echo(f"What it means: pipeline explain {next(iter(codes))}", err=True)
    if as_json:
        print_object(result.status, result.described())
    elif not result.faults:
        click.echo(lines.fit(f"{shown(folder)}: {'; '.join(_held(result))}"))
    if result.faults:
        raise click.exceptions.Exit(result.status)


def _held(result: "Checked") -> Iterator[str]:
    """What was found to hold, of all that the build was judged by."""
    judged = result.verdict.judged if result.verdict else 0
    yield f"{judged} of {counted(result.expectations, 'expectation')} hold"
    left = result.expectations - judged
    if left > 0:
        yield f"{left} judged only while a build is made"
    if result.rows_made_again:
        yield (
            f"{counted(result.rows_made_again, 'example')} rebuilt from the source, equal "
            "to what is stored"
        )
    if result.witnessed:
        yield f"{counted(result.witnessed, 'row')} read by the witness"


# ``pipeline doctor``: every probe over one model, and how a server has to stop it.


_SAYS = {True: "ok", False: "FAILED", None: "not run"}


def _lines(name: str, verdict: "ProbeVerdict", column: int, columns: int) -> list[str]:
    head = f"{_SAYS[verdict.passed]:<8}{name:<{column}}  "
    text = " ".join(filter(None, (verdict.detail, verdict.remedy)))
    said = repr(text)[1:-1] if "\n" in text else text
    if len(head) > columns // 2:  # a narrow terminal
        return [head.rstrip(), *lines.wrapped(said, columns, " " * 8)]
    return lines.wrapped(said, columns, head)


@command("doctor")
@shared.with_options(
    shared.chosen("model", "system", "chat-template", "eos", "date", "train-on", "stop")
)
@shared.for_task(default="prm", show_default=True)
@shared.with_options(shared.chosen("fetch", "cache-dir"))
@shared.JSON
def DOCTOR(stop: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Ends with status 2 when a probe fails."""
    from pipeline.serving import examine, serving
    from stages.tokenizers.resolve import Overrides

    if not all(stop):
        raise UsageError("--stop is empty.", "Give the text at which a server must stop.")
    template, eos, date = (given.pop(name) for name in ("chat_template", "eos", "date"))
    given["cache_dir"] = paths.local_cache(given["cache_dir"] or build_options.default_cache())
    source = paths.read_text(template) if template else None
    examined = examine.examine_model(**given, overrides=Overrides(source, eos, date))
    described = examine.described(examined, stop)
    failed = sum(verdict.passed is False for verdict in examined.verdicts.values())
    if as_json:
        print_object(UsageError.exit_code if failed else 0, described)
    else:
        column, columns = max(map(len, examined.verdicts)), min(lines.width(), lines.WIDE)
        click.echo(lines.fit(f"{examined.model.profile.name} (tokenizer: {examined.source})"))
        for name, verdict in examined.verdicts.items():
            click.echo("\n".join(_lines(name, verdict, column, columns)))
        if described["serving"]:
            click.echo(lines.fit(serving.as_text(described["serving"])))
    if failed:
        click.echo(f"{failed} of {counted(len(examined.verdicts), 'probe')} failed", err=True)
        click.get_current_context().exit(UsageError.exit_code)


# ``pipeline stops``: whether a trained model, or a server of it, ends its answers.

REFUSED = 3
_ABOVE_0 = click.FloatRange(0, min_open=True)


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
@click.option("--build", required=True, type=FOLDER)
@click.option("--tokenizer-only", is_flag=True)
@click.option("--prompts", type=click.IntRange(1), default=4, show_default=True)
@click.option("--max-new-tokens", "most", type=click.IntRange(1))
@click.option("--temperature", type=_ABOVE_0, default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--limit", type=click.FloatRange(0, 1), default=0.05, show_default=True)
@click.option("--served", default="")
@click.option("--key-env", default="OPENAI_API_KEY", show_default=True, metavar="VARIABLE")
@shared.JSON
def STOPS(target: str, as_json: bool, limit: float, key_env: str, **given: Any) -> None:
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


# ``pipeline export``, ``overlay``, ``publish``: a build for a trainer, a server, others.


@command("export")
@argument("trainer", heading=LAYOUT, shell_complete=_TRAINERS)
@folder("build", "DIR", "The build, or its address in a store.", BuildPath())
@output(LocalPath(build=True), required=True)
@option("--layout", heading=LAYOUT, type=click.Choice(layouts.names()))
@shared.JSON
def EXPORT(trainer: str, build: Path, output: Path, layout: str | None, as_json: bool) -> None:
    """The manifest's path goes to stdout, the command that trains to stderr."""
    from pipeline.builder import launch
    from pipeline.builder.exporting import export_build
    from pipeline.messages import result

    built = export_build(trainer, build, output, layout or "")
    click.echo(f"train     {' '.join(launch.words(output, trainer))}", err=True)
    session = current()
    session.begin(as_json)
    session.end(result.of_built(built))


# ``pipeline overlay``: a model directory with a build's tokenizer and configuration.


@command("overlay")
@folder("model_dir", "MODEL_DIR", "A directory with a model.")
@click.option("-o", "--output", required=True, type=LocalPath())
@click.option("--build", required=True, type=FOLDER)
def OVERLAY(model_dir: Path, output: Path, build: Path) -> None:
    """The directory goes to stdout, what its user must know to stderr."""
    from pipeline.serving.overlay import overlay

    for note in overlay(model_dir, build, output):
        click.echo(note, err=True)
    click.echo(str(output))


# ``pipeline publish``: a checked build to the hub, to a store or to a folder.


@command("publish")
@folder("build", "DIR", "The build.")
@argument("address", heading=OUTPUT)
@click.option("--title", default="")
@click.option("--license", default="", metavar="ID")
@click.option("--origin", "origins", multiple=True, metavar="TEXT")
@click.option("--recipe", type=FILE)
@click.option("--with-rejects", is_flag=True)
@click.option("--public", is_flag=True)
@click.option("--verify", is_flag=True)
@shared.CACHE
@shared.JSON
@click.option("--quiet", is_flag=True)
def PUBLISH(build: Path, address: str, as_json: bool, quiet: bool, **given: Any) -> None:
    """The address goes to stdout, what was sent to stderr."""
    from pipeline.publish.upload import publish
    from pipeline.report.card import Publisher

    said = {name: given.pop(name) for name in ("title", "license", "origins", "recipe")}
    said["recipe"] = paths.read_text(said["recipe"]) if said["recipe"] else ""
    given["cache_dir"] = paths.local_cache(given["cache_dir"])
    given["private"] = not given.pop("public")
    with following(current(), quiet) as report:
        done = publish(build, address, Publisher(**said), report=report, **given)
    if not quiet:
        sent = (
            f"{len(done.sent.names):,} of {counted(done.files, 'file')} sent, "
            f"{counted(done.sent.bytes, 'byte')}"
        )
        removed = f", {len(done.sent.removed)} removed" if done.sent.removed else ""
        click.echo(f"{done.status}: {sent}{removed}", err=True)
    click.echo(json.dumps(done.described(), ensure_ascii=False) if as_json else done.address)
