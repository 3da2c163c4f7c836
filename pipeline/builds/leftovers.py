"""Files that other programs leave in any folder that they open: caches, thumbnails, swap files.

They belong to no build and are nobody's work. So they do not keep a build from being replaced, and
do not outlive it; they are named when they are found. Any other file that is not the build's own is
somebody's, and is never deleted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

FILES = (
    "cache-*.arrow",  # datasets, of map and filter
    "*.arrow.lock",
    "*.incomplete",
    ".DS_Store",
    "._*",
    ".directory",
    ".nfs*",
    "Thumbs.db",
    "desktop.ini",
    "*~",
    ".*.sw?",
    "#*#",
    ".#*",
    ".~lock.*#",
)
FOLDERS = (".ipynb_checkpoints", "__pycache__", ".idea", "@eaDir", ".AppleDouble", ".Trashes")
_UNFINISHED = re.compile(r"tmp[a-z0-9_]{8}")  # a cache that datasets is writing
SHOWN = 5


def is_one(name: str) -> bool:
    """Whether a file is such a leftover, by its path in the build."""
    *folders, file = name.split("/")
    return (
        any(folder in FOLDERS for folder in folders)
        or any(fnmatchcase(file, pattern) for pattern in FILES)
        or _UNFINISHED.fullmatch(file) is not None
    )


def files_in(folder: Path) -> set[str]:
    """Paths of all files in a folder, relative to it; links are files."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def apart(present: Iterable[str], own: Collection[str]) -> tuple[list[str], list[str]]:
    """The files that are not a build's own: leftovers of programs, and those that are somebody's.

    Args:
        present: paths in the build; own: those that its manifest names.
    """
    others = sorted(name for name in present if name not in own)
    return [n for n in others if is_one(n)], [n for n in others if not is_one(n)]


def in_words(names: Collection[str]) -> str:
    """A few of them, for a message."""
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
