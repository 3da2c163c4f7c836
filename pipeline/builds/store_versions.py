"""Versions in a store: every build below its id, and one small object that names one of them.

    OUT/<build_id>/...           a build; its manifest is put last
    OUT/objects/<build_id>.json  sizes and tags of its objects, by which it is known to be whole
    OUT/current                  names a version; exchanged with a condition
    OUT/history.jsonl            one line for each run, rollback and removal
    OUT/lock                     who writes there now: see ``lease``

``current`` carries a number, the fence. Whoever takes over the lock of a writer that died raises
it first. If that writer was only slow, its exchange of ``current`` is refused from then on, and
what it has put is no version that anybody reads.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.builds import lease, versions
from pipeline.builds.versions import CURRENT, Version
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import RUN
from pipeline.stores import Stat, Store, exchange
from stages.errors import SurroundingsError, UsageError

_ID = re.compile(r"[0-9a-f]{64}")
_OBJECTS = "objects"
_EARLIER = 1000  # versions that are remembered in their order
_LINES = 10_000  # of the history that are kept
_OURS = {CURRENT, lease.HISTORY, lease.LOCK, _OBJECTS}


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
        earlier = tuple(one for one in (*left, *self.earlier) if one != build_id)
        withdrawn = tuple(one for one in (*self.withdrawn, *(left if back else ())))
        return Current(
            build_id,
            sha256,
            self.fence,
            tuple(dict.fromkeys(earlier))[:_EARLIER],
            tuple(one for one in dict.fromkeys(withdrawn) if one != build_id)[-_EARLIER:],
        )


def current(store: Store) -> Current:
    """What readers are sent to: one request."""
    return _read(store.get(CURRENT))


def _read(content: bytes | None) -> Current:
    try:
        said = json.loads(content or b"{}")
        name, sha256 = said.get("build_id"), said.get("manifest_sha256")
        if name is not None and not _ID.fullmatch(name):
            return Current()
        lists = (tuple(map(str, said.get(key, ()))) for key in ("earlier", "withdrawn"))
        return Current(name, sha256, int(said.get("fence", 0)), *lists)
    except (ValueError, AttributeError, TypeError):
        return Current()


def _written(said: Current) -> bytes:
    return json.dumps(asdict(said), indent=1).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Writer:
    """This process, which holds the lock of a place.

    Attributes:
        fence: as it was when the lock was taken.
    """

    store: Store
    lock: lease.Lease
    fence: int

    def point(self, build_id: str, manifest: bytes, back: bool = False) -> None:
        """Make a version current, in one exchange that the store decides.

        Args:
            manifest: its manifest, which ``current`` names by its seal.
            back: by a rollback.

        Raises:
            SurroundingsError: another run has taken over.
        """
        self.lock.require(ask=True)
        sha256 = str(json.loads(manifest)["content_sha256"])

        def changed(old: bytes | None) -> bytes | None:
            before = _read(old)
            if before.fence != self.fence:
                return None
            return _written(before.turned_to(build_id, sha256, back))

        if not exchange(self.store, CURRENT, changed, self.lock.single):
            raise SurroundingsError(
                f"{self.store.shown} was taken over by another run, because this run's "
                "lock had expired.",
                "Build again when it has ended.",
            )

    def raised(self) -> "Writer":
        """The same after the fence was raised: a writer that was taken for dead can no longer make
        a version current."""
        if not exchange(self.store, CURRENT, _with_fence_raised, self.lock.single):
            raise SurroundingsError(
                f"{self.store.shown}/{CURRENT} could not be updated.", "Run again."
            )
        return replace(self, fence=current(self.store).fence)


def _with_fence_raised(old: bytes | None) -> bytes:
    said = _read(old)
    return _written(replace(said, fence=said.fence + 1))


@contextmanager
def writing(store: Store, single: bool) -> Iterator[Writer]:
    """Write to a place, under its lock.

    Raises:
        UsageError: the place has objects that no build put there, or the store cannot decide.
        SurroundingsError: another run writes there.
    """
    require_ours(store)
    with lease.Lease(store, single).held() as lock:
        writer = Writer(store, lock, current(store).fence)
        if lock.after:
            writer = writer.raised()
        yield writer


def require_ours(store: Store) -> None:
    """Raises UsageError where the place has objects that no build put there."""
    there = store.names()
    others = [name for name in there if name not in _OURS and not _ID.fullmatch(name)]
    others = [name for name in others if not lease.is_clock(name)]
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


def objects_of(store: Store, build_id: str) -> dict[str, Stat]:
    """What is there of a version, by its path in the build: one list."""
    start = len(build_id) + 1
    return {name[start:]: one for name, one in store.list(build_id).items()}


def require_own(store: Store, build_id: str, there: Collection[str], own: Collection[str]) -> None:
    """Raises UsageError where a version has objects that no build put there."""
    foreign = sorted(set(there) - set(own))
    if foreign:
        raise UsageError(
            f"{store.shown}/{build_id} has objects that are not of the build: {foreign[0]}.",
            "Move them away, or give another address with -o.",
        )


def note_objects(store: Store, build_id: str, there: Mapping[str, Stat]) -> None:
    """Write down how the objects of a version are named by the store."""
    said = {name: [one.size, one.tag] for name, one in sorted(there.items())}
    store.put(f"{_OBJECTS}/{build_id}.json", json.dumps(said).encode())


def whole(store: Store, build_id: str) -> bytes | None:
    """The manifest of a version whose objects are all as they were put, by size and tag; no shard
    is read. None where one differs, or the store has no tags."""
    data = store.get(f"{build_id}/{MANIFEST}")
    noted = store.get(f"{_OBJECTS}/{build_id}.json") if data is not None else None
    try:
        listed, said = load(Listed, data or b""), json.loads(noted or b"")
    except (MalformedError, ValueError):
        return None
    there = objects_of(store, build_id)
    wanted = {*listed.files, RUN}
    alike = all(
        name in there and there[name].tag and [there[name].size, there[name].tag] == said.get(name)
        for name in wanted
    )
    return data if alike and set(there) == wanted | {MANIFEST} else None


def append(store: Store, line: Mapping[str, Any], single: bool) -> None:
    """One more line of history; of very many the oldest are let go."""
    text = json.dumps(line, ensure_ascii=False, default=str).encode() + b"\n"

    def longer(old: bytes | None) -> bytes:
        lines = (old or b"").splitlines(keepends=True)
        return b"".join([*lines[-_LINES + 1 :], text])

    if not exchange(store, lease.HISTORY, longer, single):
        raise OSError("others wrote it at the same time")


def listed(store: Store) -> list[Version]:
    """Every version; the current one first, then the one that was current last, and so on."""
    now = current(store)
    order = {name: -place for place, name in enumerate((now.build_id, *now.earlier))}
    ids = [name for name in store.names() if _ID.fullmatch(name)]
    found = [
        Version(
            build_id=name,
            folder=Path(f"{store.shown}/{name}"),
            order=order.get(name, -len(order)),
            current=name == now.build_id,
            withdrawn=name in now.withdrawn,
            holds=(),
        )
        for name in ids
        if store.stat(f"{name}/{MANIFEST}") is not None
    ]
    return sorted(found, key=lambda v: (v.current, v.order, v.build_id), reverse=True)


def rollback(store: Store, name: str | None, single: bool = False) -> tuple[str | None, Version]:
    """See ``versions.rollback``; the version must be whole.

    Args:
        single: no other run writes there, as the user says.

    Raises:
        UsageError: there is none to go back to, or it is not whole.
        SurroundingsError: a build is running, which could remove that version.
    """
    with writing(store, single or not store.conditions) as held:
        before, known = current(store).build_id, listed(store)
        wanted = versions.to_go_back_to(known, name, store.shown)
        data = whole(store, wanted.build_id)
        if data is None:
            raise UsageError(
                f"{store.shown}: version {wanted.build_id[: versions.SHORT]} is not whole.",
                f"See: pipeline check {store.shown}/{wanted.build_id}",
            )
        held.point(wanted.build_id, data, back=True)
    return before, wanted


def remove(store: Store, build_id: str) -> bool:
    """Remove a version; first its manifest, without which it is none. False where it has objects
    that are somebody's."""
    data = store.get(f"{build_id}/{MANIFEST}")
    with suppress(MalformedError):
        own = {*load(Listed, data or b"").files, RUN, MANIFEST}
        if set(objects_of(store, build_id)) - own:
            return False
    names = [f"{build_id}/{name}" for name in objects_of(store, build_id) if name != MANIFEST]
    store.delete(f"{build_id}/{MANIFEST}", f"{_OBJECTS}/{build_id}.json", *names)
    return True


def retain(store: Store, keep: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove all but the newest versions, never the current one, and what runs that were stopped
    have left half done. The caller has the lock.

    Returns:
        The ids of the versions that were removed, and sentences about those that stay though.
    """
    known = listed(store)
    finished = {one.build_id for one in known}
    for name in store.names():
        if lease.is_clock(name):
            store.delete(name)
        if _ID.fullmatch(name) and name not in finished:
            remove(store, name)
    old = [one.build_id for one in known[keep:] if not one.current]
    gone = {name: remove(store, name) for name in old}
    stay = (name[: versions.SHORT] for name, removed in gone.items() if not removed)
    notes = tuple(
        f"version {name} stays: it has objects that are not of the build" for name in stay
    )
    return tuple(name for name, removed in gone.items() if removed), notes
