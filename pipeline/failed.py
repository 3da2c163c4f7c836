"""What a refused build leaves behind: its refused rows, in ``DIR.failed/`` beside the output.

The folder is replaced by the next refused build of the same output and removed by the next one that
is published. Nothing else is ever removed: a folder with other files in it is left alone.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from pipeline.build_dir.records import REJECTS, VALIDATION

KEPT = (REJECTS, VALIDATION)


def folder_of(target: Path) -> Path:
    """Where a refused build of ``target`` leaves its files."""
    return target.with_name(f"{target.name}.failed")


def clear(target: Path) -> bool:
    """Remove what an earlier build left; False where something else stands there."""
    folder = folder_of(target)
    if not folder.exists():
        return True
    if not folder.is_dir() or any(path.name not in KEPT for path in folder.iterdir()):
        return False
    shutil.rmtree(folder)
    return True


def keep(staged: Path, target: Path) -> None:
    """Move a staging directory's files for people; a full disk or a lack of rights is no matter."""
    with suppress(OSError):
        if not clear(target):
            return
        folder = folder_of(target)
        folder.mkdir()
        for name in KEPT:
            if (staged / name).is_file():
                shutil.move(staged / name, folder / name)
