"""A build goes into a store: it is made and judged here, put object by object, and then named.

Shards first, the manifest last, then ``current`` in one exchange. Until then no reader sees any of
it. What a run that was stopped has put stays, and is not put again by the next one.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.builds import lease, place, publish, store_versions, versions
from pipeline.manifest.json_records import load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import AUDITS, RUN
from pipeline.stores import Stat, Store, objects, open_store
from stages.errors import PipelineError, SurroundingsError, UsageError
from stages.files import file_hash

KEPT = 2  # versions, where --keep does not say: whoever has just read ``current`` can go on reading
_SMALL = (AUDITS, RUN, MANIFEST)  # what the next build compares itself with; the manifest last


@dataclass
class _Now:
    """What a run knows of the store meanwhile."""

    writer: store_versions.Writer | None = None
    current: store_versions.Current | None = None


@dataclass(frozen=True, slots=True)
class StorePlace(place.Place):
    """See ``Place``; ``real`` is the folder of this machine beside which the build is made.

    Attributes:
        single: no other run writes there, as the user says.
    """

    store: Store = field(kw_only=True)
    single: bool = False
    now: _Now = field(default_factory=_Now)

    @classmethod
    def at(cls, address: str, here: Path, keep: int, single: bool) -> "StorePlace":
        """The place at an address; nothing is asked of it yet.

        Args:
            here: the folder of this machine that belongs to it.

        Raises:
            UsageError: the store cannot decide between two writers, and ``single`` is not given.
        """
        store = open_store(address)
        if not store.conditions and not single:
            raise UsageError(
                f"{store.shown} is in a store without conditional writes here.",
                "Add --single-writer, and see to it that no other run writes there.",
            )
        return cls(Path(address), here, keep or KEPT, store=store, single=single)

    def _asked(self) -> store_versions.Current:
        if self.now.current is None:
            self.now.current = store_versions.current(self.store)
        return self.now.current

    @property
    def before(self) -> Path:
        """The small files of the current version, here; no folder where there is none."""
        now = self._asked().build_id
        folder = self.real / (now or "none")
        if now is not None and not folder.is_dir():
            self.real.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(dir=self.real))
            for name in _SMALL:
                self.store.fetch(f"{now}/{name}", new / name)
            try:
                new.rename(folder)
            except OSError:  # another run was first
                shutil.rmtree(new, ignore_errors=True)
        return folder

    @property
    def shown_before(self) -> str:
        """Its current version, as messages say it."""
        return f"{self.store.shown}/{versions.CURRENT}"

    def build(self, build_id: str) -> Path:
        """Where a version would lie here; it does not."""
        return self.real / build_id

    def shown(self, build_id: str) -> Path:
        """The address of a version, as a path."""
        return self.output / build_id

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A new directory of this machine to build in, under the lock of the store.

        Raises:
            SurroundingsError: another build of the same output is running, here or elsewhere.
        """
        self.real.parent.mkdir(parents=True, exist_ok=True)
        with publish.staging(self.real, self.store.shown) as folder, self._writing():
            for old in self.real.glob("*"):
                if old != self.before:
                    shutil.rmtree(old, ignore_errors=True)
            yield folder

    @contextmanager
    def _writing(self) -> Iterator[store_versions.Writer]:
        if self.now.writer is not None:  # a build that found an equal one late
            yield self.now.writer
            return
        with store_versions.writing(self.store, self.single) as writer:
            self.now.writer, self.now.current = writer, None  # others may have built meanwhile
            if writer.lock.after:
                self._record_killed(writer.lock.after)
            try:
                yield writer
            finally:
                self.now.writer = None

    def publish(self, folder: Path, build_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Put a finished staging directory, and make it the current version; see ``Place``.

        Raises:
            SurroundingsError: the store failed, or another run took over.
        """
        writer = self._writer()
        data = (folder / MANIFEST).read_bytes()
        files = {**load(Listed, data).files, RUN: file_hash.sha256(folder / RUN)}
        there = store_versions.objects_of(self.store, build_id)
        store_versions.require_own(self.store, build_id, there, {*files, MANIFEST})
        noted: dict[str, Stat] = {}
        for name in sorted(files, key=lambda one: (not one.endswith(".arrow"), one)):
            writer.lock.require()
            noted[name] = self._sent(f"{build_id}/{name}", folder / name, files[name], there)
        store_versions.note_objects(self.store, build_id, noted)
        writer.lock.require(ask=True)
        sha256 = file_hash.sha256(folder / MANIFEST)
        self._sent(f"{build_id}/{MANIFEST}", folder / MANIFEST, sha256, there)
        return self._turned(build_id, data)

    def _sent(self, at: str, source: Path, sha256: str, there: Mapping[str, Stat]) -> Stat:
        """Put a file, unless it is there."""
        found = there.get(at.partition("/")[2])
        if found is not None and objects.holds(self.store, at, found, source, sha256):
            return found
        return objects.send(self.store, at, source, sha256)

    def _writer(self) -> store_versions.Writer:
        if self.now.writer is None:
            raise SurroundingsError(f"The lock of {self.store.shown} was lost.", "Build again.")
        return self.now.writer

    def turn_to(self, build_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Make a version that is there the current one; see ``Place``."""
        with self._writing():
            data = store_versions.whole(self.store, build_id)
            if data is None:
                raise SurroundingsError(
                    f"{self.store.shown}: version {build_id[: versions.SHORT]} was changed by "
                    f"another run.",
                    "Build again.",
                )
            return self._turned(build_id, data)

    def _turned(self, build_id: str, manifest: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
        writer = self._writer()
        writer.point(build_id, manifest)
        self.now.current = None
        return store_versions.retain(self.store, self.keep)

    def moment(self, folder: Path, build_id: str) -> Callable[[], bool]:
        """See ``Place``."""
        return lambda: self.is_published(build_id)

    def is_published(self, build_id: str) -> bool:
        """Whether it is the current version now."""
        with suppress(PipelineError):
            return store_versions.current(self.store).build_id == build_id
        return False

    def retain(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Nothing: old versions are let go when a new one is put, under the lock."""
        return (), ()

    def current(self) -> str | None:
        """The id of the current version."""
        return self._asked().build_id

    def withdrawn(self, build_id: str) -> bool:
        """See ``Place``."""
        return build_id in self._asked().withdrawn

    @property
    def in_store(self) -> bool:
        """It is."""
        return True

    def manifest_of(self, build_id: str) -> bytes | None:
        """The manifest of a version that is whole; None where it is not, or is not there."""
        return store_versions.whole(self.store, build_id)

    def record(self, line: Mapping[str, Any]) -> None:
        """Append a line to the history of versions, with what is current now."""
        self.now.current = None
        try:
            store_versions.append(self.store, {**line, "current": self.current()}, self.single)
        except PipelineError as error:
            raise OSError(error.what) from error

    def _record_killed(self, owner: str) -> None:
        with suppress(OSError):  # it only informs
            message = f"the run before ({owner}) ended without a word"
            self.record(lease.entry("failed", message, None))

    def record_killed(self) -> None:
        """Nothing: whoever takes over its lock writes it down."""
