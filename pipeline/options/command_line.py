"""The options that commands share, declared once; their defaults are those of ``Config``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline import tasks
from pipeline.options.config import PHASES, Config, default_cache
from pipeline.tasks import Task
from stages import layouts
from stages.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

_BY_NAME: dict[str, Callable[[Any], Any]] = {}
_DEFAULTS = {
    option.name: option.default
    for phase in PHASES.values()
    for option in fields(phase)
    if option.default is not MISSING
}


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    key = next(n for n in names if n.startswith("--")).lstrip("-").split("/")[0].replace("-", "_")
    if _DEFAULTS.get(key) not in (None, ""):
        settings.setdefault("default", _DEFAULTS[key])
    if settings.get("default") not in (None, "", False, ()):
        settings.setdefault("show_default", True)
    _BY_NAME[key] = click.option(*names, **settings)
    return _BY_NAME[key]


BUILD = (
    _option("--model", required=True, help="Profile name, org/name, a directory (./dir) or a profile file (./profile.toml)."),
    _option("-o", "--output", type=click.Path(path_type=Path), help="Build directory [<stem>-<task>-<model>]."),
    _option("--keep", type=click.IntRange(0), help="Keep so many versions: -o is then a folder of builds by their ids, with a link current [0: -o is the build]."),
    _option("--replace/--no-replace", default=False, help="Replace a build of another task or model, or one from which this differs too much; publish a version that was rolled back."),
    _option("--format", help="Record format (pipeline list formats); auto detects it."),
    _option("--map", multiple=True, metavar="NAME=COLUMN", default=(), help="Read NAME from COLUMN (dotted paths)."),
    _option("--ignore", multiple=True, metavar="COLUMN", default=(), help="Leave a column out on purpose; messages[].name is a key of every turn."),
    _option("--where", multiple=True, metavar="CONDITION", default=(), help="Use only rows that meet it: label=true, score>=4, lang!=en."),
    _option("--null-fields", type=click.Choice(["drop", "keep"]), help="Nulls inside tools and tool calls of typed tables: drop them, or keep them as data."),
    _option("--layout", type=click.Choice(layouts.names()), help="How rows are stored [packed; rm: ragged]."),
    _option("--for", "trainer", metavar="TRAINER", help="Write this trainer's columns and launch script (see: list trainers)."),
    _option("--padding-side", type=click.Choice(["left", "right"]), help="Where padded rows are padded [left; encoders: right]."),
    _option("--pad-to", metavar="WIDTH", help="Width of padded rows: longest, max-length or a number."),
    _option("--pack-within", type=click.Choice(["build", "part"]), help="Examples that may share a pack: any of the build, or those of one part only, so that appended rows leave the packs before them as they are."),
    _option("--max-length", type=click.IntRange(8), help="Tokens per example (rm: per side) and per pack."),
    _option("--too-long", type=click.Choice(["reject", "trim-turns", "trim-steps"]), help="What to do with longer ones; trimming drops whole turns or steps."),
    _option("--max-reject", type=click.FloatRange(0, 1), help="Share of refused rows that fails the build."),
    _option("--empty", type=click.Choice(["refuse", "warn"]), help="An empty file among others: refuse the build, or name it and go on."),
    _option("--system", help="System text of conversations that have none."),
    _option("--chat-template", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Jinja file to use instead of the model's template."),
    _option("--eos", metavar="TOKEN", help="End-of-turn token to use instead of the profile's."),
    _option("--date", metavar="YYYY-MM-DD", help="Date that a template prints [fixed by the profile]."),
    _option("--train-on", type=click.Choice(["assistant", "last", "all"]), help="Which turns are trained; flags in the data override this."),
    _option("--neutral", type=click.Choice(["null", "good", "bad"]), help="What a PRM's neutral rating means; null leaves it unlabelled."),
    _option("--prm-template", type=click.Choice(["chat", "raw"]), help="Render PRM rows as a chat, or as their own text."),
    _option("--prompt-separator", metavar="TEXT", help="Where the first step of a joined PRM text begins."),
    _option("--step-tag", metavar="TEXT", help="Step tag of joined PRM texts [ки and other known ones]."),
    _option("--salvage/--no-salvage", default=False, help="Keep the rows before the damage in a truncated or corrupt file; the manifest records it."),
    _option("--already-templated/--no-already-templated", default=False, help="Read the turns of texts that carry a chat template."),
    _option("--stop-text", type=click.Choice(["reject", "keep", "strip"]), help="Stop tokens written as text at the end of an answer: refuse the row, train them as text, or remove them."),
    _option("--reasoning", type=click.Choice(["keep", "strip", "mask"]), help="Reasoning of answers, in a field or in <think>: trained, removed, or context only."),
    _option("--reasoning-in", type=click.Choice(["template", "think"]), help="Where reasoning in a separate field goes: where the template prints it, or into a <think> block."),
    _option("--thinking", type=click.Choice(["auto", "on", "off"]), help="Prompt of hybrid reasoning models: on or off for all answers; auto chooses per answer."),
    _option("--stop", multiple=True, metavar="TEXT", default=(), help="Custom stop marker for serving.json."),
    _option("--add-token", multiple=True, metavar="TEXT", default=(), help="Register a text as one token, in answers and in prompts."),
    _option("--tolerance", multiple=True, metavar="AUDIT.LIMIT=VALUE", default=(), help="Limit of an audit: warn, fail or least."),
    _option("--dedup/--no-dedup", default=False, help="Drop examples equal to an earlier one."),
    _option("--test-size", type=click.FloatRange(0), help="Rows for a test split: a share below 1, or a number."),
    _option("--shuffle/--no-shuffle", default=False, help="Shuffle by --seed."),
    _option("--seed", type=click.IntRange(-(2**63), 2**63 - 1), help="For --shuffle and --test-size."),
    _option("--drift", multiple=True, metavar="NUMBER=SHARE", default=(), help="Refuse a build whose rows, trained_tokens or source_share changed more against the build before."),
    _option("--expectations", multiple=True, default=(), metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="More suites to check the shards with: JSON of Great Expectations, or Python."),
    _option("--data-docs", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Also write Great Expectations' pages there, usable offline."),
    _option("--verify/--no-verify", default=False, help="Hash inputs and output again where their sizes and times say that nothing changed."),
    _option("--workers", type=click.IntRange(0), help="Processes; 0 is one per core."),
    _option("--engine", help="How work is run in parallel."),
    _option("--cache-dir", type=click.Path(path_type=Path), help="Parts and tokenizers [$XDG_CACHE_HOME/posttrain-pipeline]."),
)  # fmt: skip

# Those that expose no value are read from the raw arguments by ``messages.session``, since they also
# say how an error in the arguments is told.
OUTPUT = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object: status, message, figures, paths, manifest."),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", expose_value=False, help="Messages and progress on stderr as text, or as lines of JSON."),
    click.option("--notify", metavar="COMMAND", expose_value=False, help="Shell command that gets the object of --json on its standard input."),
    click.option("--quiet", is_flag=True, help="Print no progress and no summary."),
    click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks."),
)  # fmt: skip


def of_task(task: Task) -> tuple[Callable[[Any], Any], ...]:
    """The options of a build for one task: those that every task reads, and its own."""
    own = set(task.options)
    others = {option for name in tasks.names() for option in tasks.load(name).options} - own
    return tuple(option for name, option in _BY_NAME.items() if name not in others)


def not_read(name: str, task: str) -> str | None:
    """Which tasks read an option that this one does not, as a sentence; None where it does."""
    readers = tasks.readers_of(name)
    if not readers or task in readers:
        return None
    return f"--{name.replace('_', '-')} is an option of {' and '.join(readers)}, not of {task}."


def chosen(*names: str) -> tuple[Callable[[Any], Any], ...]:
    """Some of the build's options, for a command that takes no data."""
    return tuple(_BY_NAME[name.replace("-", "_")] for name in names)


