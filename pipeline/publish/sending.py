"""Brings a publication to a place, and how that is done in a store or a folder; the hub: ``hub``.

A store has no rename of many objects at once, so the manifest says whether a build is there: it
is removed before the first object changes, and written after every object was read back and
hashed. Until then ``.publishing.json`` names the files that belong to the publication. So a call
that ends early leaves a place that no reader takes for a build, and that the next call finishes.

An object that was read back once is known by the tag that the store gives its content (ETag), and
is read again only when that has changed.
"""

import json
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pipeline.builds.lease import object_of
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import RUN
from pipeline.publish.publication import Piece, Publication, Report, Sent
from pipeline.report.card import CARD
from pipeline.stores import Stat, Store, sha256_of
from stages.errors import SurroundingsError, UsageError

MARKER = ".publishing.json"
_ENTRIES = (MANIFEST, "dataset_dict.json", CARD)  # what readers begin with


class Target(Protocol):
    """A place for a publication.

    Attributes:
        shown: as a sentence begins with it; ``other``: what the user may give instead of it.
        stay: files there that are not removed, though they are of no build.
    """

    shown: str
    other: str
    stay: Collection[str]

    def look(self) -> Collection[str]:
        """The files that are there now."""

    def get(self, name: str) -> bytes | None:
        """A small one of them."""

    def begun(self) -> Collection[str]:
        """Those that are ours, though no manifest names them."""

    def holds(self, piece: Piece) -> bool:
        """Whether a file is there with the same bytes."""

    def bring(self, change: "Change", report: Report) -> str:
        """Make the place the publication; the hub's commit, where there is one."""


class Change(NamedTuple):
    """What a place lacks to be the publication.

    Attributes:
        pieces: files to send, the manifest last; ``stale``: files to remove.
        ours: all files that may be there until it is done.
    """

    publication: Publication
    pieces: Sequence[Piece]
    stale: Sequence[str]
    ours: Sequence[str]


def bring(place: Target, publication: Publication, report: Report) -> Sent:
    """Send what is not there, and remove what an older build left.

    Raises:
        UsageError: the place has files of somebody else.
        SurroundingsError: something did not arrive as it was sent, or somebody else writes there.
    """
    there = {*place.look()}
    own = _own(place, there)
    wanted = {piece.name for piece in publication.all}
    missing = []
    for done, piece in enumerate(publication.all, 1):
        missing += [] if there and place.holds(piece) else [piece]
        if there:
            report("compare", done, len(wanted))
    stale = sorted(there - wanted - {*place.stay})
    pieces = [piece for piece in publication.pieces if piece in missing]
    pieces += [publication.last] if missing or stale else []
    revision = place.bring(Change(publication, pieces, stale, sorted(own | wanted)), report)
    names = tuple(piece.name for piece in pieces)
    return Sent(names, sum(piece.size for piece in pieces), tuple(stale), revision)


def _own(place: Target, there: set[str]) -> set[str]:
    """The files of the build that is there, or of a publication that did not finish.

    Raises:
        UsageError: there are other files.
    """
    own = {*place.begun()}
    if MANIFEST in there:
        with suppress(MalformedError):
            own |= {*load(Listed, place.get(MANIFEST) or b"").files, MANIFEST, RUN}
    foreign = sorted(there - own - {*place.stay})
    if foreign:
        raise UsageError(
            f"{place.shown} has files in it that are not of a build: {foreign[0]}.",
            f"Give another {place.other}.",
        )
    return own


@dataclass
class StoreTarget:
    """A place in a store, and what is known of it.

    Attributes:
        known: tag and sha256 of objects that were read back, by name, from earlier calls too.
        there: of the objects below the root, by name; a tag is empty where a store has none.
    """

    store: Store
    known: dict[str, list[str]] = field(default_factory=dict)
    there: dict[str, Stat] = field(default_factory=dict)
    other: str = "address, or remove them"
    stay: Collection[str] = (MARKER,)
    _claim: bytes = b""

    def __post_init__(self) -> None:
        self.shown = self.store.shown

    def look(self) -> Collection[str]:
        self.there = dict(self.store.list())
        return self.there

    def get(self, name: str) -> bytes | None:
        return self.store.get(name)

    def begun(self) -> Collection[str]:
        if MARKER not in self.there:
            return ()
        return {*object_of(self.get(MARKER)).get("files", ()), MANIFEST, RUN}

    def _knows(self, piece: Piece) -> bool:
        """Whether a file is there as it was when it was read back, as far as its size and its tag
        say so."""
        there = self.there.get(piece.name)
        known = None if there is None else [there.tag, piece.sha256]
        return there is not None and (there.size, known) == (piece.size, self.known.get(piece.name))

    def holds(self, piece: Piece) -> bool:
        """It is read back and hashed, or is known."""
        there = self.there.get(piece.name)
        if there is None or there.size != piece.size:
            return False
        if there.tag and self._knows(piece):
            return True
        sha256 = sha256_of(self.store, piece.name, piece.size)
        self.known[piece.name] = [there.tag, sha256]
        return sha256 == piece.sha256

    def send(self, piece: Piece) -> None:
        """Write a file, and require that what can be read there has its hash.

        Raises:
            SurroundingsError: it has another one.
        """
        self.store.put_file(piece.name, piece.path)
        self.known.pop(piece.name, None)
        arrived = self.store.stat(piece.name)
        if arrived is not None:
            self.there[piece.name] = arrived
        if arrived is None or not self.holds(piece):
            raise SurroundingsError(
                f"{self.shown}/{piece.name} does not have the bytes that were sent.",
                "Publish again; what has arrived is not sent again.",
            )

    def _remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.there.pop(name, None) is not None:
            self.store.delete(name)

    def _require(self, ours: bool = True) -> None:
        """Of two calls at a time, the one that began first finds the other's marker before it
        changes the next file, and leaves the place to it.

        Raises:
            SurroundingsError: the marker is another one, or gone, or something is not ``ours``.
        """
        if not ours or self.get(MARKER) != self._claim:
            raise SurroundingsError(
                f"{self.shown} was changed by somebody else while it was written.",
                "Publish again when no other process writes there.",
            )

    def bring(self, change: Change, report: Report) -> str:
        """The manifest is written last; there is none meanwhile."""
        if change.pieces:
            said = {"files": sorted({*change.ours} - {MARKER}), "call": uuid.uuid4().hex}
            self._claim = json.dumps(said).encode()
            self.store.put(MARKER, self._claim)
            *first, last = change.pieces
            for name in _ENTRIES:
                if name in {MANIFEST, *change.stale, *(piece.name for piece in first)}:
                    self._remove(name)
            for done, piece in enumerate(first, 1):
                self._require()
                self.send(piece)
                report("send", done, len(first))
            for name in change.stale:
                self._require()
                self._remove(name)
            self.look()
            whole = change.publication.pieces
            wanted = {piece.name for piece in whole} | {MARKER}
            self._require({*self.there} == wanted and all(map(self._knows, whole)))
            self.send(last)
        self._remove(MARKER)
        return ""
