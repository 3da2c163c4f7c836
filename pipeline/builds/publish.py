"""Publishes a build atomically: a reader sees the whole old build or the whole new one.

A build is written to a staging directory beside its target. On Linux one system call
(``renameat2``) then exchanges the two. Elsewhere two renames under a lock do it: the old build
becomes ``.DIR.old``, so that after a crash between them the next run can put it back.
"""

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pipeline.builds import lease
from pipeline.manifest import dataset_files, json_records, records
from pipeline.manifest.manifest import MANIFEST, Listed, Manifest
from stages.errors import GateError, SurroundingsError, UsageError, no_permission
from stages.files import file_hash

if TYPE_CHECKING:  # to look for an equal build imports nothing that judges
    from stages.findings import Validation

CURRENT = "current"  # in a folder of versions, the link to one of them
ID = re.compile(r"[0-9a-f]{64}")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def is_releases(folder: Path) -> bool:
    """Whether a folder holds versions."""
    return (folder / lease.HISTORY).is_file() or (folder / CURRENT).is_symlink()


def is_place(real: Path) -> bool:
    """Whether a path, links followed, is that of a version: one that is there, or could be."""
    return ID.fullmatch(real.name) is not None and is_releases(real.parent)


def listed(folder: Path) -> Listed | None:
    """What the manifest in a folder lists; None where there is none that can be read."""
    try:
        return json_records.load(Listed, file_hash.required(folder / MANIFEST).read_bytes())
    except (OSError, json_records.MalformedError):
        return None


def beside(target: Path, what: str) -> Path:
    """A hidden neighbour of an output: ``lock``, ``staging`` or ``old``."""
    return target.parent / f".{target.name}.{what}"


def id_of(target: Path) -> str | None:
    """The id of the build that is there; None where there is none."""
    found = listed(target)
    return found.build_id if found is not None else None


def moment(folder: Path, target: Path) -> Callable[[], bool]:
    """Says at any time whether what is in a staging directory now is the target, be it that an
    equal build was there before."""
    made = (folder / MANIFEST).stat()

    def there() -> bool:
        with suppress(OSError):
            return os.path.samestat(made, (target / MANIFEST).stat())
        return False

    return there


def _files_of_build(target: Path) -> set[str] | None:
    """Relative paths of the files that a build's manifest lists; None if there is no manifest."""
    found = listed(target)
    return {*found.files, records.RUN, MANIFEST} if found is not None and found.build_id else None


def left_by_tools(target: Path) -> tuple[str, ...]:
    """What other programs left in a build: paths of caches, swap files and the like."""
    own, present = _files_of_build(target), dataset_files.files_in(target)
    return () if own is None else tuple(dataset_files.apart(present, own)[0])


def check_target(target: Path) -> Path:
    """Require that the output is new, empty, or a build without files of the user's.

    What is replaced is deleted, so nothing may be in it that the user put there; what programs
    leave in any folder may be (``left_by_tools``).

    Returns:
        The real path of the target, all symbolic links followed.

    Raises:
        UsageError: it is a file, contains the working directory, holds a file that no build has, is
            a version, or is inside a build.
    """
    real = require_apart(target)
    if real == Path.cwd() or real in Path.cwd().parents:
        raise UsageError(
            f"{target} contains the working directory.", "Give another directory with -o."
        )
    if real.exists() and not real.is_dir():
        raise UsageError(f"{target} is a file.", "Give a directory with -o.")
    if real.is_dir() and any(real.iterdir()):
        own = _files_of_build(real)
        present = dataset_files.files_in(real)
        if own is None and present:
            raise UsageError(
                f"{target} has files in it and is not a build.", "Give another directory with -o."
            )
        foreign = dataset_files.apart(present, own or ())[1]
        if foreign:
            raise UsageError(
                f"{target} has files that are not of the build: {dataset_files.in_words(foreign)}.",
                "Move them away, or give another directory with -o.",
            )
    return real


def _releases(target: Path, real: Path) -> Path:
    """The folder of a version's versions, as the user named it where that can be said."""
    named = target.parent
    return named if Path(os.path.realpath(named)) == real.parent else real.parent


