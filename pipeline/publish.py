"""A build is made aside and appears at once: a reader sees the old one or the new one.

The finished directory takes the old one's place in a single system call where the platform can
exchange two names (Linux ``renameat2``); elsewhere by two renames under the lock, with a mark that
lets the next run finish what a crash left between them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from expectations.verdict import Verdict
from pipeline.build_dir.json_records import MalformedError, as_json, load, sealed
from pipeline.build_dir.manifest import MANIFEST, Listed, Manifest
from pipeline.build_dir.records import RUN, VALIDATION
from pipeline.dataset_files import write_json
from stages.errors import GateError, SurroundingsError, UsageError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _beside(target: Path, what: str) -> Path:
    return target.parent / f".{target.name}.{what}"


def _files_of_build(target: Path) -> set[str] | None:
    """Relative paths that a build's manifest vouches for; None when it is not a build of ours."""
    try:
        listed = load(Listed, (target / MANIFEST).read_bytes())
    except (OSError, MalformedError):
        return None
    return {*listed.files, RUN, MANIFEST} if listed.build_id else None


def check_target(target: Path) -> Path:
    """The output must be new, empty, or a build and nothing else.

    Returns:
        The target itself, behind any symbolic link.

    Raises:
        UsageError: it is a file, the working directory, or holds something that is not a build's.
    """
    real = Path(os.path.realpath(target))
    if real == Path.cwd() or real in Path.cwd().parents:
        raise UsageError(f"{target} contains the working directory.", "Give another with -o.")
    if real.exists() and not real.is_dir():
        raise UsageError(f"{target} is a file.", "Give a directory with -o.")
    if real.is_dir() and any(real.iterdir()):
        own = _files_of_build(real)
        present = {p.relative_to(real).as_posix() for p in real.rglob("*") if not p.is_dir()}
        if own is None or present - own:
            raise UsageError(
                f"{target} has files in it and is not a build.", "Give another directory with -o."
            )
    return real


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A fresh directory beside the target, under its lock; removed whatever happens.

    Raises:
        SurroundingsError: another build of the same target is running.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target) as lock:
        _recover(target)
        folder = _beside(target, "staging")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


@contextmanager
def _locked(target: Path) -> Iterator[Path]:
    path = _beside(target, "lock")
    while True:
        with path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                raise SurroundingsError(
                    f"{target} is being built by another run ({lock.read().strip() or 'unknown'}).",
                    "Wait for it, or build somewhere else.",
                ) from error
            # The run before may have removed the file between our opening and locking it.
            if not path.exists() or path.stat().st_ino != os.fstat(lock.fileno()).st_ino:
                continue
            lock.truncate(0)
            lock.write(f"process {os.getpid()}")
            lock.flush()
            yield path
            return


def _recover(target: Path) -> None:
    """Finish a publication that died between its two renames."""
    old = _beside(target, "old")
    if old.exists() and not target.exists():
        old.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories in one system call; False where that is not offered."""
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
    """Flush every file and directory: after the rename they must survive a power cut."""
    for root, _, files in os.walk(folder):
        for name in (*files, "."):
            handle = os.open(os.path.join(root, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def write_manifest(folder: Path, manifest: Manifest, verdict: Verdict) -> Manifest:
    """Write the manifest, which makes a folder a build. Nothing else does, and nobody may without
    the verdict that ``validation.json`` holds.

    Returns:
        The manifest as it was written.

    Raises:
        GateError: the verdict is not one that passed, or the folder holds another.
    """
    stored = json.loads((folder / VALIDATION).read_bytes())
    judged = verdict.findings and verdict.passed
    if not judged or stored != json.loads(json.dumps(verdict.described())):
        raise GateError("The build was not checked, or failed its checks.", "Please report it.")
    with_seal = sealed(manifest)
    write_json(folder / MANIFEST, as_json(with_seal))
    return with_seal


def publish(folder: Path, target: Path) -> None:
    """Put a finished staging directory in the target's place."""
    _sync(folder)
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    if not target.exists():
        folder.rename(target)
    elif not _exchange(folder, target):
        old = _beside(target, "old")
        target.rename(old)
        folder.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
