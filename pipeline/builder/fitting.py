"""Which task the rows of inputs are for, as far as sampled rows say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pipeline import tasks
from pipeline.builder.forecast import glimpses
from pipeline.inputs.detection import recognise_glimpse
from pipeline.inputs.opening import Opening
from pipeline.inputs.scan import expand
from pipeline.options.command_line import config_from
from pipeline.options.output import local_cache
from pipeline.options.phases import default_cache
from pipeline.stores.sources import Located
from stages.contract import Glimpse
from stages.errors import DataError, PipelineError, UnknownFormatError, UsageError

Looks: TypeAlias = list[tuple[str, Located, str, Glimpse]]  # as ``forecast.glimpses`` gives them


def looked_at(data: tuple[str, ...], given: Mapping[str, Any]) -> tuple[int, Looks]:
    """How many files there are, and samples of them or of some.

    Raises:
        UsageError, DataError, SurroundingsError: one is missing, empty or not readable.
    """
    files = expand(data, local_cache(given["cache_dir"] or default_cache()))
    return len(files), glimpses(files, [Opening.given(given)], given.get("empty", "refuse"))


def fitting(data: tuple[str, ...], given: Mapping[str, Any], looks: Looks) -> str:
    """The one task whose formats the sampled rows have.

    Raises:
        UsageError: they have those of more than one.
        DataError: of none.
    """
    fits: dict[str, str] = {}
    errors: dict[str, PipelineError] = {}
    for task in tasks.names():
        try:
            config = config_from(task, data, given)
            for _, file, reader, glimpse in looks:
                origin = file.origin
                detection = recognise_glimpse(glimpse, origin, config, reader, other_tasks=False)
                fits[task] = f"{detection.reading}: {detection.evidence}"
        except (DataError, UsageError) as error:
            errors[task] = error
            fits.pop(task, None)
    if len(fits) > 1:
        ways = " or as ".join(f"{task} ({why})" for task, why in fits.items())
        flags = " or ".join(f"--task {task}" for task in fits)
        raise UsageError(f"{looks[0][1].origin} reads as {ways}.", f"Say which with {flags}.")
    if not fits:
        raise _nothing_fits(errors)
    (task,) = fits
    return task


def _nothing_fits(errors: dict[str, PipelineError]) -> PipelineError:
    """The error that helps most: one about the rows, rather than that no format fits them."""
    knowing = {t: e for t, e in errors.items() if not isinstance(e, UnknownFormatError)} or errors
    if len(knowing) == 1:
        (error,) = knowing.values()
        return error
    reasons = " ".join(f"[{task}] {error}" for task, error in knowing.items())
    return type(next(iter(knowing.values())))(reasons, "Or name the task with --task.")
