"""Tokenizers of profiles that no installed package carries: the hub's cache, then the hub.

What is found is not pinned by its hash; binding checks the ids that the profile declares.
"""

from __future__ import annotations

from stages.errors import ModelError
from stages.profile import ModelProfile
from stages.tokenizers import directory, hub


def find(profile: ModelProfile) -> tuple[bytes, str]:
    """The bytes of a profile's tokenizer, and where they were found.

    Raises:
        ModelError: it is not at hand; the message says which command gets it.
    """
    for source, fetch in (("hub cache", hub.cached), ("hub", hub.download)):
        for model_id in profile.model_ids:
            folder = fetch(model_id)
            if folder is not None:
                return directory.tokenizer_json(folder), source
    files = "tokenizer.json tokenizer_config.json config.json"
    get = f"hf download {profile.model_ids[0]} {files}" if profile.model_ids else ""
    raise ModelError(
        f"{profile.name}: its tokenizer is not at hand: no installed package carries it, and the "
        "hub does not answer.",
        f"Where there is a network, run: {get}. Or give --model a directory that has it."
        if get
        else "Say in the profile where it is: tokenizer = './dir'.",
    )
