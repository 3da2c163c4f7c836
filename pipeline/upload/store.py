"""Publishes to a store that fsspec knows (``s3://``, ``gs://``, ``abfs://``), and to folders.

A store has no rename of many objects at once, so the manifest says whether a build is there: it is
removed before the first object changes, and written after every object was read back and hashed.
Until then ``.publishing.json`` names the files that belong to the publication. So a call that ends
early leaves a place that no reader takes for a build, and that the next call finishes.

An object that was read back once is known by the tag that the store gives its content (ETag), and
is read again only when that has changed.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pipeline.card import CARD
from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import RUN
from pipeline.stores.filesystem import redacted
from pipeline.upload.publication import Piece, Publication
from pipeline.upload.sent import Report, Sent
from stages.errors import PipelineError, SurroundingsError, UsageError

MARKER = ".publishing.json"
_BLOCK = 1 << 24  # bytes that are read back at a time
# Stores whose folders are only parts of names. To make one there could make a bucket.
_FLAT = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "r2"}
_ENTRIES = (MANIFEST, "dataset_dict.json", CARD)  # what readers begin with


@dataclass
class Store:
    """A place in a store.

    Attributes:
        filesystem: of fsspec; ``root``: the path in it.
        shown: the address, without keys or signatures.
        known: tag and sha256 of objects that were read back, by name, from earlier calls too.
        sizes, tags: of the objects below the root, by name; a tag is empty where a store has none.
    """

    filesystem: Any
    root: str
    shown: str
    known: dict[str, list[str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def at(self, name: str) -> str:
        """The path of a file."""
        return posixpath.join(self.root, name)

    def _make_folder(self, path: str) -> None:
        protocol = self.filesystem.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        if not names & _FLAT:
            self.filesystem.makedirs(path, exist_ok=True)

    def look(self) -> None:
        """List what is there now."""
        self.filesystem.invalidate_cache()
        if not self.filesystem.exists(self.root):
            self.sizes, self.tags = {}, {}
            return
        found = self.filesystem.find(self.root, detail=True)
        start = len(self.root.rstrip("/")) + 1
        there = {path[start:]: info for path, info in found.items() if path[start:]}
        self.sizes = {name: int(info["size"]) for name, info in there.items()}
        self.tags = {name: _tag(info) for name, info in there.items()}

    def read(self, name: str) -> bytes:
        """All bytes of a small file."""
        content: bytes = self.filesystem.cat_file(self.at(name))
        return content

    def knows(self, piece: Piece) -> bool:
        """Whether a file is there as it was when it was read back, as far as its size and its tag
        say so."""
        there = self.sizes.get(piece.name) == piece.size
        return there and self.known.get(piece.name) == [self.tags[piece.name], piece.sha256]

    def holds(self, piece: Piece) -> bool:
        """Whether a file is there with the same bytes: it is read back and hashed, or is known."""
        if self.sizes.get(piece.name) != piece.size:
            return False
        tag = self.tags[piece.name]
        if tag and self.knows(piece):
            return True
        digest = hashlib.sha256()
        for start in range(0, piece.size, _BLOCK):
            end = min(start + _BLOCK, piece.size)
            digest.update(self.filesystem.cat_file(self.at(piece.name), start=start, end=end))
        self.known[piece.name] = [tag, digest.hexdigest()]
        return digest.hexdigest() == piece.sha256

    def send(self, piece: Piece) -> None:
        """Write a file, and require that what can be read there has its hash.

        Raises:
            SurroundingsError: it has another one.
        """
        path = self.at(piece.name)
        self._make_folder(posixpath.dirname(path))
        self.filesystem.put_file(str(piece.path), path)
        self.filesystem.invalidate_cache()
        self.known.pop(piece.name, None)
        if not self._arrived(piece):
            raise SurroundingsError(
                f"{self.shown}/{piece.name} does not have the bytes that were sent.",
                "Publish again; what has arrived is not sent again.",
            )

    def _arrived(self, piece: Piece) -> bool:
        try:
            info = self.filesystem.info(self.at(piece.name))
            self.sizes[piece.name], self.tags[piece.name] = int(info["size"]), _tag(info)
            return self.holds(piece)
        except FileNotFoundError:
            return False

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        self._make_folder(self.root)
        self.filesystem.pipe_file(self.at(name), content)
        self.sizes[name] = len(content)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if name in self.sizes:
            self.filesystem.rm_file(self.at(name))
            del self.sizes[name]


def _tag(info: Mapping[str, Any]) -> str:
    """What a store calls the content of an object; empty where it has no name for it."""
    return next((str(info[key]) for key in ("ETag", "etag", "md5Hash") if info.get(key)), "")


def _listed(store: Store) -> set[str]:
    """The files of the build that is there, or of a publication that did not finish.

    Raises:
        UsageError: there are other files.
    """
    own: set[str] = set()
    if MANIFEST in store.sizes:
        with suppress(MalformedError):
            own |= {*load(Listed, store.read(MANIFEST)).files, MANIFEST, RUN}
    if MARKER in store.sizes:
        begun = json.loads(store.read(MARKER))
        own |= {*begun["files"], MARKER, MANIFEST, RUN}
    foreign = sorted(set(store.sizes) - own)
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
    def made(cls, store: Store, names: list[str]) -> _Claim:
        """Write the marker; ``names``: all files that may be there until it is removed."""
        content = json.dumps({"files": names, "call": uuid.uuid4().hex}).encode()
        store.write(MARKER, content)
        return cls(store, content)

    def require(self) -> None:
        """Raises SurroundingsError where the marker is another one, or gone."""
        try:
            stands = self.store.read(MARKER) == self.content
        except FileNotFoundError:
            stands = False
        if not stands:
            raise _changed(self.store)

    def require_all(self, publication: Publication) -> None:
        """Raises SurroundingsError where an object is missing, or is not what was read back."""
        self.store.look()
        wanted = {piece.name for piece in publication.pieces} | {MARKER}
        known = all(map(self.store.knows, publication.pieces))
        if set(self.store.sizes) != wanted or not known:
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
    missing = list(_missing(store, publication, report)) if store.sizes else [*publication.all]
    stale = sorted(set(store.sizes) - wanted - {MARKER})
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


def patiently(shown: str, action: Callable[[], Sent]) -> Sent:
    """Call it; what a store raises becomes one sentence.

    Raises:
        UsageError: there is no such bucket.
        SurroundingsError: the store failed, or refused.
    """
    try:
        return action()
    except PipelineError:
        raise
    except (TypeError, AttributeError, AssertionError):
        raise  # a bug of a program, not a failure of the store
    except FileNotFoundError as error:
        raise UsageError(
            f"{shown} cannot be written: there is no such bucket or folder.", "Check the address."
        ) from error
    except Exception as error:
        reason = redacted(" ".join(str(error).split()))[:200]
        raise SurroundingsError(
            f"{shown} cannot be written: {type(error).__name__}: {reason}.",
            "Check the connection and your credentials, then publish again; what has arrived is "
            "not sent again.",
        ) from error
