"""The port to a folder of this machine, or of one that all machines mount."""

from __future__ import annotations

import fcntl
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.stores import Stat

_GUARD = ".guard"  # who exchanges an object holds its lock
_PUT = ".put-"


@dataclass
class FolderStore:
    """A folder; see ``stores.Store``. An object appears by a rename, so it is never half there."""

    folder: Path
    conditions: bool = True

    @property
    def shown(self) -> str:
        return str(self.folder)

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(start or 0)
                return file.read(-1 if end is None else end - (start or 0))
        except (FileNotFoundError, IsADirectoryError):
            return None

    def fetch(self, name: str, target: Path) -> bool:
        try:
            shutil.copyfile(self.folder / name, target)
        except (FileNotFoundError, IsADirectoryError):
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with self._made(name) as new:
            new.write_bytes(content)
            new.replace(self.folder / name)

    def put_file(self, name: str, source: Path) -> None:
        with self._made(name) as new:
            shutil.copyfile(source, new)
            new.replace(self.folder / name)

    def put_if_absent(self, name: str, content: bytes) -> bool:
        with self._made(name) as new:
            new.write_bytes(content)
            try:
                (self.folder / name).hardlink_to(new)
            except FileExistsError:
                return False
            return True

    def put_if_match(self, name: str, content: bytes, tag: str) -> bool:
        with self._made(name) as new, (self.folder / _GUARD).open("ab") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            there = self.stat(name)
            if there is None or there.tag != tag:
                return False
            new.write_bytes(content)
            new.replace(self.folder / name)
            return True

    @contextmanager
    def _made(self, name: str) -> Iterator[Path]:
        """A file beside the object, for its new bytes."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{_PUT}{uuid.uuid4().hex}")
        try:
            yield new
        finally:
            new.unlink(missing_ok=True)

    def stat(self, name: str) -> Stat | None:
        path = self.folder / name
        return self._said(path) if path.is_file() else None

    def _said(self, path: Path) -> Stat:
        one = path.stat()
        tag = f"{one.st_ino}-{one.st_mtime_ns}-{one.st_size}"
        return Stat(one.st_size, tag, one.st_mtime)

    def list(self, under: str = "") -> Mapping[str, Stat]:
        found = {}
        for path in (self.folder / under).rglob("*"):
            with suppress(FileNotFoundError):  # removed meanwhile
                if path.is_file() and not self._hidden(path.name):
                    found[path.relative_to(self.folder).as_posix()] = self._said(path)
        return dict(sorted(found.items()))

    def names(self) -> tuple[str, ...]:
        with suppress(FileNotFoundError):
            found = (path.name for path in self.folder.iterdir())
            return tuple(sorted(name for name in found if not self._hidden(name)))
        return ()

    def _hidden(self, name: str) -> bool:
        return name == _GUARD or name.startswith(_PUT)

    def delete(self, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.unlink(missing_ok=True)
            with suppress(OSError):  # others lie there
                for folder in path.relative_to(self.folder).parents[:-1]:
                    (self.folder / folder).rmdir()
