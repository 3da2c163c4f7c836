"""Publishes to a dataset repository of the Hugging Face hub, in one commit, or to a store.

Large files are sent before it, shards first; the hub keeps them by their hashes, so a later call
does not send them again. Until the commit, readers see the build that was there before.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.manifest.records import RUN
from pipeline.publish.publication import Piece, Publication, Report, Sent
from pipeline.report.card import CARD
from pipeline.secrets import redacted
from pipeline.stores import Stat, objects
from pipeline.stores.objects import ObjectStore
from stages.errors import PipelineError, SurroundingsError, UsageError

_ADDRESS = re.compile(r"hf://(?:datasets/)?([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?")
_ITS_OWN = {".gitattributes", CARD}  # what a new repository has


@dataclass(frozen=True, slots=True)
class Repository:
    """A dataset repository.

    Attributes:
        name: ``org/name``; ``branch``: None for its default one.
    """

    name: str
    branch: str | None = None


def repository(address: str) -> Repository:
    """``hf://org/name``, ``hf://datasets/org/name`` or either with ``@branch``.

    Raises:
        UsageError: it is none of these.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise UsageError(
            f"{address} is not a dataset of the hub.", "Give hf://org/name or hf://org/name@branch."
        )
    return Repository(*found.groups())


def _blob(piece: Piece) -> str:
    """What git calls a file: the SHA-1 of its length and its bytes."""
    digest = hashlib.sha1(f"blob {piece.size}\0".encode(), usedforsecurity=False)
    with piece.path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _same(piece: Piece, there: Any) -> bool:
    """Whether the hub has a file with these bytes, by the hash that it gives of it."""
    if there is None or there.size != piece.size:
        return False
    if there.lfs is not None:
        return bool(there.lfs.sha256 == piece.sha256)
    return bool(there.blob_id == _blob(piece))


class _Hub:
    """The requests, all of one repository."""

    def __init__(self, where: Repository) -> None:
        from huggingface_hub import HfApi

        self._api = HfApi()
        self._where: dict[str, Any] = {"repo_id": where.name, "repo_type": "dataset"}
        self._branch = where.branch

    def create(self, private: bool) -> None:
        """Create the repository, unless it exists."""
        if not self._api.repo_exists(**self._where):
            self._api.create_repo(**self._where, private=private, exist_ok=True)
        if self._branch:
            self._api.create_branch(**self._where, branch=self._branch, exist_ok=True)

    def head(self) -> str:
        """The latest commit."""
        return str(self._api.dataset_info(self._where["repo_id"], revision=self._branch).sha)

    def files(self, revision: str) -> dict[str, Any]:
        """What a commit holds, by path."""
        tree = self._api.list_repo_tree(**self._where, recursive=True, revision=revision)
        return {one.path: one for one in tree if hasattr(one, "blob_id")}

    def read(self, name: str, revision: str) -> bytes:
        """A small file of a commit."""
        from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
        from huggingface_hub.utils import build_hf_headers

        url = hf_hub_url(**self._where, filename=name, revision=revision)
        answer = get_session().get(url, headers=build_hf_headers(), follow_redirects=True)
        hf_raise_for_status(answer)
        return bytes(answer.content)

    def send(self, piece: Piece) -> Any:
        """Send a file that the hub keeps outside of git, unless it has these bytes; the operation
        that adds it."""
        from huggingface_hub import CommitOperationAdd

        added = CommitOperationAdd(piece.name, str(piece.path))
        self._api.preupload_lfs_files(
            **self._where, additions=[added], revision=self._branch, free_memory=False
        )
        return added

    def commit(self, added: list[Any], removed: list[str], message: str, parent: str) -> str:
        """All changes at once, on top of a commit that must still be the latest; the new commit."""
        from huggingface_hub import CommitOperationDelete

        done = self._api.create_commit(
            **self._where,
            operations=[*added, *(CommitOperationDelete(name) for name in removed)],
            commit_message=message,
            revision=self._branch,
            parent_commit=parent,
        )
        return str(done.oid)


def _reason(error: Exception) -> str:
    """What the hub or the connection said; addresses in it can be signed."""
    from huggingface_hub.errors import HfHubHTTPError

    said = error if isinstance(error, HfHubHTTPError) else error.__cause__ or error
    return redacted(" ".join(str(said).split()))[:300].rstrip(" .:")


def _stale(hub: _Hub, there: dict[str, Any], revision: str, wanted: set[str]) -> list[str]:
    """Files of the build that was published there before.

    Raises:
        UsageError: there are files that no build has.
    """
    own = set(_ITS_OWN)
    if MANIFEST in there:
        with suppress(MalformedError):
            own |= {*load(Listed, hub.read(MANIFEST, revision)).files, MANIFEST}
    foreign = sorted(set(there) - own)
    if foreign:
        raise UsageError(
            f"The repository has files in it that are not of a build: {foreign[0]}.",
            "Give another repository, or remove them there.",
        )
    return sorted(set(there) - wanted - {".gitattributes"})


def _publish(where: Repository, publication: Publication, private: bool, report: Report) -> Sent:
    hub = _Hub(where)
    hub.create(private)
    parent = hub.head()
    there = hub.files(parent)
    wanted = {piece.name for piece in publication.all}
    stale = _stale(hub, there, parent, wanted)
    missing = [piece for piece in publication.all if not _same(piece, there.get(piece.name))]
    if not missing and not stale:
        return Sent((), 0, (), parent)
    added = []
    for done, piece in enumerate(missing, 1):
        added.append(hub.send(piece))
        report("send", done, len(missing))
    build = publication.manifest.build_id[:12]
    revision = hub.commit(added, stale, f"Publish build {build}", parent)
    arrived = hub.files(revision)
    differ = [piece.name for piece in publication.all if not _same(piece, arrived.get(piece.name))]
    if differ:
        raise SurroundingsError(
            f"The hub does not have the bytes of {differ[0]} that were sent.", "Publish again."
        )
    size = sum(piece.size for piece in missing)
    return Sent(tuple(piece.name for piece in missing), size, tuple(stale), revision)


def publish(where: Repository, publication: Publication, *, private: bool, report: Report) -> Sent:
    """Send what the hub does not have, commit, and compare the hub's hashes with ours.

    Args:
        private: of a repository that is created now.

    Raises:
        UsageError: the repository has files of somebody else, or its name is not valid.
        SurroundingsError: the hub cannot be reached, or refuses.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    try:
        return _publish(where, publication, private, report)
    except PipelineError:
        raise
    except HFValidationError as error:
        raise UsageError(f"{where.name}: {error}.", "Give another name.") from error
    except (TypeError, AttributeError, AssertionError):
        raise  # a bug of a program, not a failure of the hub
    except Exception as error:
        raise SurroundingsError(
            f"Publishing to the hub's dataset {where.name} failed: {_reason(error)}.",
            "Check the connection and hf auth whoami, then publish again; what has arrived is not "
            "sent again.",
        ) from error


# Publishes to a store that fsspec knows (``s3://``, ``gs://``, ``abfs://``), and to folders.
#
# A store has no rename of many objects at once, so the manifest says whether a build is there: it
# is removed before the first object changes, and written after every object was read back and
# hashed. Until then ``.publishing.json`` names the files that belong to the publication. So a call
# that ends early leaves a place that no reader takes for a build, and that the next call finishes.
#
# An object that was read back once is known by the tag that the store gives its content (ETag), and
# is read again only when that has changed.


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


def publish_to_store(store: Store, publication: Publication, report: Report) -> Sent:
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
