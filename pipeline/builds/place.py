"""Where a build goes: into a directory of its own, or as one version of several under a link."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.builds import lease, publish, versions
from pipeline.manifest import dataset_files
from pipeline.manifest.manifest import MANIFEST
from stages.errors import UsageError

if TYPE_CHECKING:
    from pipeline.options.build_options import RunOptions


def before(output: Path, keep: int) -> Path:
    """The build that a new one takes the place of, where there is one."""
    return output / versions.CURRENT if keep else output


@dataclass(frozen=True, slots=True)
class Place:
    """The output of a build.

    Attributes:
        output: as it was named; ``real``: links followed.
        keep: how many versions stay; 0 where the output is a build itself.
    """

    output: Path
    real: Path
    keep: int = 0

    @classmethod
    def of(cls, output: Path, keep: int = 0) -> "Place":
        """The output, where it is ours to write to.

        Raises:
            UsageError: it is not (see ``publish.check_target``), or it holds versions and ``keep``
                is 0, or the other way round.
        """
        real = Path(os.path.realpath(output))
        if not keep:
            if real.is_dir() and versions.is_releases(real):
                raise UsageError(
                    f"{output} holds versions of a build.",
                    "Say how many to keep, as in --keep 7, or give another directory with -o.",
                )
            return cls(output, publish.check_target(output))
        publish.require_apart(output)
        if real.exists() and not real.is_dir():
            raise UsageError(f"{output} is a file.", "Give a directory with -o.")
        if (real / MANIFEST).exists():
            raise UsageError(
                f"{output} is a build, not a folder of versions.",
                "Give another directory with -o, or leave --keep out.",
            )
        others = [p.name for p in real.iterdir()] if real.is_dir() else []
        if not versions.is_releases(real) and not all(map(dataset_files.is_one, others)):
            raise UsageError(
                f"{output} has files in it and holds no versions.",
                "Give another directory with -o.",
            )
        if (real / versions.CURRENT).exists() and not (real / versions.CURRENT).is_symlink():
            raise UsageError(
                f"{output / versions.CURRENT} is not a link.",
                "Was the folder copied without its links? Move that folder away.",
            )
        return cls(output, real, keep)

    @property
    def before(self) -> Path:
        """The build that a new one takes the place of, where there is one."""
        return before(self.real, self.keep)

    @property
    def shown_before(self) -> str:
        """The same, as the user knows it."""
        return str(self.output / versions.CURRENT if self.keep else self.output)

    @property
    def link(self) -> Path | None:
        """The link to the current version, as the user knows it; None of a single build."""
        return self.output / versions.CURRENT if self.keep else None

    def build(self, build_id: str) -> Path:
        """Where a build of this id lies; ``shown`` as the user knows it."""
        return self.real / build_id if self.keep else self.real

    def shown(self, build_id: str) -> Path:
        """Where a build of this id lies, as the user named the output."""
        return self.output / build_id if self.keep else self.output

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A new directory to build in, under the lock of the output; it is removed in the end.

        Raises:
            SurroundingsError: another build of the same output is running.
        """
        if self.keep:  # from here on it is a folder of versions, also if this run is killed
            self.real.mkdir(parents=True, exist_ok=True)
            (self.real / lease.HISTORY).touch()
        with publish.staging(self.before) as folder:
            if self.keep:
                versions.tidy(self.real)
            yield folder

    def publish(self, folder: Path, build_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Put a finished staging directory in its place, and let go of old versions.

        Returns:
            The ids of versions that were removed, and sentences about those that could not be.
        """
        publish.publish(folder, self.build(build_id))
        return self.turn_to(build_id) if self.keep else ((), ())

    def turn_to(self, build_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Make a version that is there the current one; returns and raises what ``publish`` does.

        Raises:
            UsageError: another run has just removed it.
        """
        versions.point(self.real, build_id)
        return self.retain()

    def moment(self, folder: Path, build_id: str) -> Callable[[], bool]:
        """Says at any time whether the build of a staging directory is the one that is there."""
        return publish.moment(folder, self.before)

    def is_published(self, build_id: str) -> bool:
        """Whether this is the build that is there now."""
        return publish.id_of(self.before) == build_id

    @property
    def in_store(self) -> bool:
        """Whether it is in a store."""
        return False

    def manifest_of(self, build_id: str) -> bytes | None:
        """The manifest of a version that is whole, as far as a store says so; None in a folder,
        where hashes are compared."""
        return None

    def retain(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Let go of old versions; returns what ``publish`` does.

        After a run that was killed, or with another ``--keep``, an unchanged build has some, too.
        """
        if not self.keep:
            return (), ()
        removed, notes = versions.retain(self.real, self.keep)
        return tuple(removed), tuple(notes)

    def current(self) -> str | None:
        """The id of the current version; None of a single build."""
        return versions.current_id(self.real) if self.keep else None

    def withdrawn(self, build_id: str) -> bool:
        """Whether a rollback took this version back, and nobody has asked for it since."""
        return any(v.build_id == build_id and v.withdrawn for v in versions.versions(self.real))

    def record(self, line: Mapping[str, Any]) -> None:
        """Append a line to the history of versions, with what is current now."""
        if self.keep:
            lease.append(self.real, {**line, "current": self.current()})

    def record_killed(self) -> None:
        """A line for a run that was killed, and so could not write its own; what it left half done
        is removed."""
        if not self.keep or not self.real.is_dir():
            return
        lock = publish.beside(self.before, "lock")
        try:
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_ino != lock.stat().st_ino:
                    return  # its run ended, and removed it, after we opened it
                holder = file.read().strip()
                if holder:
                    shutil.rmtree(publish.beside(self.before, "staging"), ignore_errors=True)
                    versions.tidy(self.real)
                    message = f"the run before ({holder}) was killed"
                    self.record(lease.entry("failed", message, None))
                lock.unlink(missing_ok=True)
        except OSError:  # there is no lock, or a run that is alive has it
            return


def place_of(run: "RunOptions") -> Place:
    """Where a build goes.

    Raises:
        UsageError: it is not ours to write to, or the store cannot decide between two writers.
    """
    if not run.address and run.single_writer:
        raise UsageError(
            "--single-writer is for an output in a store.", "Leave it out: a folder has a lock."
        )
    if not run.address:
        return Place.of(run.output, run.keep)
    from pipeline.builds.store_place import StorePlace  # which few builds need

    return StorePlace.at(run.address, run.place, run.keep, run.single_writer)
