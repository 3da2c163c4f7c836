"""Tokenizers of profiles that no installed package contains: from the hub's cache, else the hub.

Where the profile has the hash of the file, the file must have it; ``bind`` checks the ids that the
profile declares.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from stages.errors import ModelError
from stages.models.profile import ModelProfile
from stages.tokenizers import directory, hub


def _require_file(profile: ModelProfile, content: bytes, model_id: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if profile.file_sha256 not in (None, digest):
        raise ModelError(
            f"{profile.name}: the hub's tokenizer.json is not the one that the profile was "
            f"written for (sha256 {digest[:12]}, not {str(profile.file_sha256)[:12]}).",
            f"To use it with its own template, use --model {model_id}.",
        )


def find(profile: ModelProfile) -> tuple[ModelProfile, bytes, str]:
    """The profile with its commit, the bytes of its tokenizer, and their source.

    Raises:
        ModelError: the tokenizer is not available, and the message says which command fetches it;
            or the file has another hash than the profile's.
    """
    for source, fetch in (("hub cache", hub.cached), ("hub", hub.download)):
        for model_id in profile.model_ids:
            snapshot = fetch(model_id)
            if snapshot is not None:
                content = directory.tokenizer_json(snapshot.folder)
                _require_file(profile, content, model_id)
                return replace(profile, revision=snapshot.revision), content, source
    get = hub.command(profile.model_ids[0]) if profile.model_ids else ""
    raise ModelError(
        f"{profile.name}: its tokenizer is not available: no installed package carries it, and the "
        "hub does not answer.",
        f"Where there is a network, run: {get}. Or give --model a directory that has it."
        if get
        else "Say in the profile where it is: tokenizer = './dir'.",
    )