def with_options(*stacks: tuple[Callable[[Any], Any], ...]) -> Callable[[Command], Command]:
    """Add stacks of options to a command, in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed([option for stack in stacks for option in stack]):
            command = option(command)
        return command

    return decorate


def _mapping(pairs: tuple[str, ...]) -> dict[str, str]:
    columns = {}
    for pair in pairs:
        name, sign, column = pair.partition("=")
        if not (name and sign and column):
            raise UsageError(
                f"--map {pair!r} is not NAME=COLUMN.", "For example --map prompt=question."
            )
        if name in columns:
            raise UsageError(f"--map names {name} twice.", "One column is read under a name.")
        columns[name] = column
    return columns


def _numbers(option: str, pairs: tuple[str, ...], form: str, example: str) -> dict[str, float]:
    """Numbers by name.

    Args:
        form: what a pair looks like; example: one that is right.
    """
    numbers = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            numbers[name] = float(text)
        except ValueError:
            numbers[name] = float("nan")
        if not math.isfinite(numbers[name]):
            raise UsageError(f"{option} {pair!r} is not {form}.", f"For example {option} {example}.")
    return numbers


def _tolerances(pairs: tuple[str, ...]) -> dict[str, float]:
    limits = _numbers("--tolerance", pairs, "AUDIT.LIMIT=VALUE", "shortcuts.fail=1")
    if limits:
        from expectations.audits import with_tolerances

        with_tolerances(limits)
    return limits


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        UsageError: it is not UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error}.", "Give a text file.") from error


def _stem(path: str) -> str:
    if path == "-":
        return "stdin"
    name = Path(path.partition("?")[0] if "://" in path else path).name or "data"
    return re.split("[.:]", name)[0] or "data"


def config_from(task: str, data: tuple[str, ...], given: dict[str, Any]) -> Config:
    """The build's options from what click parsed.

    Raises:
        UsageError: they are not valid, or do not go together.
    """
    values = {key: value for key, value in given.items() if value is not None}
    for key, value in values.items():
        foreign = not_read(key, task) if value != _DEFAULTS.get(key) else None
        if foreign is not None:
            raise UsageError(foreign, "Leave it out.")
    values["map"] = _mapping(values.get("map", ()))
    drifts = values.get("drift", ())
    values["drift"] = _numbers("--drift", drifts, "NUMBER=SHARE", "rows=0.2")
    values["tolerance"] = _tolerances(values.get("tolerance", ()))
    values.setdefault("cache_dir", default_cache())
    template = values.get("chat_template")
    if template is not None:
        values["chat_template"] = read_text(template)
    suites = values.get("expectations", ())
    values["expectations"] = tuple((path.name, read_text(path)) for path in suites)
    if "output" not in values:
        model = values["model"].rstrip("/").split("/")[-1].lower().removesuffix(".toml")
        values["output"] = Path(f"{_stem(data[0])}-{task}-{model}")
    return Config.of(task, data, **values)
