"""Publishes to a folder of this machine: beside it, and then exchanged for it in one step."""

from __future__ import annotations

import shutil
from pathlib import Path

from pipeline.publish import publish as local
from pipeline.upload import store
from pipeline.upload.publication import Publication
from pipeline.upload.sent import Report, Sent
from stages.errors import UsageError


def publish(target: Path, source: Path, publication: Publication, report: Report) -> Sent:
    """Copy into ``.NAME.publishing`` beside the target, which a later call continues, and exchange
    the two.

    Raises:
        UsageError: the target has other files in it, or contains the build.
        SurroundingsError: another process writes there, or a copy differs.
    """
    from fsspec.implementations.local import LocalFileSystem

    real = local.check_target(target)
    inside = source.resolve()
    if real == inside or real in inside.parents or inside in real.parents:
        raise UsageError(f"{target} is in the build, or the build in it.", "Give another folder.")
    filesystem = LocalFileSystem()
    beside = real.parent / f".{real.name}.publishing"
    with local.staging(real):  # the lock
        there = store.Store(filesystem, str(real), str(target))
        if real.is_dir():
            there.look()
        names, before = {piece.name for piece in publication.all}, set(there.there)
        if names == before and all(map(there.holds, publication.all)):
            sent = Sent((), 0, ())
        else:
            copy = store.Store(filesystem, str(beside), str(target))
            sent = store.publish(copy, publication, report)
            _exchange(beside, real, publication)
        shutil.rmtree(beside, ignore_errors=True)  # the build that was there before
    return Sent(sent.names, sent.bytes, tuple(sorted(before - names)))


def _exchange(beside: Path, real: Path, publication: Publication) -> None:
    for piece in publication.pieces:
        if piece.path.stat().st_mode & 0o100:  # launch scripts
            (beside / piece.name).chmod(0o755)
    local.publish(beside, real)
