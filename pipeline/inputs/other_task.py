"""Which other task some rows are for, where the task that was named cannot use them."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import tasks
from pipeline.options.config import Config
from stages import catalog, formats
from stages.contract import Row
from stages.detection import evidence
from stages.errors import PipelineError, UnknownFormatError, UsageError
from stages.format import Format


def chosen(config: Config) -> Format:
    """The format that ``--format`` names.

    Raises:
        UsageError: there is none, or it is one of another task, which the error names.
    """
    try:
        return formats.choose(config.source.format, tasks.kind_of(config.task))
    except UsageError as error:
        if config.source.format.partition("/")[0] not in catalog.names(formats.__name__):
            raise
        given = formats.load(config.source.format).kinds
        for task in tasks.names():
            if tasks.kind_of(task).formats in given:
                remedy = f"Use the task that it is for: pipeline run {task}. {error.remedy}"
                raise UsageError(error.what, remedy) from error
        raise


def reads(rows: Sequence[Row], where: str, config: Config) -> tuple[str, str] | None:
    """The first other task that has a format for these rows, and the evidence."""
    for task in tasks.names():
        if task == config.task:
            continue
        try:
            found = evidence.detect(rows, tasks.kind_of(task), where, columns=config.source.map)
        except PipelineError:
            continue
        if found.change is None and found.format.usable:
            return task, found.evidence
    return None


def named(
    error: UnknownFormatError, rows: Sequence[Row], where: str, config: Config
) -> UnknownFormatError:
    """The same error; where the rows are for another task, it says for which."""
    other = reads(rows, where, config)
    if other is None:
        return error
    task, why = other
    return UnknownFormatError(
        f"{error.what} They read as {task} data ({why}).",
        f"Use the task that reads them: pipeline run {task}.",
        error.figures,
    )
