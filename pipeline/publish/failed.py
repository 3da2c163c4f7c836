"""``DIR.failed/``: the refused rows and the verdict of a build that failed, beside its output DIR.

The next build of the same output replaces the folder if it fails, and removes it if it succeeds. A
folder that has other files in it is never touched.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from pipeline.manifest.records import REJECTS, VALIDATION

KEPT = (REJECTS, VALIDATION)


def folder_of(target: Path) -> Path:
    """The folder for the files of a failed build of ``target``."""
    return target.with_name(f"{target.name}.failed")


def clear(target: Path) -> bool:
    """Remove the files of an earlier failed build; False if the folder has other files."""
    folder = folder_of(target)
    if not folder.exists():
        return True
    if not folder.is_dir() or any(path.name not in KEPT for path in folder.iterdir()):
        return False
    shutil.rmtree(folder)
    return True


def keep(staged: Path, target: Path) -> None:
    """Move the two files out of the staging directory.

    Errors of the file system are ignored: they must not hide the error that failed the build.
    """
    with suppress(OSError):
        if not clear(target):
            return
        folder = folder_of(target)
        folder.mkdir()
        for name in KEPT:
            if (staged / name).is_file():
                shutil.move(staged / name, folder / name)
