"""Every run of a folder of versions leaves one line in its history, whatever becomes of the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.messages.result import Result, of_built, of_error
from pipeline.options.config import Config
from pipeline.publish import history
from pipeline.publish.place import Place
from pipeline.publish.places import place_of

if TYPE_CHECKING:
    from pipeline.build_dir.built import Built

_LEFT_OUT = ("paths", "manifest")


def recorded(config: Config, build: Callable[[], Built]) -> Built:
    """What ``build`` gives or raises; where versions are kept, with a line in their history.

    A run that is killed writes none; the next one writes it in its place.

    Raises:
        UsageError: the output is not ours to write to.
    """
    if not config.run.keep and not config.run.address:
        return build()
    place = place_of(config.run)
    place.record_killed()
    began = time.time()
    try:
        built = build()
    except BaseException as error:
        with suppress(OSError):  # the error is worth more than its line
            _record(place, of_error(error), began)
        raise
    try:
        _record(place, of_built(built), began)
    except OSError as error:  # the build is there all the same
        return replace(built, notes=(*built.notes, f"no line of history was written: {error}"))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{config.run.shown} is up to date") from None
    return built


def _record(place: Place, result: Result, began: float) -> None:
    described = {k: v for k, v in result.described().items() if k not in _LEFT_OUT}
    seconds = round(time.time() - began, 3)
    place.record({"time": history.stamp(began), "seconds": seconds, **described})
