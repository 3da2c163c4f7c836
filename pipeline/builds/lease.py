"""Who writes to a place in a store: a lock that is created if absent, and renewed while it is used.

A lock says who holds it, and for how long after its last renewal it holds (``LEASE``). Whoever
finds one that is over, by the store's own clock, takes it over: the store lets one of them through.
A writer that was only slow finds out before it changes what readers see: see ``store_versions``.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.stores import Store
from stages.errors import PipelineError, SurroundingsError, UsageError

LOCK = "lock"
LEASE = 60.0  # seconds without a renewal after which a lock is over
RENEWAL = 15.0  # seconds from one renewal to the next
_CLOCK = "lock.clock-"  # an object that is put to learn the store's time
_TRIES = 3


def is_clock(name: str) -> bool:
    """Whether an object is what a writer that died has left of asking for the time."""
    return name.startswith(_CLOCK)


@dataclass
class Lease:
    """The lock of a place, held by this process.

    Attributes:
        single: no other writer is there, as the user says; the store does not decide then.
        after: who had the lock and let it run out; empty where nobody had.
    """

    store: Store
    single: bool = False
    after: str = ""
    _call: str = field(default_factory=lambda: uuid.uuid4().hex)
    _renewals: int = 0
    _renewed: float = 0.0
    _lost: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def held(self) -> "Iterator[Lease]":
        """Hold the lock, and renew it meanwhile.

        Raises:
            SurroundingsError: another run holds it.
        """
        self._take()
        if not self.single:
            self._require_deciding()
        renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        renewing.start()
        try:
            yield self
        finally:
            self._ended.set()
            renewing.join()
            with suppress(PipelineError):  # it runs out by itself
                self._release()

    def require(self, ask: bool = False) -> None:
        """Raises SurroundingsError where the lock is somebody else's.

        Args:
            ask: look at the store, and do not go by the last renewal.
        """
        if not self._lost and time.monotonic() - self._renewed > LEASE:
            self._lost = "it was not renewed in time"
        if not self._lost and ask and not self._mine(self.store.get(LOCK)):
            self._lost = "another run took it over"
        if self._lost:
            raise SurroundingsError(
                f"The lock of {self.store.shown} was lost: {self._lost}.", "Build again."
            )

    def _content(self) -> bytes:
        """The lock; each renewal has other bytes, so that no two have the same tag."""
        import socket

        owner = f"{socket.gethostname()}, process {os.getpid()}, since {stamp()}"
        said = {"owner": owner, "call": self._call, "renewals": self._renewals, "lease": LEASE}
        return json.dumps(said).encode()

    def _mine(self, content: bytes | None) -> bool:
        return object_of(content).get("call") == self._call

    def _take(self) -> None:
        for _ in range(_TRIES):
            began = time.monotonic()
            if self._is_free_and_taken():
                self._renewed = began
                return
        raise SurroundingsError(
            f"{self.store.shown} could not be locked: others lock it at the same time.",
            "Run again.",
        )

    def _require_deciding(self) -> None:
        """The store keeps the lock from being put again, as it must; some only look as if.

        Raises:
            UsageError: it does not.
        """
        again = self._content()
        if any(self.store.put_if(LOCK, again, tag) for tag in (None, "0" * 32)):
            self.store.delete(LOCK)
            raise UsageError(
                f"{self.store.shown} has no conditional writes, so two runs could mix their files.",
                "Add --single-writer, and see to it that no other run writes there.",
            )

    def _is_free_and_taken(self) -> bool:
        """Whether the lock is this run's now; False where others changed it meanwhile.

        Raises:
            SurroundingsError: another run holds it.
        """
        if not self.single and self.store.put_if(LOCK, self._content(), None):
            return True
        there = self.store.stat(LOCK)
        content = self.store.get(LOCK) if there is not None else None
        if there is None or content is None:
            return self.single and self._put("")
        if self._mine(content):  # the answer to our put was lost
            return True
        said = object_of(content)
        owner, lease = said.get("owner", "unknown"), said.get("lease", LEASE)
        left = None if there.modified is None else there.modified + lease - self._now()
        if left is None or left > 0:
            wait = f"delete {self.store.shown}/{LOCK} if it died"
            if left is not None:
                wait = f"if it died, its lock is over in {left:.0f} seconds"
            raise SurroundingsError(
                f"{self.store.shown} is being built by another run ({owner}).",
                f"Wait for it, or build somewhere else; {wait}.",
            )
        if not self._put(there.tag):
            return self._mine(self.store.get(LOCK))
        self.after = str(owner)
        return True

    def _put(self, tag: str) -> bool:
        """Write the lock, if what is there still has this tag; whatever it has, where no other
        writer is there."""
        if not self.single:
            return self.store.put_if(LOCK, self._content(), tag)
        self.store.put(LOCK, self._content())
        return True

    def _now(self) -> float:
        """The time of the store, whose clock stamps the renewals, too."""
        name = f"{_CLOCK}{self._call}"
        self.store.put(name, b"")
        try:
            there = self.store.stat(name)
        finally:
            self.store.delete(name)
        return time.time() if there is None or there.modified is None else there.modified

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL):
            began = time.monotonic()
            with suppress(PipelineError, OSError):  # the next attempt may succeed
                if not self._renewed_once():
                    self._lost = "another run took it over"
                    return
                self._renewed = began

    def _renewed_once(self) -> bool:
        there = self.store.stat(LOCK)  # first: what is read next is no older
        if there is None or not self._mine(self.store.get(LOCK)):
            return False
        self._renewals += 1
        return self._put(there.tag) or self._mine(self.store.get(LOCK))

    def _release(self) -> None:
        """Remove the lock, while nobody else may take it."""
        safe = not self._lost and time.monotonic() - self._renewed < LEASE / 2
        if safe and self._mine(self.store.get(LOCK)):
            self.store.delete(LOCK)


# ``history.jsonl`` of a folder of versions: one line for every run, rollback and removal.
#
# A line is appended in one write. One that a crash or a full disk cut short is passed over when the
# file is read, and does not spoil the next one.


HISTORY = "history.jsonl"
ROLLED_BACK = "rolled back"


def stamp(seconds: float | None = None) -> str:
    """A time, or now, as UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def sync(path: str | Path) -> None:
    """What a folder lists, or a file holds, reaches the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def entry(status: str, message: str, code: int | None = 0, **more: Any) -> dict[str, Any]:
    """What a line says of a thing that happened now."""
    return {"time": stamp(), "status": status, "code": code, "message": message, **more}


def append(folder: Path, line: Mapping[str, Any]) -> None:
    """One more line, on the disk when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(line, ensure_ascii=False, default=str) + "\n"
    handle = os.open(folder / HISTORY, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            text = "\n" + text  # after a line that was cut short
        os.write(handle, text.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read(folder: Path) -> list[Mapping[str, Any]]:
    """The lines, the oldest first; none where there is no history."""
    try:
        content = (folder / HISTORY).read_bytes()
    except FileNotFoundError:
        return []
    return lines_of(content)


def object_of(content: bytes | None) -> dict[str, Any]:
    """A JSON object; an empty one where it is none, or cut short."""
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def lines_of(content: bytes) -> list[Mapping[str, Any]]:
    """The lines of a history, without those that were cut short."""
    return [line for text in content.splitlines() if (line := object_of(text))]
