"""Where a build lies: in a folder, or in a store, whose objects are fetched when they are read."""

from functools import cached_property
from pathlib import Path

from pipeline.builds import folder_versions, publish, store_versions
from pipeline.manifest.manifest import MANIFEST, Manifest
from pipeline.secrets import redacted
from pipeline.stores import address_of, open_store
from pipeline.stores.objects import Copies
from stages.errors import DataError, IrregularError, UsageError, require_reading
from stages.files import file_hash


def found(folder: str | Path) -> tuple[Path, bytes]:
    """Where a build lies, and its manifest. ``current`` stands for the version that is current now,
    and so does an output in a store.

    Raises:
        UsageError: there is no build.
        SurroundingsError: the store cannot be read.
    """
    address = address_of(folder)
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
        raise UsageError(f"{folder} is not a build: {why}.", where) from error


def _in_store(address: str) -> tuple[Path, bytes]:
    where = address.rstrip("/")
    releases, _, last = where.rpartition("/")
    if last == publish.CURRENT:
        where = releases
    store = open_store(where)
    data = store.get(MANIFEST) if last != publish.CURRENT else None
    if data is not None:
        return Path(where), data
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
        return address_of(self.folder)

    def shown(self, name: str = "") -> str:
        """Where the build, or a file of it, lies, as messages say it."""
        if not self.address:
            return str(self.folder / name)
        return f"{redacted(self.address)}/{name}".rstrip("/")

    @cached_property
    def copies(self) -> Copies:
        """Of the files of a build in a store, in the cache of this machine."""
        return Copies.of(open_store(self.address), str(self.manifest.content_sha256))

    @property
    def here(self) -> Path:
        """The folder on this machine in which ``path`` finds files."""
        return self.copies.folder if self.address else self.folder

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
        return self.copies.path(name, self.manifest.files.get(name))
