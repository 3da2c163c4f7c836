"""Versions: every build of one output in a folder of its own, and a link to one of them.

    releases/<build_id>/     a build; nothing in it changes once it has this name
    releases/current         a link to one of them, exchanged in one step
    releases/holds/<build_id>/<name>    somebody reads this version: it is not removed
    releases/history.jsonl   one line for each run, rollback and removal: see ``history``

A name that was resolved once (``readlink -f releases/current``) stays what it was until that
version is removed. Whoever holds a version, makes one current or takes one away does so under a
lock that is held for that one step only (``_guarded``), so that it works while a build runs.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.builds import lease
from pipeline.builds.lease import sync
from pipeline.manifest import dataset_files
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import RUN
from stages.errors import UsageError
from stages.files import file_hash

CURRENT = "current"
HOLDS = "holds"
_ID = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_REMOVING = ".removing-"
_NEW_LINK = ".link-"
SHORT = 12  # characters of an id in messages


@dataclass(frozen=True, slots=True)
class Version:
    """One version.

    Attributes:
        order: of the last line of the history while it was current; -1 if there is none.
        withdrawn: it was current until a rollback, and nobody made it current again.
        holds: names of those who read it.
    """

    build_id: str
    folder: Path
    order: int
    current: bool
    withdrawn: bool
    holds: tuple[str, ...]


def is_releases(folder: Path) -> bool:
    """Whether a folder holds versions."""
    return (folder / lease.HISTORY).is_file() or (folder / CURRENT).is_symlink()


def is_place(real: Path) -> bool:
    """Whether a path, links followed, is that of a version: one that is there, or could be."""
    return _ID.fullmatch(real.name) is not None and is_releases(real.parent)


def listed(folder: Path) -> Listed | None:
    """What the manifest in a folder lists; None where there is none that can be read."""
    try:
        return load(Listed, file_hash.required(folder / MANIFEST).read_bytes())
    except (OSError, MalformedError):
        return None


def _linked(folder: Path) -> str | None:
    """The id that the link names, whether or not a version has it."""
    try:
        name = str((folder / CURRENT).readlink())
    except OSError:
        return None
    return name if _ID.fullmatch(name) else None


def current_id(folder: Path) -> str | None:
    """The version that the link names; None where there is no link, or no such version."""
    name = _linked(folder)
    return name if name is not None and (folder / name / MANIFEST).is_file() else None


def resolved(folder: Path) -> Path:
    """The version that a folder is now, where it is the link to the current one; else itself."""
    now = current_id(folder.parent) if folder.name == CURRENT else None
    return folder.parent / now if now is not None else folder


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """One step at a time: a hold, an exchange of the link, or a version taken away."""
    with (folder / lease.HISTORY).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _require_there(folder: Path, build_id: str) -> None:
    if not (folder / build_id / MANIFEST).is_file():
        raise UsageError(
            f"{folder}: version {build_id[:SHORT]} was just removed.",
            f"See: pipeline versions {folder}",
        )


def point(folder: Path, build_id: str) -> None:
    """Exchange the link in one step: a reader finds the version before or this one.

    Raises:
        UsageError: the version is gone.
    """
    new = folder / f"{_NEW_LINK}{os.getpid()}"
    with _guarded(folder):
        _require_there(folder, build_id)
        new.unlink(missing_ok=True)
        new.symlink_to(build_id)
        new.replace(folder / CURRENT)
    sync(folder)


def _is_named(folder: Path) -> bool:
    """Whether a folder has a name that versions have."""
    return _ID.fullmatch(folder.name) is not None and folder.is_dir() and not folder.is_symlink()


def _fault(folder: Path) -> str:
    """Why a folder with the name of a version is none; empty where it is one."""
    found = listed(folder)
    if found is None:
        return f"it has no {MANIFEST} that can be read"
    return "" if found.build_id == folder.name else f"it holds the build {found.build_id[:SHORT]}"


def _holds(folder: Path, build_id: str) -> tuple[str, ...]:
    with suppress(OSError):
        return tuple(sorted(path.name for path in (folder / HOLDS / build_id).iterdir()))
    return ()


def _events(lines: list[Mapping[str, object]]) -> tuple[dict[str, int], set[str]]:
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


def _age(folder: Path) -> tuple[str, int]:
    """Orders versions that no history knows: by the time of their building."""
    text = ""
    with suppress(OSError, ValueError):
        found = re.search(r'"started": "([^"]*)"', (folder / RUN).read_text("utf-8"))
        text = found[1] if found else ""
    return text, (folder / MANIFEST).stat().st_mtime_ns


def _found(folder: Path) -> Iterator[Version]:
    """Every folder with the name of a version, be it one or not."""
    order, withdrawn = _events(lease.read(folder))
    now = _linked(folder)
    for path in sorted(filter(_is_named, folder.iterdir())):
        yield Version(
            build_id=path.name,
            folder=path,
            order=order.get(path.name, -1),
            current=path.name == now,
            withdrawn=path.name in withdrawn and path.name != now,
            holds=_holds(folder, path.name),
        )


def versions(folder: Path) -> list[Version]:
    """Every version; the current one first, then the one that was current last, and so on."""
    whole = (one for one in _found(folder) if not _fault(one.folder))
    return sorted(whole, key=lambda v: (v.current, v.order, _age(v.folder)), reverse=True)


def damaged(folder: Path) -> list[tuple[Version, str]]:
    """Versions that are no longer what their names say, and what is there instead."""
    faults = ((one, _fault(one.folder)) for one in _found(folder))
    return [(one, fault) for one, fault in faults if fault]


def find(folder: Path, name: str) -> Version:
    """The version that a user names: ``current``, or the first characters of its id.

    Raises:
        UsageError: there is none, or there are several.
    """
    return one_of(versions(folder), name, folder)


def one_of(known: Sequence[Version], name: str, folder: str | Path) -> Version:
    """The same among versions that are known; ``folder``: where they are, for the message."""
    if name == CURRENT:
        fitting = [one for one in known if one.current]
    else:
        fitting = [one for one in known if name and one.build_id.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(one.build_id[:SHORT] for one in known[:8])
    what = "several versions begin" if fitting else "no version begins"
    if name == CURRENT:
        what, name = "there is no current version, and none begins", CURRENT
    raise UsageError(
        f"{folder}: {what} with {name!r}.",
        f"Versions: {listed}." if listed else "Build one first: pipeline run ... --keep 7.",
    )


def hold(folder: Path, build_id: str, name: str) -> None:
    """Keep a version from being removed until ``release``; when this returns, it is kept.

    Raises:
        UsageError: the name is none, or the version is gone.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a hold.", "Use letters, digits, dots, dashes and underscores."
        )
    mark = folder / HOLDS / build_id / name
    with _guarded(folder):
        _require_there(folder, build_id)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def release(folder: Path, build_id: str, name: str) -> bool:
    """End a hold; False if there was none."""
    mark = folder / HOLDS / build_id / name
    with _guarded(folder):
        there = mark.exists()
        mark.unlink(missing_ok=True)
        for empty in (mark.parent, folder / HOLDS):
            with suppress(OSError):  # others hold it, or another version
                empty.rmdir()
    return there


