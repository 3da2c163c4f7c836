"""Tokenizers of profiles that no installed package contains: from the hub's cache, or with
``--fetch`` from the hub.

Where the profile has the hash of the file, the file must have it; ``bind`` checks the ids that the
profile declares.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from stages.errors import ModelError
from stages.models.profile import ModelProfile
from stages.tokenizers import directory, downloads, hub


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
    for model_id in profile.model_ids:
        snapshot = hub.cached(model_id)
        if snapshot is not None:
            return _checked(profile, snapshot, model_id, "hub cache")
    for model_id in profile.model_ids if fetch else ():
        snapshot = hub.download(model_id)
        if snapshot is not None:
            found = _checked(profile, snapshot, model_id, "hub")
            downloads.note(found[1], snapshot.name(model_id))
            return found
    raise _missing(profile, fetch)


def _checked(
    profile: ModelProfile, snapshot: hub.Snapshot, model_id: str, source: str
) -> tuple[ModelProfile, bytes, str]:
    content = directory.tokenizer_json(snapshot.folder)
    _require_file(profile, content, model_id)
    return replace(profile, revision=snapshot.revision), content, source


def _missing(profile: ModelProfile, fetch: bool) -> ModelError:
    what = f"{profile.name}: its tokenizer is not available: no installed package carries it, "
    if not profile.model_ids:
        return ModelError(
            f"{what}and it names no model of the hub.",
            "Say in the profile where it is: tokenizer = './dir'.",
        )
    get = hub.command(profile.model_ids[0])
    if fetch:
        return ModelError(
            f"{what}and {hub.silent()}.",
            f"Where there is a network, run: {get}. Or give --model a directory that has it.",
        )
    return ModelError(
        f"{what}and the hub's cache does not have it.",
        f"Add --fetch to get it from the hub, or run: {get}. Or give --model a directory that "
        "has it.",
    )