def require_apart(target: Path) -> Path:
    """Require that an output is neither a version nor inside a build: what is there stays so.

    Returns:
        The real path of the output, all symbolic links followed.

    Raises:
        UsageError: it is one of them.
    """
    real = Path(os.path.realpath(target))
    if is_place(real):
        raise UsageError(
            f"{target} is a version of a build, and a version never changes.",
            "Give another directory with -o. To add a version: "
            f"pipeline run ... -o {_releases(target, real)} --keep N.",
        )
    around = next((folder for folder in real.parents if id_of(folder) is not None), None)
    if around is not None:
        raise UsageError(
            f"{target} is inside a build, {around}.", "Give a directory outside of it with -o."
        )
    return real


@contextmanager
def staging(target: Path, shown: str = "") -> Iterator[Path]:
    """A new directory beside the target, under the target's lock; it is removed in the end.

    Args:
        shown: what messages call the target, where not as it is.

    Raises:
        SurroundingsError: another build of the same target is running.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target, shown or str(target)):
        folder = beside(target, "staging")
        try:
            _recover(target)
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():  # an earlier build that may not be removed
                raise no_permission(folder)
            folder.mkdir()
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if folder.exists():
            shutil.rmtree(folder)  # the build that was there before


@contextmanager
def _locked(target: Path, shown: str) -> Iterator[None]:
    path = beside(target, "lock")
    while True:
        with path.open("a+") as lock:
            try:
                if _locks(lock, path, shown):
                    yield
                    return
            finally:  # also where an interruption came before we had it
                _unlock(lock, path)


def _locks(lock: IO[str], path: Path, shown: str) -> bool:
    """Take the lock; False where the run before has removed its file meanwhile.

    Raises:
        SurroundingsError: another run has it.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        raise SurroundingsError(
            f"{shown} is being built by another run ({lock.read().strip() or 'unknown'}).",
            "Wait for it, or build somewhere else.",
        ) from error
    # The run before removes the lock file at its end. If that happened after we opened it, we have
    # locked a deleted file, which no other run will see.
    if not _same(lock, path):
        return False
    lock.truncate(0)
    lock.write(f"process {os.getpid()}, since {lease.stamp()}")
    lock.flush()
    return True


def _same(lock: IO[str], path: Path) -> bool:
    """Whether an open file is still the one with this name."""
    return path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino


def _unlock(lock: IO[str], path: Path) -> None:
    """Remove the lock's file, unless another run has the lock."""
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which nothing changes where we have it
        if _same(lock, path):
            path.unlink()


def _recover(target: Path) -> None:
    """Put the old build back if a publication was killed between its two renames."""
    old = beside(target, "old")
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories in one system call; False if the system has no such call."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    names = (os.fsencode(one), os.fsencode(other))
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):  # an old kernel, or a file system without it
        return False
    raise OSError(code, os.strerror(code), str(other))


def _sync(folder: Path) -> None:
    """Flush every file and directory to the disk.

    Otherwise a power cut soon after the rename could leave a build with empty files.
    """
    for root, _, files in os.walk(folder):
        for name in (*files, "."):
            lease.sync(os.path.join(root, name))


def write_manifest(folder: Path, manifest: Manifest, verdict: "Validation") -> Manifest:
    """Write the manifest, which makes a folder a build. This is the only function that does, and it
    requires a verdict that passed and is the one in ``validation.json``.

    Returns:
        The manifest as it was written.

    Raises:
        GateError: the verdict did not pass, or ``validation.json`` has another one.
    """
    stored = json.loads((folder / records.VALIDATION).read_bytes())
    judged = verdict.expectations and verdict.passed
    if not judged or stored != json.loads(json_records.one_line(verdict)):
        raise GateError("The build was not checked, or failed its checks.", "Please report it.")
    with_seal = json_records.sealed(manifest)
    dataset_files.write_json(folder / MANIFEST, json_records.as_json(with_seal))
    return with_seal


def publish(folder: Path, target: Path) -> None:
    """Replace the target with a finished staging directory."""
    _sync(folder)
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    if not target.exists():
        folder.rename(target)
    elif not _exchange(folder, target):
        old = beside(target, "old")
        target.rename(old)
        folder.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    lease.sync(target.parent)  # the rename itself must reach the disk, too
