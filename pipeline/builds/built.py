"""The result of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.builds.build import Build
from pipeline.manifest.records import Change


@dataclass(frozen=True, slots=True)
class Built:
    """A build that is on disk.

    Attributes:
        fresh: False when an equal build was there already.
        drift: what changed against the build before; None when there was none.
        left_out: files of named folders that no reader is for.
        left_by_tools: files of other programs, in this build or in the one that it replaced.
        current: the link to the current version, where there are versions.
        removed: ids of versions that were removed.
        notes: sentences about versions, for the terminal and for programs.
        trouble: what went wrong when it stood already; each was told at once.
    """

    build: Build
    fresh: bool
    drift: Mapping[str, Change] | None = None
    left_out: tuple[str, ...] = ()
    left_by_tools: tuple[str, ...] = ()
    current: Path | None = None
    removed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
