"""Where a build goes: into a directory of its own, or as one of the versions of a folder or a
store."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import secrets, stores
from pipeline.builds import failed, folder_versions, publish
from pipeline.builds.versions import LetGo, Versions
from pipeline.manifest import dataset_files
from pipeline.manifest.manifest import MANIFEST, Manifest
from stages.errors import DataError, IrregularError, PipelineError, UsageError, require_reading
from stages.files import file_hash

if TYPE_CHECKING:
    from pipeline.options.build_options import RunOptions

KEPT = 2  # versions in a store, where --keep does not say: who has just read ``current`` reads on


def before(output: Path, keep: int) -> Path:
    """The build that a new one takes the place of, where there is one."""
    return output / publish.CURRENT if keep else output


def versions_of(releases: Path, single: bool | None = None, here: Path = Path()) -> Versions:
    """The versions of a folder, or of an address; nothing is asked of it yet.

    Args:
        single: no other run writes to the store, as the user says; None: as it may be.
        here: the folder of this machine beside which a build for a store is made.

    Raises:
        UsageError: the store cannot decide between two writers, and ``single`` is False.
    """
    if not stores.is_address(releases):
        return folder_versions.FolderVersions(releases)
    from pipeline.builds.store_versions import StoreVersions  # which few need

    store = stores.open_store(releases)
    if not store.conditions and single is False:
        raise UsageError(
            f"{store.shown} is in a store without conditional writes here.",
            "Add --single-writer, and see to it that no other run writes there.",
        )
    return StoreVersions(store, bool(single) or not store.conditions, here)


@dataclass(frozen=True, slots=True)
class Place:
    """The output of a build.

    Attributes:
        output: as it was named, a path also where it is an address; ``real``: links followed, or
            the folder of this machine that belongs to the address.
        keep: how many versions stay; 0 where the output is a build itself.
        versions: those that are there; None where the output is a build itself.
    """

    output: Path
    real: Path
    keep: int = 0
    versions: Versions | None = None

    @classmethod
    def of(cls, output: Path, keep: int = 0) -> "Place":
        """The output in a folder, where it is ours to write to.

        Raises:
            UsageError: it is not (see ``publish.check_target``), or it holds versions and ``keep``
                is 0, or the other way round.
        """
        real = Path(os.path.realpath(output))
        if not keep:
            if real.is_dir() and publish.is_releases(real):
                raise UsageError(
                    f"{output} holds versions of a build.",
                    "Say how many to keep, as in --keep 7, or give another directory with -o.",
                )
            return cls(output, publish.check_target(output))
        publish.require_apart(output)
        if real.exists() and not real.is_dir():
            raise UsageError(f"{output} is a file.", "Give a directory with -o.")
        if (real / MANIFEST).exists():
            raise UsageError(
                f"{output} is a build, not a folder of versions.",
                "Give another directory with -o, or leave --keep out.",
            )
        others = [p.name for p in real.iterdir()] if real.is_dir() else []
        if not publish.is_releases(real) and not all(map(dataset_files.is_one, others)):
            raise UsageError(
                f"{output} has files in it and holds no versions.",
                "Give another directory with -o.",
            )
        if (real / publish.CURRENT).exists() and not (real / publish.CURRENT).is_symlink():
            raise UsageError(
                f"{output / publish.CURRENT} is not a link.",
                "Was the folder copied without its links? Move that folder away.",
            )
        return cls(output, real, keep, folder_versions.FolderVersions(real))

    @property
    def in_store(self) -> bool:
        """Whether it is in a store."""
        return stores.is_address(self.output)

    @property
    def before(self) -> Path:
        """The build that a new one takes the place of, where there is one, as far as it is here."""
        return self.real if self.versions is None else self.versions.before

    @property
    def shown_before(self) -> str:
        """The same, as the user knows it."""
        return stores.shown(before(self.output, self.keep))

    @property
    def link(self) -> Path | None:
        """The name of the current version, as the user knows it; None of a single build."""
        return self.output / publish.CURRENT if self.keep else None

    def build(self, build_id: str) -> Path:
        """Where a build of this id lies, in a folder."""
        return self.real / build_id if self.keep else self.real

    def shown(self, build_id: str) -> Path:
        """Where a build of this id lies, as the user named the output."""
        return self.output / build_id if self.keep else self.output

    def staging(self) -> AbstractContextManager[Path]:
        """A new directory to build in, under the lock of the output; it is removed in the end.

        Raises:
            SurroundingsError: another build of the same output is running, here or elsewhere.
        """
        return publish.staging(self.real) if self.versions is None else self.versions.staging()

    def publish(self, folder: Path, build_id: str) -> LetGo:
        """Put a finished staging directory in its place, and let go of old versions.

        Returns:
            The ids of versions that were removed, and sentences about those that could not be.
        """
        if self.versions is None:
            publish.publish(folder, self.real)
            return (), ()
        self.versions.put(folder, build_id)
        return self.turn_to(build_id)

    def turn_to(self, build_id: str) -> LetGo:
        """Make a version that is there the current one; returns what ``publish`` does.

        Raises:
            UsageError, SurroundingsError: another run has just removed it, or changed it.
        """
        if self.versions is None:
            return (), ()
        with self.versions.writing():
            self.versions.point(build_id)
            return self.versions.retain(self.keep)

    def moment(self, folder: Path, build_id: str) -> Callable[[], bool]:
        """Says at any time whether the build of a staging directory is the one that is there."""
        if self.in_store:
            return partial(self.is_published, build_id)
        return publish.moment(folder, self.before)

    def is_published(self, build_id: str) -> bool:
        """Whether this is the build that is there now."""
        if self.versions is None:
            return publish.id_of(self.real) == build_id
        with suppress(PipelineError):
            return self.versions.current(fresh=True) == build_id
        return False

    def retain(self) -> LetGo:
        """Let go of old versions; returns what ``publish`` does.

        After a run that was killed, or with another ``--keep``, an unchanged build has some, too.
        In a store they are let go when a new one is put, under the lock.
        """
        if self.versions is None or self.in_store:
            return (), ()
        return self.versions.retain(self.keep)

    def withdrawn(self, build_id: str) -> bool:
        """Whether a rollback took this version back, and nobody has asked for it since."""
        return self.versions is not None and build_id in self.versions.said().withdrawn


def place_of(run: "RunOptions") -> Place:
    """Where a build goes.

    Raises:
        UsageError: it is not ours to write to, or the store cannot decide between two writers.
    """
    if run.address:
        output, single = Path(run.address), bool(run.single_writer)
        return Place(output, run.place, run.keep or KEPT, versions_of(output, single, run.place))
    if run.single_writer:
        raise UsageError(
            "--single-writer is for an output in a store.", "Leave it out: a folder has a lock."
        )
    return Place.of(run.output, run.keep)


# Where a build lies: in a folder, or in a store, whose objects are fetched when they are read.


def found(folder: str | Path) -> tuple[Path, bytes]:
    """Where a build lies, and its manifest. ``current`` stands for the version that is current now,
    and so does an output in a store.

    Raises:
        UsageError: there is no build.
        SurroundingsError: the store cannot be read.
    """
    address = stores.address_of(folder)
    if address:
        return _in_store(address)
    place = folder_versions.resolved(Path(folder))
    try:
        return place, file_hash.required(place / MANIFEST).read_bytes()
    except OSError as error:
        require_reading(error)
        why = "it has no manifest.json" if place.is_dir() else "there is no such folder"
        where = "Give the folder that pipeline run or pipeline export wrote."
        if (place / publish.CURRENT).is_symlink():
            why, where = "it holds versions", f"Give one of them: {place / publish.CURRENT}."
        if (place / failed.REASONS).is_file():
            why, where = "it is what a refused build left", failed.way_of(place)
        raise UsageError(f"{folder} is not a build: {why}.", where) from error


def _in_store(address: str) -> tuple[Path, bytes]:
    where = address.rstrip("/")
    releases, _, last = where.rpartition("/")
    if last == publish.CURRENT:
        where = releases
    store = stores.open_store(where)
    data = store.get(MANIFEST) if last != publish.CURRENT else None
    if data is not None:
        return Path(where), data
    from pipeline.builds import store_versions  # which few need

    now = store_versions.current(store).build_id
    data = store.get(f"{now}/{MANIFEST}") if now is not None else None
    if data is None:
        raise UsageError(
            f"{store.shown} is not a build: it has no manifest.json, and names no current version.",
            "Give the address that a build was written or published to.",
        )
    return Path(f"{where}/{now}"), data


class Whereabouts:
    """The part of ``Build`` that finds its files."""

    folder: Path
    manifest: Manifest

    @property
    def address(self) -> str:
        """Where it lies in a store; empty for a folder."""
        return stores.address_of(self.folder)

    def shown(self, name: str = "") -> str:
        """Where the build, or a file of it, lies, as messages say it."""
        if not self.address:
            return str(self.folder / name)
        return f"{secrets.redacted(self.address)}/{name}".rstrip("/")

    @cached_property
    def store(self) -> stores.Store:
        """The place of a build in a store."""
        return stores.open_store(self.address)

    @property
    def here(self) -> Path:
        """The folder on this machine in which ``path`` finds files."""
        if not self.address:
            return self.folder
        return stores.copies_of(self.store, str(self.manifest.content_sha256))

    def path(self, name: str) -> Path:
        """A file of the build on this machine. Of a build in a store it is the copy, which is
        fetched now unless it was before, and has the hash that the manifest gives it.

        Raises:
            DataError: the store has no such file, or it has other bytes, or it is no file.
        """
        if not self.address:
            try:
                return file_hash.required(self.folder / name)
            except IrregularError as error:
                raise DataError(error.what, "Build it again.") from error
        return stores.fetch(self.store, name, self.here / name, self.manifest.files.get(name))
