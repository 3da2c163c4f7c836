"""The result of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.build_dir.build import Build
from pipeline.manifest.records import Change


@dataclass(frozen=True, slots=True)
class Built:
    """A build that is on disk.

    Attributes:
        fresh: False when an equal build was there already.
        drift: what changed against the build before; None when there was none.
        left_out: files of named folders that no reader is for.
    """

    build: Build
    fresh: bool
    drift: Mapping[str, Change] | None = None
    left_out: tuple[str, ...] = ()
