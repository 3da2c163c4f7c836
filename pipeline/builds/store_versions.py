"""The versions of a store; see ``versions``.

    OUT/<build_id>/...           a build; its manifest is put last
    OUT/objects/<build_id>.json  sizes and tags of its objects, by which it is known to be whole
    OUT/current                  names a version; exchanged with a condition
    OUT/history.jsonl            one line for each run, rollback and removal
    OUT/lock                     who writes there now: see ``lease``

A build is made and judged here, and put object by object: shards first, the manifest last, then
``current`` in one exchange. Until then no reader sees any of it. What a run that was stopped has
put stays, and is not put again by the next one.

``current`` carries a number, the fence. Whoever takes over the lock of a writer that died raises
it first. If that writer was only slow, its exchange of ``current`` is refused from then on, and
what it has put is no version that anybody reads.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline import stores
from pipeline.builds import lease, publish, versions
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import AUDITS, RUN
from pipeline.stores import Stat, Store
from stages.errors import SurroundingsError, UsageError
from stages.files import file_hash

_OBJECTS = "objects"
_EARLIER = 1000  # versions that are remembered in their order
_LINES = 10_000  # of the history that are kept
_OURS = {publish.CURRENT, lease.HISTORY, lease.LOCK, _OBJECTS}
_SMALL = (AUDITS, RUN, MANIFEST)  # what the next build compares itself with; the manifest last


@dataclass(frozen=True, slots=True)
class Current:
    """What ``current`` says.

    Attributes:
        build_id: of the current version; None where there is none yet.
        manifest_sha256: as its seal has it.
        fence: how often a lock was taken over.
        earlier: versions that were current before, the last one first; some may be gone.
        withdrawn: those that a rollback took back, and nobody made current again.
    """

    build_id: str | None = None
    manifest_sha256: str | None = None
    fence: int = 0
    earlier: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()

    def turned_to(self, build_id: str, sha256: str, back: bool) -> "Current":
        """The same after another version was made current; ``back``: by a rollback."""
        left = () if self.build_id in (None, build_id) else (str(self.build_id),)
        earlier = dict.fromkeys((*left, *self.earlier))
        withdrawn = dict.fromkeys((*self.withdrawn, *(left if back else ())))
        for names in (earlier, withdrawn):
            names.pop(build_id, None)
        return Current(
            build_id, sha256, self.fence, (*earlier,)[:_EARLIER], (*withdrawn,)[-_EARLIER:]
        )


def current(store: Store) -> Current:
    """What readers are sent to: one request."""
    return _read(store.get(publish.CURRENT))


def _read(content: bytes | None) -> Current:
    said = lease.object_of(content)
    try:
        name, sha256 = said.get("build_id"), said.get("manifest_sha256")
        if name is not None and not publish.ID.fullmatch(name):
            return Current()
        lists = (tuple(map(str, said.get(key, ()))) for key in ("earlier", "withdrawn"))
        return Current(name, sha256, int(said.get("fence", 0)), *lists)
    except (ValueError, TypeError):
        return Current()


def require_ours(store: Store) -> None:
    """Raises UsageError where the place has objects that no build put there."""
    others = [
        name
        for name in store.names()
        if name not in _OURS and not publish.ID.fullmatch(name) and not lease.is_clock(name)
    ]
    if MANIFEST in others:
        raise UsageError(
            f"{store.shown} is a published copy of a build, not a folder of versions.",
            "Give another address with -o.",
        )
    if others:
        raise UsageError(
            f"{store.shown} has objects in it that are not of a build: {others[0]}.",
            "Give another address with -o.",
        )


@dataclass
class StoreVersions(versions.Versions):
    """Those at an address.

    Attributes:
        single: no other run writes there, as the user says.
        here: the folder of this machine beside which a build is made.
    """

    store: Store
    single: bool = False
    here: Path = Path()
    _lock: lease.Lease | None = None
    _fence: int = 0  # as it was when the lock was taken
    _now: Current | None = None
    _sent: dict[str, bytes] = field(default_factory=dict)  # manifests of builds that were put

    @property
    def shown(self) -> str:
        return self.store.shown

    def _asked(self) -> Current:
        if self._now is None:
            self._now = current(self.store)
        return self._now

    def current(self, fresh: bool = False) -> str | None:
        if fresh:
            self._now = None
        return self._asked().build_id

    def said(self) -> versions.Said:
        now = self._asked()
        known = reversed((str(now.build_id), *now.earlier))
        return versions.Said(now.build_id, {one: n for n, one in enumerate(known)}, now.withdrawn)

    @property
    def before(self) -> Path:
        """Its small files; no folder where there is no current version."""
        now = self.current()
        folder = self.here / (now or "none")
        if now is not None and not folder.is_dir():
            self.here.mkdir(parents=True, exist_ok=True)
            new = Path(tempfile.mkdtemp(dir=self.here))
            for name in _SMALL:
                self.store.fetch(f"{now}/{name}", new / name)
            try:
                new.rename(folder)
            except OSError:  # another run was first
                shutil.rmtree(new, ignore_errors=True)
        return folder

    @contextmanager
    def staging(self) -> Iterator[Path]:
        with publish.staging(self.here, self.shown) as folder, self.writing():
            for old in self.here.glob("*"):
                if old != self.before:
                    shutil.rmtree(old, ignore_errors=True)
            yield folder

    @contextmanager
    def writing(self) -> Iterator[lease.Lease]:
        """Under the lock of the store, which this run may have already.

        Raises:
            UsageError: the place has objects that no build put there, or the store cannot decide.
            SurroundingsError: another run writes there.
        """
        if self._lock is not None:
            yield self._lock
            return
        require_ours(self.store)
        with lease.Lease(self.store, self.single).held() as self._lock:
            self._now = None  # others may have built meanwhile
            self._fence = self._asked().fence
            try:
                if self._lock.after:
                    self._take_over(self._lock.after)
                yield self._lock
            finally:
                self._lock = None

    def _exchanged(self, change: Callable[[Current], Current | None]) -> bool:
        """Put what follows from ``current``, decided by the store; False where it was not put."""

        def changed(old: bytes | None) -> bytes | None:
            new = change(_read(old))
            return json.dumps(asdict(new), indent=1).encode() + b"\n" if new else None

        self._now = None
        return self.store.exchange(publish.CURRENT, changed, self.single)

    def _take_over(self, owner: str) -> None:
        """Raise the fence: a writer that was taken for dead can make no version current."""
        if not self._exchanged(lambda said: replace(said, fence=said.fence + 1)):
            raise SurroundingsError(
                f"{self.shown}/{publish.CURRENT} could not be updated.", "Run again."
            )
        self._fence = self._asked().fence
        with suppress(OSError):  # it only informs
            message = f"the run before ({owner}) ended without a word"
            self.record(lease.entry("failed", message, None))

    def put(self, folder: Path, build_id: str) -> None:
        """Raises SurroundingsError where the store failed, or another run took over."""
        with self.writing() as lock:
            data = (folder / MANIFEST).read_bytes()
            files = {**load(Listed, data).files, RUN: file_hash.sha256(folder / RUN)}
            there = self._objects(build_id)
            foreign = sorted({*there} - {*files, MANIFEST})
            if foreign:
                raise UsageError(
                    f"{self.shown}/{build_id} has objects that are not of the build: {foreign[0]}.",
                    "Move them away, or give another address with -o.",
                )
            noted: dict[str, list[object]] = {}
            for name in sorted(files, key=lambda one: (not one.endswith(".arrow"), one)):
                lock.require()
                at, source = f"{build_id}/{name}", folder / name
                one = stores.sent(self.store, at, source, files[name], there.get(name))
                noted[name] = [one.size, one.tag]
            self.store.put(_noted(build_id), json.dumps(dict(sorted(noted.items()))).encode())
            lock.require(ask=True)
            last, sha256 = folder / MANIFEST, file_hash.sha256(folder / MANIFEST)
            stores.sent(self.store, f"{build_id}/{MANIFEST}", last, sha256, there.get(MANIFEST))
            self._sent[build_id] = data

    def point(self, build_id: str, back: bool = False) -> None:
        """Raises UsageError or SurroundingsError where it is not whole, SurroundingsError where
        another run has taken over."""
        with self.writing() as lock:
            sha256 = self._sealed(build_id, back)
            lock.require(ask=True)

            def turned(said: Current) -> Current | None:
                return said.turned_to(build_id, sha256, back) if said.fence == self._fence else None

            if not self._exchanged(turned):
                raise SurroundingsError(
                    f"{self.shown} was taken over by another run, because this run's "
                    "lock had expired.",
                    "Build again when it has ended.",
                )

    def _sealed(self, build_id: str, back: bool) -> str:
        """The seal of a version that is whole."""
        data = self._sent.get(build_id) or self.manifest_of(build_id)
        if data is not None:
            return str(json.loads(data)["content_sha256"])
        what = f"{self.shown}: version {build_id[: versions.SHORT]}"
        if back:
            look = f"See: pipeline check {self.shown}/{build_id}"
            raise UsageError(f"{what} is not whole.", look)
        raise SurroundingsError(f"{what} was changed by another run.", "Build again.")

    def _objects(self, build_id: str) -> dict[str, Stat]:
        """What is there of a version, by its path in the build: one list."""
        start = len(build_id) + 1
        return {name[start:]: one for name, one in self.store.list(build_id).items()}

    def manifest_of(self, build_id: str) -> bytes | None:
        """The manifest of a version whose objects are all as they were put, by size and tag; no
        shard is read. None where one differs, or the store has no tags."""
        data = self.store.get(f"{build_id}/{MANIFEST}")
        try:
            listed = load(Listed, data or b"")
        except MalformedError:
            return None
        said = lease.object_of(self.store.get(_noted(build_id)))
        there = self._objects(build_id)
        wanted = {*listed.files, RUN}
        if {*there} != wanted | {MANIFEST}:
            return None
        alike = (
            there[one].tag and [there[one].size, there[one].tag] == said.get(one) for one in wanted
        )
        return data if all(alike) else None

    def named(self) -> Iterator[str]:
        """Those that are finished."""
        for name in filter(publish.ID.fullmatch, self.store.names()):
            if self.store.stat(f"{name}/{MANIFEST}") is not None:
                yield name

    def at(self, build_id: str) -> Path:
        return Path(f"{self.shown}/{build_id}")

    def stays(self, version: versions.Version) -> str:
        name = version.build_id
        with suppress(MalformedError):
            listed = load(Listed, self.store.get(f"{name}/{MANIFEST}") or b"")
            if {*self._objects(name)} - {*listed.files, RUN, MANIFEST}:
                return "it has objects that are not of the build"
        return ""

    def remove(self, build_id: str) -> bool:
        """First its manifest, without which it is none."""
        names = [f"{build_id}/{name}" for name in self._objects(build_id) if name != MANIFEST]
        self.store.delete(f"{build_id}/{MANIFEST}", _noted(build_id), *names)
        return True

    def tidy(self, known: Sequence[versions.Version]) -> None:
        """The caller has the lock."""
        finished = {one.build_id for one in known}
        for name in self.store.names():
            if lease.is_clock(name):
                self.store.delete(name)
            if publish.ID.fullmatch(name) and name not in finished:
                self.remove(name)

    def append(self, line: Mapping[str, Any]) -> None:
        """Of very many lines the oldest are let go."""
        text = json.dumps(line, ensure_ascii=False, default=str).encode() + b"\n"

        def longer(old: bytes | None) -> bytes:
            lines = (old or b"").splitlines(keepends=True)
            return b"".join([*lines[-_LINES + 1 :], text])

        if not self.store.exchange(lease.HISTORY, longer, self.single):
            raise OSError("others wrote it at the same time")


def _noted(build_id: str) -> str:
    """The object with sizes and tags of a version's objects."""
    return f"{_OBJECTS}/{build_id}.json"
