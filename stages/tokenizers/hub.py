"""A hub model's files: from the local cache, or with ``--fetch`` from the hub, when it answers
within 3 seconds.

Profiles without ``ranks`` have their tokenizer there. Where a profile has the hash of the file, the
file must have it; ``bind`` checks the ids that the profile declares.

``HF_HOME``, ``HF_HUB_CACHE``, ``HF_ENDPOINT`` and ``HF_HUB_OFFLINE`` mean what they mean to the
hub's own client. A snapshot is a commit's; the commit is recorded with the build.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stages.errors import ModelError
from stages.profile import ModelProfile
from stages.tokenizers import claims

FILES = (
    "tokenizer.json tokenizer_config.json chat_template.jinja config.json generation_config.json"
).split()
PROBE_SECONDS = 3.0
_DOWNLOADED: dict[str, str] = {}


class Snapshot(NamedTuple):
    """A model's files of one commit.

    Attributes:
        revision: the commit's hash.
    """

    folder: Path
    revision: str

    def name(self, model_id: str) -> str:
        """What was downloaded, as ``run.json`` records it."""
        return f"{model_id}@{self.revision} of the hub"


def command(model_id: str) -> str:
    """The command that fetches a model's tokenizer into the hub's cache."""
    return f"hf download {model_id} {' '.join(FILES)}"


def cached(model_id: str, revision: str | None = None) -> Snapshot | None:
    """The cached snapshot that has the model's tokenizer, without touching the network."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(model_id, "tokenizer.json", revision=revision)
    return Snapshot(Path(path).parent, Path(path).parent.name) if isinstance(path, str) else None


def is_offline() -> bool:
    """Whether ``HF_HUB_OFFLINE`` forbids requests to the hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def silent() -> str:
    """Why the hub gives nothing, for an error."""
    return "HF_HUB_OFFLINE forbids to ask the hub" if is_offline() else "the hub does not answer"


def answers() -> bool:
    """Whether requests are allowed, and the hub answers within ``PROBE_SECONDS``."""
    if is_offline():
        return False
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except Exception:  # every failure of every HTTP backend means that the hub is not reachable
        return False
    return True


def download(model_id: str, revision: str | None = None) -> Snapshot | None:
    """Fetch the model's tokenizer files; None when the hub cannot be reached.

    Raises:
        ModelError: the hub answers, but has no such model or revision, or forbids access to it.
    """
    if not answers():
        return None
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(model_id, revision=revision, allow_patterns=list(FILES))
    except errors.GatedRepoError as error:
        raise ModelError(
            f"The hub shows {model_id!r} only to those who accepted its licence.",
            f"Accept it on the model's page and log in with: hf auth login ({error}).",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"The hub has no model {model_id!r}.", "Check its name.") from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(
            f"The hub's {model_id!r} has no revision {revision!r}.", "Check the name after the @."
        ) from error
    except errors.HfHubHTTPError as error:
        raise ModelError(
            f"The hub refuses {model_id!r}: {error}.", "Log in with: hf auth login"
        ) from error
    return Snapshot(Path(folder), Path(folder).name)


def note_download(tokenizer_json: bytes, what: str) -> None:
    """Remember what was downloaded for a tokenizer: a model is looked for several times in a build,
    and only the first time finds it missing."""
    _DOWNLOADED[hashlib.sha256(tokenizer_json).hexdigest()] = what


def downloaded(tokenizer_json: bytes) -> str | None:
    """What this process has downloaded for a tokenizer, for ``run.json``; None: nothing."""
    return _DOWNLOADED.get(hashlib.sha256(tokenizer_json).hexdigest()) if _DOWNLOADED else None


def found(
    model_ids: Sequence[str], revision: str | None = None, *, fetch: bool
) -> tuple[str, Snapshot, str] | None:
    """The first of some models that is cached, or else that the hub gives: its id, its files and
    where they come from."""
    for model_id in model_ids:
        if snapshot := cached(model_id, revision):
            return model_id, snapshot, "hub cache"
    for model_id in model_ids if fetch else ():
        if snapshot := download(model_id, revision):
            note_download(claims.tokenizer_json(snapshot.folder), snapshot.name(model_id))
            return model_id, snapshot, "hub"
    return None


def _require_file(profile: ModelProfile, content: bytes, model_id: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if profile.file_sha256 not in (None, digest):
        raise ModelError(
            f"{profile.name}: the hub's tokenizer.json is not the one that the profile was "
            f"written for (sha256 {digest[:12]}, not {str(profile.file_sha256)[:12]}).",
            f"To use it with its own template, use --model {model_id}.",
        )


def find(profile: ModelProfile, *, fetch: bool) -> tuple[ModelProfile, bytes, str]:
    """The profile with its commit, the bytes of its tokenizer, and their source.

    Args:
        fetch: whether the hub may be asked.

    Raises:
        ModelError: the tokenizer is not available, and the message says which command fetches it;
            or the file has another hash than the profile's.
    """
    available = found(profile.model_ids, fetch=fetch)
    if available is None:
        raise _missing(profile, fetch)
    model_id, snapshot, source = available
    content = claims.tokenizer_json(snapshot.folder)
    _require_file(profile, content, model_id)
    return replace(profile, revision=snapshot.revision), content, source


def _missing(profile: ModelProfile, fetch: bool) -> ModelError:
    what = f"{profile.name}: its tokenizer is not available: no installed package carries it, "
    if not profile.model_ids:
        return ModelError(
            f"{what}and it names no model of the ",
            "Say in the profile where it is: tokenizer = './dir'.",
        )
    get = command(profile.model_ids[0])
    if fetch:
        return ModelError(
            f"{what}and {silent()}.",
            f"Where there is a network, run: {get}. Or give --model a directory that has it.",
        )
    return ModelError(
        f"{what}and the hub's cache does not have it.",
        f"Add --fetch to get it from the hub, or run: {get}. Or give --model a directory that "
        "has it.",
    )
