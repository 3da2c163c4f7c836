"""``history.jsonl`` of a folder of versions: one line for every run, rollback and removal.

A line is appended in one write. One that a crash or a full disk cut short is passed over when the
file is read, and does not spoil the next one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
