"""Publishes to a dataset repository of the Hugging Face hub, in one commit.

Large files are sent before it, shards first; the hub keeps them by their hashes, so a later call
does not send them again. Until the commit, readers see the build that was there before.
"""

import hashlib
import re
from collections.abc import Collection
from typing import Any, NamedTuple

from pipeline.publish import sending
from pipeline.publish.publication import Piece, Publication, Report, Sent
from pipeline.report.card import CARD
from pipeline.secrets import redacted
from stages.errors import PipelineError, SurroundingsError, UsageError

_ADDRESS = re.compile(r"hf://(?:datasets/)?([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?")


class Repository(NamedTuple):
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
    begun = hashlib.sha1(f"blob {piece.size}\0".encode(), usedforsecurity=False)
    with piece.path.open("rb") as file:
        return hashlib.file_digest(file, lambda: begun).hexdigest()


def _same(piece: Piece, there: Any) -> bool:
    """Whether the hub has a file with these bytes, by the hash that it gives of it."""
    if there is None or there.size != piece.size:
        return False
    if there.lfs is not None:
        return bool(there.lfs.sha256 == piece.sha256)
    return bool(there.blob_id == _blob(piece))


class _Hub:
    """One repository, for ``sending``; made, unless it exists."""

    shown = "The repository"
    other = "repository, or remove them there"
    stay: Collection[str] = (".gitattributes",)

    def __init__(self, where: Repository, private: bool) -> None:
        from huggingface_hub import HfApi

        self._api = HfApi()
        self._where: dict[str, Any] = {"repo_id": where.name, "repo_type": "dataset"}
        self._branch = where.branch
        if not self._api.repo_exists(**self._where):
            self._api.create_repo(**self._where, private=private, exist_ok=True)
        if self._branch:
            self._api.create_branch(**self._where, branch=self._branch, exist_ok=True)
        # The latest commit, on top of which ours must come.
        self._parent = str(self._api.dataset_info(where.name, revision=self._branch).sha)

    def _files(self, revision: str) -> dict[str, Any]:
        """What a commit holds, by path."""
        tree = self._api.list_repo_tree(**self._where, recursive=True, revision=revision)
        return {one.path: one for one in tree if hasattr(one, "blob_id")}

    def look(self) -> Collection[str]:
        self._there = self._files(self._parent)
        return self._there

    def get(self, name: str) -> bytes:
        from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
        from huggingface_hub.utils import build_hf_headers

        url = hf_hub_url(**self._where, filename=name, revision=self._parent)
        answer = get_session().get(url, headers=build_hf_headers(), follow_redirects=True)
        hf_raise_for_status(answer)
        return bytes(answer.content)

    def begun(self) -> Collection[str]:
        return {CARD}  # which a new repository has

    def holds(self, piece: Piece) -> bool:
        return _same(piece, self._there.get(piece.name))

    def bring(self, change: sending.Change, report: Report) -> str:
        """One commit, which the hub refuses where another came meanwhile."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        if not change.pieces:
            return self._parent
        operations: list[Any] = [CommitOperationDelete(name) for name in change.stale]
        for done, piece in enumerate(change.pieces, 1):
            added = CommitOperationAdd(piece.name, str(piece.path))
            # Sends what the hub keeps outside of git, unless it has these bytes.
            self._api.preupload_lfs_files(
                **self._where, additions=[added], revision=self._branch, free_memory=False
            )
            operations.append(added)
            report("send", done, len(change.pieces))
        done_now = self._api.create_commit(
            **self._where,
            operations=operations,
            commit_message=f"Publish build {change.publication.manifest.build_id[:12]}",
            revision=self._branch,
            parent_commit=self._parent,
        )
        there = self._files(str(done_now.oid))
        for piece in change.publication.all:
            if not _same(piece, there.get(piece.name)):
                raise SurroundingsError(
                    f"The hub does not have the bytes of {piece.name} that were sent.",
                    "Publish again.",
                )
        return str(done_now.oid)


def _reason(error: Exception) -> str:
    """What the hub or the connection said; addresses in it can be signed."""
    from huggingface_hub.errors import HfHubHTTPError

    said = error if isinstance(error, HfHubHTTPError) else error.__cause__ or error
    return redacted(" ".join(str(said).split()))[:300].rstrip(" .:")


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
        return sending.bring(_Hub(where, private), publication, report)
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
