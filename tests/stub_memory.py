"""A store in memory that can be stopped at any change, and looked at after each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem


class Plain(MemoryFileSystem):
    """The same store, as another process sees it."""

    cachable = False


class Watched(Plain):
    """Stops instead of a change, notes each file that is sent, and is looked at after changes.

    Attributes:
        left: changes until it stops; half of a file that it stops at arrives.
        changes: so many were made.
        sent: the paths of files that were sent.
        look: called after each change.
    """

    left: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.sent: list[str] = []
        self.look: Callable[[], object] = lambda: None

    def _change(self, path: str, data: bytes | None = None) -> None:
        self.changes += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                if data is not None:  # the connection breaks in the middle of a file
                    super().pipe_file(path, data[: len(data) // 2])
                raise KeyboardInterrupt

    def put_file(self, lpath: Any, rpath: Any, **given: Any) -> None:
        data = Path(lpath).read_bytes()
        self._change(rpath, data)
        super().pipe_file(rpath, data, **given)
        self.sent.append(rpath)
        self.look()

    def pipe_file(self, path: Any, value: Any, **given: Any) -> None:
        self._change(path)
        super().pipe_file(path, value, **given)
        self.look()

    def rm_file(self, path: Any) -> None:
        self._change(path)
        super().rm_file(path)
        self.look()
