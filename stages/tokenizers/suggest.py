"""Errors for unknown models, with the nearest names and what to do.

Names and hub ids must match exactly: two models of one architecture can have different templates,
so a similar name is only suggested.
"""

from __future__ import annotations

from pathlib import Path

from stages import catalog
from stages.errors import ModelError
from stages.models.profile import ModelProfile
from stages.profiles import all_profiles, find
from stages.tokenizers import hub

_WRITE = "For another model write a profile: --model ./profile.toml (see docs/profiles.md)"


def known_as(folder: Path, name: str) -> ModelProfile | None:
    """The profile of a model directory, by its exact name: ``gemma-2-9b-it``,
    ``google/gemma-2-9b-it``, or a snapshot in the hub's cache."""
    parts = folder.resolve().parts
    cached = [p.removeprefix("models--").replace("--", "/") for p in parts if "models--" in p]
    for candidate in (name, *cached, "/".join(parts[-2:]), parts[-1] if parts else ""):
        profile = find(candidate)
        if profile is not None:
            return profile
    return None


def unknown_name(name: str) -> ModelError:
    """The error for a name that no profile has."""
    error = catalog.unknown("model", name, sorted(all_profiles()))
    return ModelError(
        error.what, f"{error.remedy} A directory needs a path separator (./dir). {_WRITE}."
    )


def unknown_id(model_id: str, revision: str = "", *, fetch: bool) -> ModelError:
    """The error for a hub id that is not cached; ``fetch``: and that the hub did not give."""
    known = {i: profile.name for profile in all_profiles().values() for i in profile.model_ids}
    import difflib

    near = difflib.get_close_matches(model_id, sorted(known), n=3, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    at = f" --revision {revision}" if revision else ""
    get = f"{hub.command(model_id)}{at}"
    silent = f", {hub.silent()}" if fetch else ""
    way = f"Fetch it where there is a network ({get})" if fetch else f"Add --fetch (or run: {get})"
    return ModelError(
        f"{model_id!r} is not in the hub's cache{silent}, and no profile has this name.",
        f"{hint}{way}, or give --model a directory with its tokenizer. {_WRITE}.",
    )