def rollback(folder: Path, name: str | None) -> tuple[str | None, Version]:
    """Make another version current: the named one, or the one that was current before.

    Returns:
        The version that was current, and the one that is.

    Raises:
        UsageError: there is none to go back to.
    """
    before = current_id(folder)
    wanted = to_go_back_to(versions(folder), name, folder)
    point(folder, wanted.build_id)
    return before, wanted


def to_go_back_to(known: Sequence[Version], name: str | None, folder: str | Path) -> Version:
    """The version that a rollback makes current; raises as ``rollback`` does."""
    if name is not None:
        return one_of(known, name, folder)
    others = [one for one in known if not one.current and not one.withdrawn]
    if not others:
        raise UsageError(
            f"{folder} has no earlier version to go back to.",
            f"See: pipeline versions list {folder}",
        )
    return others[0]


def _foreign(folder: Path) -> list[str]:
    """Files of a version that are somebody's."""
    found = listed(folder)
    own = {*found.files, RUN, MANIFEST} if found is not None else ()
    return dataset_files.apart(dataset_files.files_in(folder), own)[1]


def _remove(folder: Path, version: Version) -> bool:
    """Remove a version; False where somebody has asked for it meanwhile."""
    gone = folder / f"{_REMOVING}{version.build_id}"
    with _guarded(folder):
        if _holds(folder, version.build_id) or current_id(folder) == version.build_id:
            return False
        try:
            version.folder.rename(gone)
        except FileNotFoundError:  # another run removes it
            return False
    shutil.rmtree(gone)
    return True


def retain(folder: Path, keep: int) -> tuple[list[str], list[str]]:
    """Remove all but the newest versions; never the current one, one that is held, or one with
    somebody's files in it.

    Returns:
        The ids of those that were removed, and sentences about those that stay nevertheless.
    """
    removed: list[str] = []
    notes: list[str] = []
    if sum(_ID.fullmatch(path.name) is not None for path in folder.iterdir()) <= keep:
        return removed, notes
    for version in versions(folder)[keep:]:
        name = version.build_id[:SHORT]
        if version.current:
            continue
        if version.holds:
            notes.append(f"version {name} stays: it is held by {', '.join(version.holds)}")
        elif foreign := _foreign(version.folder):
            notes.append(f"version {name} stays: it has files of yours: {foreign[0]}")
        elif _remove(folder, version):
            removed.append(version.build_id)
    return removed, notes


def tidy(folder: Path) -> None:
    """Remove what runs that were killed left half done. The caller has the folder's lock."""
    for path in folder.glob(f"{_REMOVING}*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(f"{_NEW_LINK}*"):
        path.unlink(missing_ok=True)
