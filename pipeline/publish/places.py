"""The place of a build: a folder of this machine, or one in a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.publish.place import Place
from stages.errors import UsageError

if TYPE_CHECKING:
    from pipeline.options.phases import RunOptions


def place_of(run: RunOptions) -> Place:
    """Where a build goes.

    Raises:
        UsageError: it is not ours to write to, or the store cannot decide between two writers.
    """
    if not run.address and run.single_writer:
        raise UsageError(
            "--single-writer is for an output in a store.", "Leave it out: a folder has a lock."
        )
    if not run.address:
        return Place.of(run.output, run.keep)
    from pipeline.publish.store_place import StorePlace  # which few builds need

    return StorePlace.at(run.address, run.place, run.keep, run.single_writer)
