"""Versions: every build of one output under a name of its own, and one name for the current one.

``Versions`` is the port. What a folder and a store have in common stands there once; what truly
differs is in ``folder_versions`` (a link, a rename) and in ``store_versions`` (an object, a put
with a condition).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pipeline.builds import lease, publish
from stages.errors import UsageError

SHORT = 12  # characters of an id in messages
LetGo = tuple[tuple[str, ...], tuple[str, ...]]  # ids that were removed; why others stay


class Version(NamedTuple):
    """One version.

    Attributes:
        order: when it was current last: the larger, the later; -1 if nothing says so.
        withdrawn: it was current until a rollback, and nobody made it current again.
        holds: names of those who read it.
        fault: why what has its name is no version; empty where it is one.
    """

    build_id: str
    folder: Path
    order: int
    current: bool
    withdrawn: bool
    holds: tuple[str, ...]
    fault: str = ""


class Said(NamedTuple):
    """What a place says of its versions: which one is current, the order in which they were, and
    those that a rollback took back."""

    build_id: str | None
    order: Mapping[str, int]
    withdrawn: Collection[str]


class Versions(Protocol):
    """The versions of one output. A folder and a store differ in what is abstract here.

    ``shown`` is where they are, as messages say it.
    """

    @property
    def shown(self) -> str: ...
    @property
    def before(self) -> Path:
        """The current version on this machine, as far as the next build is compared with it."""

    def staging(self) -> AbstractContextManager[Path]:
        """A new directory to build in, under the lock of the output; it is removed in the end."""

    def writing(self) -> AbstractContextManager[object]:
        """While a version is made current."""

    def put(self, folder: Path, build_id: str) -> None:
        """Give a finished staging directory the name of its version."""

    def point(self, build_id: str, back: bool = False) -> None:
        """Make a version current in one exchange: a reader finds the version before or this one.

        Args:
            back: by a rollback.
        """

    def current(self, fresh: bool = False) -> str | None:
        """The id of the current version; None where there is none. ``fresh``: look again."""

    def said(self) -> Said: ...
    def manifest_of(self, build_id: str) -> bytes | None:
        """The manifest of a version that is whole, as far as that is known without reading it."""

    def named(self) -> Iterator[str]:
        """The ids by which versions are there."""

    def at(self, build_id: str) -> Path:
        """Where a version lies."""

    def stays(self, version: Version) -> str:
        """Why it is not to be removed, however old; empty where nothing speaks against it."""

    def remove(self, build_id: str) -> bool:
        """Remove it; False where somebody has asked for it meanwhile."""

    def append(self, line: Mapping[str, Any]) -> None:
        """One more line of history."""

    def holds(self, build_id: str) -> tuple[str, ...]:
        """Names of those who hold it."""
        return ()

    def fault(self, build_id: str) -> str:
        """Why what has the name of a version is none; empty where it is one."""
        return ""

    def age(self, build_id: str) -> tuple[object, ...]:
        """Orders versions of which nothing says when they were current."""
        return (build_id,)

    def tidy(self, known: Sequence[Version]) -> None:
        """Remove what runs that were stopped have left half done."""
        return

    def record_killed(self) -> None:
        """A line for a run that was killed, and so could not write its own."""
        return

    def found(self) -> list[Version]:
        """Every one with the name of a version, be it one or not."""
        said = self.said()
        return [
            Version(
                build_id=one,
                folder=self.at(one),
                order=said.order.get(one, -1),
                current=one == said.build_id,
                withdrawn=one in said.withdrawn and one != said.build_id,
                holds=self.holds(one),
                fault=self.fault(one),
            )
            for one in self.named()
        ]

    def all(self) -> list[Version]:
        """Every version; the current one first, then the one that was current last, and so on."""
        whole = (one for one in self.found() if not one.fault)
        return sorted(whole, key=lambda v: (v.current, v.order, self.age(v.build_id)), reverse=True)

    def find(self, name: str) -> Version:
        """The version that a user names: ``current``, or the first characters of its id.

        Raises:
            UsageError: there is none, or there are several.
        """
        return self._one_of(self.all(), name)

    def _one_of(self, known: Sequence[Version], name: str) -> Version:
        if name == publish.CURRENT:
            fitting = [one for one in known if one.current]
        else:
            fitting = [one for one in known if name and one.build_id.startswith(name)]
        if len(fitting) == 1:
            return fitting[0]
        some = ", ".join(one.build_id[:SHORT] for one in known[:8])
        what = "several versions begin" if fitting else "no version begins"
        if name == publish.CURRENT:
            what = "there is no current version, and none begins"
        raise UsageError(
            f"{self.shown}: {what} with {name!r}.",
            f"Versions: {some}." if some else "Build one first: pipeline run ... --keep 7.",
        )

    def rollback(self, name: str | None) -> tuple[str | None, Version]:
        """Make another version current: the named one, or the one that was current before.

        Returns:
            The version that was current, and the one that is.

        Raises:
            UsageError: there is none to go back to.
            SurroundingsError: a build is running in a store, which could remove that version.
        """
        with self.writing():
            before, known = self.current(), self.all()
            others = [one for one in known if not one.current and not one.withdrawn]
            if name is None and not others:
                raise UsageError(
                    f"{self.shown} has no earlier version to go back to.",
                    f"See: pipeline versions list {self.shown}",
                )
            wanted = others[0] if name is None else self._one_of(known, name)
            self.point(wanted.build_id, back=True)
        if before != wanted.build_id:
            message = f"{wanted.build_id[:SHORT]} is current again"
            line = lease.entry(lease.ROLLED_BACK, message, build_id=wanted.build_id)
            self.record({**line, "rolled_back_from": before})
        return before, wanted

    def record(self, line: Mapping[str, Any]) -> None:
        """Append a line to the history of versions, with what is current now."""
        self.append({**line, "current": self.current(fresh=True)})

    def retain(self, keep: int) -> LetGo:
        """Remove all but the newest versions; never the current one, or one that is to stay."""
        known = self.all()
        self.tidy(known)
        removed, notes = [], []
        for one in known[keep:]:
            if one.current:
                continue
            if why := self.stays(one):
                notes.append(f"version {one.build_id[:SHORT]} stays: {why}")
            elif self.remove(one.build_id):
                removed.append(one.build_id)
        return tuple(removed), tuple(notes)
