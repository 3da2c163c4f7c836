"""Publishes to a store that fsspec knows (``s3://``, ``gs://``, ``abfs://``), and to folders.

A store has no rename of many objects at once, so the manifest says whether a build is there: it is
removed before the first object changes, and written after every object was read back and hashed.
Until then ``.publishing.json`` names the files that belong to the publication. So a call that ends
early leaves a place that no reader takes for a build, and that the next call finishes.

An object that was read back once is known by the tag that the store gives its content (ETag), and
is read again only when that has changed.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import RUN
from pipeline.publish.publication import Piece, Publication, Report, Sent
from pipeline.report.card import CARD
from pipeline.stores import Stat, objects
from pipeline.stores.objects import ObjectStore
from stages.errors import SurroundingsError, UsageError

MARKER = ".publishing.json"
_ENTRIES = (MANIFEST, "dataset_dict.json", CARD)  # what readers begin with


@dataclass
class Store(ObjectStore):
    """A place in a store, and what is known of it.

    Attributes:
        known: tag and sha256 of objects that were read back, by name, from earlier calls too.
        there: of the objects below the root, by name; a tag is empty where a store has none.
    """

    known: dict[str, list[str]] = field(default_factory=dict)
    there: dict[str, Stat] = field(default_factory=dict)

    def look(self) -> None:
        """List what is there now."""
        self.there = dict(self.list())

    def knows(self, piece: Piece) -> bool:
        """Whether a file is there as it was when it was read back, as far as its size and its tag
        say so."""
        there = self.there.get(piece.name)
        same = there is not None and there.size == piece.size
        return same and self.known.get(piece.name) == [self.there[piece.name].tag, piece.sha256]

    def holds(self, piece: Piece) -> bool:
        """Whether a file is there with the same bytes: it is read back and hashed, or is known."""
        there = self.there.get(piece.name)
        if there is None or there.size != piece.size:
            return False
        if there.tag and self.knows(piece):
            return True
        sha256 = objects.sha256_of(self, piece.name, piece.size)
        self.known[piece.name] = [there.tag, sha256]
        return sha256 == piece.sha256

    def send(self, piece: Piece) -> None:
        """Write a file, and require that what can be read there has its hash.

        Raises:
            SurroundingsError: it has another one.
        """
        self.put_file(piece.name, piece.path)
        self.known.pop(piece.name, None)
        arrived = self.stat(piece.name)
        if arrived is not None:
            self.there[piece.name] = arrived
        if arrived is None or not self.holds(piece):
            raise SurroundingsError(
                f"{self.shown}/{piece.name} does not have the bytes that were sent.",
                "Publish again; what has arrived is not sent again.",
            )

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.there.pop(name, None) is not None:
            self.delete(name)


def _listed(store: Store) -> set[str]:
    """The files of the build that is there, or of a publication that did not finish.

    Raises:
        UsageError: there are other files.
    """
    own: set[str] = set()
    if MANIFEST in store.there:
        with suppress(MalformedError):
            own |= {*load(Listed, store.get(MANIFEST) or b"").files, MANIFEST, RUN}
    if MARKER in store.there:
        begun = json.loads(store.get(MARKER) or b"{}")
        own |= {*begun.get("files", ()), MARKER, MANIFEST, RUN}
    foreign = sorted(set(store.there) - own)
    if foreign:
        raise UsageError(
            f"{store.shown} has files in it that are not of a build: {foreign[0]}.",
            "Give another address, or remove them.",
        )
    return own


def _missing(store: Store, publication: Publication, report: Report) -> Iterator[Piece]:
    """The files that are not there with the same bytes."""
    for done, piece in enumerate(publication.all, 1):
        if not store.holds(piece):
            yield piece
        report("compare", done, len(publication.all))


@dataclass(frozen=True, slots=True)
class _Claim:
    """That this call is the one that writes there: its marker has not been replaced.

    Of two calls at a time, the one that began first finds the other's marker before it changes the
    next file, and leaves the place to it.
    """

    store: Store
    content: bytes

    @classmethod
    def made(cls, store: Store, names: list[str]) -> "_Claim":
        """Write the marker; ``names``: all files that may be there until it is removed."""
        content = json.dumps({"files": names, "call": uuid.uuid4().hex}).encode()
        store.put(MARKER, content)
        return cls(store, content)

    def require(self) -> None:
        """Raises SurroundingsError where the marker is another one, or gone."""
        if self.store.get(MARKER) != self.content:
            raise _changed(self.store)

    def require_all(self, publication: Publication) -> None:
        """Raises SurroundingsError where an object is missing, or is not what was read back."""
        self.store.look()
        wanted = {piece.name for piece in publication.pieces} | {MARKER}
        known = all(map(self.store.knows, publication.pieces))
        if set(self.store.there) != wanted or not known:
            raise _changed(self.store)
        self.require()


def _changed(store: Store) -> SurroundingsError:
    return SurroundingsError(
        f"{store.shown} was changed by somebody else while it was written.",
        "Publish again when no other process writes there.",
    )


def publish(store: Store, publication: Publication, report: Report) -> Sent:
    """Send what is not there, remove what an older build left, and write the manifest last.

    Raises:
        UsageError: the place has files of somebody else.
        SurroundingsError: something did not arrive as it was sent, or somebody else writes there.
    """
    store.look()
    own = _listed(store)
    wanted = {piece.name for piece in publication.all}
    missing = list(_missing(store, publication, report)) if store.there else [*publication.all]
    stale = sorted(set(store.there) - wanted - {MARKER})
    if missing or stale:
        _bring(store, publication, missing, stale, sorted((own | wanted) - {MARKER}), report)
    store.remove(MARKER)
    sent = [*(p for p in publication.pieces if p in missing)]
    sent += [publication.last] if missing or stale else []
    return Sent(tuple(piece.name for piece in sent), sum(p.size for p in sent), tuple(stale))


def _bring(
    store: Store,
    publication: Publication,
    missing: list[Piece],
    stale: list[str],
    names: list[str],
    report: Report,
) -> None:
    """Make the place the publication; it is no build meanwhile."""
    claim = _Claim.made(store, names)
    store.remove(MANIFEST)
    for name in _ENTRIES:
        if name in stale or name in {piece.name for piece in missing}:
            store.remove(name)
    first = [piece for piece in missing if piece.name != MANIFEST]
    for done, piece in enumerate(first, 1):
        claim.require()
        store.send(piece)
        report("send", done, len(first))
    for name in stale:
        claim.require()
        store.remove(name)
    claim.require_all(publication)
    store.send(publication.last)
