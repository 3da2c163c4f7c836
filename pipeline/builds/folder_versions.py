"""The versions of a folder; see ``versions``.

    releases/<build_id>/     a build; nothing in it changes once it has this name
    releases/current         a link to one of them, exchanged in one step
    releases/holds/<build_id>/<name>    somebody reads this version: it is not removed
    releases/history.jsonl   one line for each run, rollback and removal: see ``lease``

A name that was resolved once (``readlink -f releases/current``) stays what it was until that
version is removed. Whoever holds a version, makes one current or takes one away does so under a
lock that is held for that one step only (``_guarded``), so that it works while a build runs.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.builds import lease, publish
from pipeline.builds.lease import sync
from pipeline.builds.versions import SHORT, LetGo, Said, Version, Versions
from pipeline.manifest import dataset_files, records
from pipeline.manifest.manifest import MANIFEST
from stages.errors import UsageError

HOLDS = "holds"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_REMOVING = ".removing-"
_NEW_LINK = ".link-"


def resolved(folder: Path) -> Path:
    """The version that a folder is now, where it is the link to the current one; else itself."""
    now = FolderVersions(folder.parent).current() if folder.name == publish.CURRENT else None
    return folder.parent / now if now is not None else folder


def _events(lines: list[Mapping[str, Any]]) -> tuple[dict[str, int], set[str]]:
    """The last line with each version as the current one, and those that a rollback took back."""
    order: dict[str, int] = {}
    withdrawn: set[str] = set()
    for number, line in enumerate(lines):
        before, now = line.get("rolled_back_from"), line.get("current")
        if isinstance(before, str):
            withdrawn.add(before)
        if isinstance(now, str):
            order[now] = number
            withdrawn.discard(now)
    return order, withdrawn


@dataclass(frozen=True)
class FolderVersions(Versions):
    """Those of a folder."""

    folder: Path

    @property
    def shown(self) -> str:
        return str(self.folder)

    @property
    def before(self) -> Path:
        return self.folder / publish.CURRENT

    @contextmanager
    def staging(self) -> Iterator[Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / lease.HISTORY).touch()  # a folder of versions, also if this run is killed
        with publish.staging(self.before) as folder:
            self.clean()
            yield folder

    def writing(self) -> AbstractContextManager[object]:
        return nullcontext()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """One step at a time: a hold, an exchange of the link, or a version taken away."""
        with (self.folder / lease.HISTORY).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def put(self, folder: Path, build_id: str) -> None:
        publish.publish(folder, self.at(build_id))

    def _require_there(self, build_id: str) -> None:
        if not (self.at(build_id) / MANIFEST).is_file():
            raise UsageError(
                f"{self.folder}: version {build_id[:SHORT]} was just removed.",
                f"See: pipeline versions {self.folder}",
            )

    def point(self, build_id: str, back: bool = False) -> None:
        new = self.folder / f"{_NEW_LINK}{os.getpid()}"
        with self._guarded():
            self._require_there(build_id)
            new.unlink(missing_ok=True)
            new.symlink_to(build_id)
            new.replace(self.before)
        sync(self.folder)

    def _linked(self) -> str | None:
        """The id that the link names, whether or not a version has it."""
        with suppress(OSError):
            name = str(self.before.readlink())
            return name if publish.ID.fullmatch(name) else None
        return None

    def current(self, fresh: bool = False) -> str | None:
        name = self._linked()
        return name if name is not None and (self.at(name) / MANIFEST).is_file() else None

    def said(self) -> Said:
        return Said(self._linked(), *_events(lease.read(self.folder)))

    def manifest_of(self, build_id: str) -> bytes | None:
        return None  # hashes are compared here

    def named(self) -> Iterator[str]:
        for path in sorted(self.folder.iterdir()):
            if publish.ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                yield path.name

    def at(self, build_id: str) -> Path:
        return self.folder / build_id

    def holds(self, build_id: str) -> tuple[str, ...]:
        with suppress(OSError):
            return tuple(sorted(path.name for path in (self.folder / HOLDS / build_id).iterdir()))
        return ()

    def fault(self, build_id: str) -> str:
        found = publish.listed(self.at(build_id))
        if found is None:
            return f"it has no {MANIFEST} that can be read"
        return "" if found.build_id == build_id else f"it holds the build {found.build_id[:SHORT]}"

    def age(self, build_id: str) -> tuple[object, ...]:
        text, folder = "", self.at(build_id)
        with suppress(OSError, ValueError):
            found = re.search(r'"started": "([^"]*)"', (folder / records.RUN).read_text("utf-8"))
            text = found[1] if found else ""
        return text, (folder / MANIFEST).stat().st_mtime_ns

    def hold(self, build_id: str, name: str) -> None:
        """Keep a version from being removed until ``release``; when this returns, it is kept.

        Raises:
            UsageError: the name is none, or the version is gone.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot name a hold.",
                "Use letters, digits, dots, dashes and underscores.",
            )
        mark = self.folder / HOLDS / build_id / name
        with self._guarded():
            self._require_there(build_id)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()

    def release(self, build_id: str, name: str) -> bool:
        """End a hold; False if there was none."""
        mark = self.folder / HOLDS / build_id / name
        with self._guarded():
            there = mark.exists()
            mark.unlink(missing_ok=True)
            for empty in (mark.parent, self.folder / HOLDS):
                with suppress(OSError):  # others hold it, or another version
                    empty.rmdir()
        return there

    def stays(self, version: Version) -> str:
        if version.holds:
            return f"it is held by {', '.join(version.holds)}"
        found = publish.listed(version.folder)
        own = {*found.files, records.RUN, MANIFEST} if found is not None else ()
        foreign = dataset_files.apart(dataset_files.files_in(version.folder), own)[1]
        return f"it has files of yours: {foreign[0]}" if foreign else ""

    def remove(self, build_id: str) -> bool:
        gone = self.folder / f"{_REMOVING}{build_id}"
        with self._guarded():
            if self.holds(build_id) or self.current() == build_id:
                return False
            try:
                self.at(build_id).rename(gone)
            except FileNotFoundError:  # another run removes it
                return False
        shutil.rmtree(gone)
        return True

    def retain(self, keep: int) -> LetGo:
        few = sum(1 for _ in self.named()) <= keep  # nothing is read then
        return ((), ()) if few else super().retain(keep)

    def clean(self) -> None:
        """Remove what runs that were killed left half done. The caller has the folder's lock."""
        for path in self.folder.glob(f"{_REMOVING}*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.glob(f"{_NEW_LINK}*"):
            path.unlink(missing_ok=True)

    def append(self, line: Mapping[str, Any]) -> None:
        lease.append(self.folder, line)

    def record_killed(self) -> None:
        """What it left half done is removed."""
        lock = publish.beside(self.before, "lock")
        try:
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_ino != lock.stat().st_ino:
                    return  # its run ended, and removed it, after we opened it
                holder = file.read().strip()
                if holder:
                    shutil.rmtree(publish.beside(self.before, "staging"), ignore_errors=True)
                    self.clean()
                    message = f"the run before ({holder}) was killed"
                    self.record(lease.entry("failed", message, None))
                lock.unlink(missing_ok=True)
        except OSError:  # there is no folder, no lock, or a run that is alive has it
            return
