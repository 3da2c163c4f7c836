"""One run: what it has published stands, and where versions are kept a line tells of it."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pipeline.builds import failed, lease, place, versions
from pipeline.messages.result import Result, of_built, of_error
from pipeline.messages.session import current
from pipeline.options.config import Config
from stages.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.builds.limits import Built

_LEFT_OUT = ("paths", "manifest")


def recorded(config: Config, build: "Callable[[], Built]") -> "Built":
    """What ``build`` gives or raises; where versions are kept, with a line in their history.

    A run that is killed writes none; the next one writes it in its place. What went wrong behind
    the publication is told as a warning.

    Raises:
        UsageError: the output is not ours to write to.
        KeyboardInterrupt: also behind the publication.
    """
    failed.begin()
    kept = place.place_of(config.run).versions if config.run.keep or config.run.address else None
    if kept is not None:
        kept.record_killed()
    began = time.time()
    try:
        try:
            built = build()
        except BaseException as error:
            with suppress(OSError):  # the error is worth more than its line
                _record(kept, of_error(error), began)
            raise
        _record(kept, of_built(failed.publishing(built)), began)
    except Exception as error:
        of_error(error)
        stands = failed.now()
        if stands is None:
            raise
        current().warn(stands.trouble[-1])
        return stands
    return built


def _record(kept: versions.Versions | None, result: Result, began: float) -> None:
    if kept is None:
        return
    described = {k: v for k, v in result.described().items() if k not in _LEFT_OUT}
    seconds = round(time.time() - began, 3)
    try:
        kept.record({"time": lease.stamp(began), "seconds": seconds, **described})
    except PipelineError as error:  # of a store
        raise OSError(error.what) from error
