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
    there = store.Store(filesystem, str(real), str(target))
    if real.is_dir():
        there.look()
        if set(there.sizes) == {piece.name for piece in publication.all} and all(
            map(there.holds, publication.all)
        ):
            return Sent((), 0, ())
    beside = real.parent / f".{real.name}.publishing"
    with local.staging(real):  # the lock
        before = set(there.sizes)
        sent = store.publish(store.Store(filesystem, str(beside), str(target)), publication, report)
        for piece in publication.pieces:
            if piece.path.stat().st_mode & 0o100:  # launch scripts
                (beside / piece.name).chmod(0o755)
        local.publish(beside, real)
        shutil.rmtree(beside, ignore_errors=True)  # the build that was there before
    removed = before - {piece.name for piece in publication.all}
    return Sent(sent.names, sent.bytes, tuple(sorted(removed)))
