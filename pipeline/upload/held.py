"""What is published of a folder of versions: the current one, which stays while it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.publish import history, versions


def releases_of(folder: Path) -> Path | None:
    """The folder of versions that is meant, by itself or by its link; None of any other."""
    for one in (folder, folder.parent if folder.name == versions.CURRENT else folder):
        if versions.is_releases(one):
            return one
    return None


@contextmanager
def held(folder: Path, address: str) -> Iterator[Path]:
    """A build's own folder; of a folder of versions, the current one, held meanwhile.

    A hold that a call left which was killed ends with the next one for the same address.

    Raises:
        UsageError: there is no current version.
    """
    releases = releases_of(folder)
    if releases is None:
        yield folder
        return
    version = versions.find(releases, versions.CURRENT)
    name = f"publish-{hashlib.sha256(address.encode()).hexdigest()[:8]}"
    # Whoever may only read there publishes all the same.
    with suppress(OSError):
        for other in versions.versions(releases):
            if name in other.holds:
                versions.release(releases, other.build_id, name)
        versions.hold(releases, version.build_id, name)
    try:
        yield version.folder
    finally:
        with suppress(OSError):
            versions.release(releases, version.build_id, name)


def record(folder: Path, status: str, build_id: str, address: str) -> None:
    """A line for the history of versions, if the folder has one that can be written."""
    releases = releases_of(folder)
    if releases is not None:
        line = {
            "time": history.stamp(),
            "status": status,
            "code": 0,
            "message": f"{status} at {address}",
            "build_id": build_id,
            "current": versions.current_id(releases),
        }
        with suppress(OSError):
            history.append(releases, line)
