"""Publishes to a dataset repository of the Hugging Face hub: all files in one commit.

Large files are sent before it, shards first; the hub keeps them by their hashes, so a later call
does not send them again. Until the commit, readers see the build that was there before.
"""

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipeline.manifest.json_records import MalformedError, load
from pipeline.manifest.manifest import MANIFEST, Listed
from pipeline.publish.publication import Piece, Publication, Report, Sent
from pipeline.report.card import CARD
from pipeline.secrets import redacted
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
