"""``run``, ``plan`` and ``open``: what the commands of the same names do, with typed results."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import click

from pipeline import run_build
from pipeline.builder import plan_page
from pipeline.builder.forecast import Forecast, forecast, why_stop
from pipeline.builds import build
from pipeline.messages import result, screen
from pipeline.messages.progress import Follower
from pipeline.options import config, recipe, recipe_file
from pipeline.report import painter
from stages.errors import DataError

Data = str | PathLike[str] | Sequence[str | PathLike[str]]
Progress = Callable[[str, int, int], None]


class Build(build.Build):
    """A finished build, which a notebook shows with its verdict, its counts and one row."""

    def _repr_html_(self) -> str:
        return painter.of_build(self)


def run(
    task: str,
    *,
    model: str | PathLike[str],
    data: Data | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Build:
    """Build train-ready shards, as ``pipeline run TASK DATA --model MODEL`` does.

    Args:
        task: ``sft``, ``rm``, ``prm`` or a task of yours.
        model: a profile name, ``org/name``, a directory or a profile file.
        data: a file, folder, glob or address, or several of them; None where ``source`` names the
            inputs, as the tables of a recipe do: ``source=[{"name": "math", "data": "m.jsonl",
            "system": "Think."}, ...]``.
        progress: called with the name of a phase (``start``, ``encode``, ``plan``, ``write``,
            ``check``, ``report``, ``publish``), and how many of how many pieces are done. None
            shows the phases in a notebook, and nothing elsewhere.
        options: any option of the command line with ``_`` for ``-``: ``output="DIR"``,
            ``layout="ragged"``, ``map={"prompt": "question"}``, ``where=["score>=4"]``,
            ``dedup=True``. An option that is None is left out.

    Returns:
        The finished build; one that was there already and is equal is not built again.

    Raises:
        UsageError: an option, the model or a path is wrong (exit 2 of the command).
        DataError: the rows were refused (3); ``DIR.failed`` then says which.
        GateError: the shards could not be checked (4).
        SurroundingsError: disk, lock, permissions, a changing input (5).
    """
    given = {name: value for name, value in options.items() if value is not None}
    config = config_of(task, data, table={"model": model, **given}, where="run")
    in_notebook = "ipykernel" in sys.modules  # a kernel that Jupyter, VS Code or Colab shows
    report = progress or (screen.Cell() if in_notebook else Follower())
    return Build.open(run_build.build(config, report).build.folder)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a build would give, estimated from a sample of rows. ``str(plan)`` is the whole page.

    Attributes:
        task, layout: what would be built; ``output``: where.
        formats: how each input that was looked at is read, by its name.
        rows, examples: of the whole build, about; exact where every row was looked at.
        sampled: rows that went through all stages of a build.
        refused: of these, by refusal code.
        unread: of these, by input and column, those with something in a column that nothing reads.
        would_stop: whether the build would fail for its data, as far as the sample shows.
    """

    task: str
    layout: str
    output: Path
    formats: Mapping[str, str]
    rows: int
    examples: int
    sampled: int
    refused: Mapping[str, int]
    unread: Mapping[str, Mapping[str, int]]
    would_stop: bool
    _forecast: Forecast = field(repr=False)

    def described(self) -> dict[str, Any]:
        """Everything, as ``pipeline plan --json`` prints it."""
        code = DataError.exit_code if self.would_stop else 0
        return result.with_status(code, plan_page.as_json(self._forecast))

    def __str__(self) -> str:
        return click.unstyle(plan_page.as_text(self._forecast))

    def _repr_html_(self) -> str:
        return plan_page.as_html(self._forecast)


def plan(
    task: str, *, model: str | PathLike[str], data: Data | None = None, **options: Any
) -> Plan:
    """Say what ``run`` with the same arguments would build; write nothing.

    Raises:
        UsageError, DataError: what the build would raise before its first row.
    """
    given = {name: value for name, value in options.items() if value is not None}
    estimate = forecast(config_of(task, data, table={"model": model, **given}, where="plan"))
    config, made = estimate.recipe.config, estimate.sampled
    return Plan(
        task=config.task,
        layout=config.plan.layout,
        output=config.run.output,
        formats={look.name: look.detection.reading for look in estimate.looks},
        rows=estimate.rows,
        examples=estimate.examples,
        sampled=made.rows,
        refused=dict(made.ledger.rows_by_code),
        unread={name: dict(columns) for name, columns in made.unread.items()},
        would_stop=bool(why_stop(estimate)),
        _forecast=estimate,
    )


def open(folder: str | PathLike[str]) -> Build:
    """A finished build.

    Raises:
        DataError: the folder holds none, or what it holds is damaged.
    """
    return Build.open(Path(folder))


def config_of(task: object, data: object, table: Mapping[str, Any], where: str) -> config.Config:
    """The build that a table describes.

    Args:
        task: its name; ``data``: a path or several; None where the table has sources.
        table: options by their names on the command line, with ``_`` or ``-``; flags as booleans,
            options that may be given several times as lists, NAME=VALUE options as tables; sources
            as a list of tables.
        where: what a message calls the table.

    Raises:
        UsageError: something of it is not an option, or has a value that the option does not take.
    """
    mistakes = recipe_file.Mistakes(where)
    given = {**table, "task": task} | ({} if data is None else {"data": data})
    spelled = recipe_file.spelled(given, mistakes)
    if spelled.pop("build", None) is not None:
        mistakes.add(("build",), "a call makes one build", f"Call {where} for each.")
    if spelled.pop("notify", None) is not None:
        mistakes.add(("notify",), "a call notifies nobody", "Leave it out: it returns or raises.")
    (config,) = recipe.configs_of(spelled, mistakes, Path())
    return config
