"""Publishes a build: checks it, makes the copy for its readers, sends it, and says what went.

To a folder of this machine it is copied beside it, and exchanged for it in one step. Of a folder of
versions the current one is published, which stays while it is sent.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pipeline import ranges, secrets
from pipeline.builds import folder_versions, lease
from pipeline.builds import publish as local
from pipeline.builds.build import Build
from pipeline.manifest.manifest import Manifest
from pipeline.publish import hub, sending
from pipeline.publish.check import check
from pipeline.publish.publication import Publication, Report, Sent, assemble
from pipeline.report.card import Publisher
from pipeline.stores import address_of, open_store
from stages.errors import DataError, UsageError

KNOWN = "published"  # in the cache


class Published(NamedTuple):
    """What was published, and where.

    Attributes:
        address: without keys and signatures.
        files: of the publication, the manifest included.
    """

    address: str
    manifest: Manifest
    files: int
    sent: Sent

    @property
    def status(self) -> str:
        """``published``, or ``unchanged`` where every byte was there already."""
        return "published" if self.sent.names or self.sent.removed else "unchanged"

    def described(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {
            "status": self.status,
            "code": 0,
            "address": self.address,
            "build_id": self.manifest.build_id,
            "manifest_sha256": self.manifest.content_sha256,
            "files": self.files,
            "sent": len(self.sent.names),
            "bytes": self.sent.bytes,
            "removed": len(self.sent.removed),
            "revision": self.sent.revision or None,
        }


Place = Path | hub.Repository | sending.StoreTarget


def _place(address: str) -> Place:
    """Where an address leads; nothing is asked of it yet.

    Raises:
        UsageError: no such place can be written.
    """
    scheme = address.partition("://")[0].lower() if "://" in address else ""
    if scheme in ("", "file"):
        return Path(unquote(urlsplit(address).path) if scheme else address)
    if scheme == "hf":
        return hub.repository(address)
    if scheme in ("http", "https"):
        raise UsageError(
            f"{secrets.redacted(address)} cannot be written.",
            "Give hf://org/name, s3://bucket/path, gs://bucket/path or a folder.",
        )
    return sending.StoreTarget(open_store(address))


def _require_sound(source: Path, cache_dir: Path) -> Build:
    """The build, when a check finds nothing.

    Raises:
        UsageError: there is none.
        DataError: it has a fault.
    """
    build = Build.open(source)
    found = check(source, cache_dir)
    if found.faults:
        first = found.faults[0]
        more = f" ({len(found.faults)} problems)" if len(found.faults) > 1 else ""
        raise DataError(
            f"{source} is not published: {first.where}: {first.detail}{more}.",
            f"See all with: pipeline check {source}",
        )
    return build


def _to_store(
    place: sending.StoreTarget,
    publication: Publication,
    report: Report,
    cache_dir: Path,
    verify: bool,
) -> Sent:
    path = cache_dir / KNOWN / hashlib.sha256(place.shown.encode()).hexdigest()
    known = None if verify else ranges.read(path)  # what earlier calls read back
    place.known = {} if known is None else json.loads(known)
    try:
        return sending.bring(place, publication, report)
    finally:
        ranges.write(path, json.dumps(place.known).encode())


def publish(
    source: Path,
    address: str,
    publisher: Publisher,
    *,
    cache_dir: Path,
    report: Report,
    with_rejects: bool = False,
    private: bool = True,
    verify: bool = False,
) -> Published:
    """Publish a build or an export.

    Args:
        source: its folder, or a folder of versions, of which it is the current one.
        address: ``hf://org/name``, ``s3://bucket/path`` and the like, or a folder.
        cache_dir: where the check finds the tokenizer, and what was read back is noted.
        with_rejects: with the text of refused rows.
        private: of a repository that is created now.
        verify: read all back, also what an earlier call has read.

    Raises:
        UsageError: the address cannot be written, or has somebody else's files.
        DataError: the build has a fault.
        SurroundingsError: the connection, the credentials, or the bytes that arrived.
    """
    address = address_of(address) or address  # with both slashes
    place = _place(address)
    shown = os.fspath(place) if isinstance(place, Path) else secrets.redacted(address)
    with held(source, shown) as origin, tempfile.TemporaryDirectory(prefix="publish-") as work:
        build = _require_sound(origin, cache_dir)
        said = replace(publisher, hub=place.name if isinstance(place, hub.Repository) else "")
        publication = assemble(build, Path(work), said, with_rejects=with_rejects)
        if isinstance(place, Path):
            sent = publish_in_folder(place, origin, publication, report)
        elif isinstance(place, hub.Repository):
            sent = hub.publish(place, publication, private=private, report=report)
        else:
            sent = _to_store(place, publication, report, cache_dir, verify)
    done = Published(shown, publication.manifest, len(publication.all), sent)
    record(source, done.status, done.manifest.build_id, shown)
    return done


def publish_in_folder(target: Path, source: Path, publication: Publication, report: Report) -> Sent:
    """Copy into ``.NAME.publishing`` beside the target, which a later call continues, and exchange
    the two.

    Raises:
        UsageError: the target has other files in it, or contains the build.
        SurroundingsError: another process writes there, or a copy differs.
    """
    real = local.check_target(target)
    inside = source.resolve()
    if real == inside or real in inside.parents or inside in real.parents:
        raise UsageError(f"{target} is in the build, or the build in it.", "Give another folder.")
    beside = local.beside(real, "publishing")
    with local.staging(real):  # the lock
        there = sending.StoreTarget(open_store(real))
        names, before = {piece.name for piece in publication.all}, {*there.look()}
        sent = Sent((), 0, ())
        if names != before or not all(map(there.holds, publication.all)):
            copy = sending.StoreTarget(replace(open_store(beside), shown=str(target)))
            sent = sending.bring(copy, publication, report)
            _exchange(beside, real, publication)
        shutil.rmtree(beside, ignore_errors=True)  # the build that was there before
    return Sent(sent.names, sent.bytes, tuple(sorted(before - names)))


def _exchange(beside: Path, real: Path, publication: Publication) -> None:
    for piece in publication.pieces:
        if piece.path.stat().st_mode & 0o100:  # launch scripts
            (beside / piece.name).chmod(0o755)
    local.publish(beside, real)


def releases_of(folder: Path) -> folder_versions.FolderVersions | None:
    """The versions that are meant, by their folder or by its link; None of any other folder."""
    for one in (folder, folder.parent if folder.name == local.CURRENT else folder):
        if local.is_releases(one):
            return folder_versions.FolderVersions(one)
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
    version = releases.find(local.CURRENT)
    name = f"publish-{hashlib.sha256(address.encode()).hexdigest()[:8]}"
    # Whoever may only read there publishes all the same.
    with suppress(OSError):
        for other in releases.all():
            if name in other.holds:
                releases.release(other.build_id, name)
        releases.hold(version.build_id, name)
    try:
        yield version.folder
    finally:
        with suppress(OSError):
            releases.release(version.build_id, name)


def record(folder: Path, status: str, build_id: str, address: str) -> None:
    """A line for the history of versions, if the folder has one that can be written."""
    releases = releases_of(folder)
    if releases is not None:
        with suppress(OSError):
            releases.record(lease.entry(status, f"{status} at {address}", build_id=build_id))
