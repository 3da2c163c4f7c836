"""How a run ends: what it published stands; ``DIR.failed/`` is what a refused build leaves.

``reasons.json`` is what ``--json`` prints, ``report.html`` the same for people; ``rejects.jsonl``
(every refused row) and ``validation.json`` (the verdict) are there if the build came that far. The
next build of the same output replaces the folder if it is refused, and removes it if it is not. A
folder that has other files in it is never touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.manifest.records import AUDITS, REJECTS, VALIDATION

if TYPE_CHECKING:
    from pipeline.builds.limits import Built

REASONS = "reasons.json"
PAGE = "report.html"
TAKEN = (REJECTS, VALIDATION, AUDITS)  # from the staging directory, where they are
KEPT = (REASONS, PAGE, *TAKEN)


def folder_of(output: Path) -> Path:
    """The folder for the files of a refused build of ``output``, links followed."""
    real = Path(os.path.realpath(output))
    folder = real.with_name(f"{real.name}.failed")
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def paths_of(output: Path) -> dict[str, str]:
    """Where what a refused build left lies, by what it is; empty where nothing was left."""
    folder = folder_of(output)
    if not (folder / REASONS).is_file():
        return {}
    names = {"reasons": REASONS, "report": PAGE, "rejects": REJECTS, "validation": VALIDATION}
    there = {key: str(folder / name) for key, name in names.items() if (folder / name).is_file()}
    return {"failed": str(folder), **there}


def way_of(folder: Path) -> str:
    """What can be read in the folder of a refused build."""
    told = {PAGE: "Why it was refused", REJECTS: "every refused row", REASONS: "both for programs"}
    found = [
        f"{what} is in {folder / name}" for name, what in told.items() if (folder / name).is_file()
    ]
    return f"{'; '.join(found)}."


def clear(output: Path) -> bool:
    """Remove the files of an earlier refused build; False if the folder has other files."""
    folder = folder_of(output)
    if not folder.exists():
        return True
    if not folder.is_dir() or any(path.name not in KEPT for path in folder.iterdir()):
        return False
    shutil.rmtree(folder)
    return True


def keep(output: Path, staged: Path | None, files: dict[str, str]) -> Path | None:
    """Write the folder.

    Errors of the file system are ignored: they must not hide the error that refused the build.

    Args:
        staged: the staging directory, whose files are moved; None where there was none.
        files: texts of others, by name.

    Returns:
        The folder; None if it could not be written.
    """
    with suppress(OSError):
        if not clear(output):
            return None
        folder = folder_of(output)
        folder.mkdir(parents=True)
        for name in TAKEN:
            if staged is not None and (staged / name).is_file():
                shutil.move(staged / name, folder / name)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
        return folder
    return None


# What a run has published stands: what goes wrong from then on is a warning, and its status is 0.
#
# Whoever publishes says what will stand and how that is seen. ``result.of_error``, through which
# every error goes, asks for it.


_latest: ContextVar[tuple[Built, Callable[[], bool]] | None] = ContextVar("latest", default=None)


def begin() -> None:
    """A run begins: what an earlier one of this process has published is not its own."""
    _latest.set(None)


def publishing(built: Built, there: Callable[[], bool] = lambda: True) -> Built:
    """This is being published, and stands from the moment at which it is ``there``."""
    _latest.set((built, there))
    return built


def now() -> Built | None:
    """What this run has published; None where nothing stands."""
    found = _latest.get()
    return found[0] if found is not None and found[1]() else None


def after(what: str) -> Built | None:
    """The same, with a word of what has just gone wrong."""
    built = now()
    if built is None:
        return None
    told = f"{built.build.shown()} is published all the same: {what}"
    trouble = [one for one in built.trouble if one != told]
    return publishing(replace(built, trouble=(*trouble, told)))
