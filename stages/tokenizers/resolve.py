"""From what ``--model`` says to a profile and the bytes of its tokenizer.

A profile's bytes are pinned by their hash, so where they come from cannot change an id; they are
taken from whatever is at hand without the network. A profile without such bytes takes its
tokenizer from the hub and checks the ids that it declares. ``org/name``, or ``org/name@revision``,
is looked up in the hub's cache, then on the hub, and is built in when neither has it and a
profile knows it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from stages import catalog
from stages.errors import ModelError
from stages.profile import ModelProfile
from stages.profiles import all_profiles, find
from stages.tokenizers import builtin, directory, hub


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the user puts in a profile's place."""

    chat_template: str | None = None
    eos: str | None = None
    date: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A profile, its tokenizer's bytes, and where they were found."""

    profile: ModelProfile
    tokenizer_json: bytes
    source: str


def _pinned(profile: ModelProfile, cache: Path) -> Found:
    if profile.ranks is None:
        return _from_hub(profile)
    return Found(profile, builtin.tokenizer_json(profile, profile.ranks, cache), "built-in")


def _from_hub(profile: ModelProfile) -> Found:
    """The tokenizer of a profile that no package carries; binding checks its ids."""
    for source, fetch in (("hub cache", hub.cached), ("hub", hub.download)):
        for model_id in profile.model_ids:
            snapshot = fetch(model_id)
            if snapshot is not None and (snapshot.folder / "tokenizer.json").is_file():
                content = (snapshot.folder / "tokenizer.json").read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                if profile.file_sha256 not in (None, digest):
                    raise ModelError(
                        f"{profile.name}: the hub's tokenizer.json is not the one that the profile "
                        f"was written for ({digest[:12]} instead of {profile.file_sha256[:12]}).",
                        f"To use it with its own template, say --model {model_id}.",
                    )
                return Found(replace(profile, revision=snapshot.revision), content, source)
    known = profile.model_ids[0] if profile.model_ids else profile.name
    raise ModelError(
        f"{profile.name}: no installed package carries this tokenizer, it is not in the hub's "
        "cache, and the hub does not answer.",
        f"Fetch it where there is a network: {hub.command(known)}",
    )


def _in_hub_cache(profile: ModelProfile) -> Found | None:
    """The vendor's file from the hub's cache, when it is there and is the pinned one."""
    root = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface")) / "hub"
    root = Path(os.environ.get("HF_HUB_CACHE", root))
    for model_id in profile.model_ids:
        if not (root / f"models--{model_id.replace('/', '--')}").is_dir():
            continue  # saves importing the hub's client
        snapshot = hub.cached(model_id)
        if snapshot is None or profile.ranks is None:
            continue
        content = (snapshot.folder / "tokenizer.json").read_bytes()
        if hashlib.sha256(content).hexdigest() == profile.ranks.sha256:
            return Found(profile, content, "hub cache")
    return None


def _override(found: Found, overrides: Overrides) -> Found:
    profile = found.profile
    if overrides.chat_template is not None:
        profile = replace(profile, chat_template=overrides.chat_template)
    if overrides.eos is not None:
        stops = dict.fromkeys((overrides.eos, *profile.generation_eos))
        profile = replace(
            profile,
            end_of_turn=overrides.eos,
            eos_token=overrides.eos,
            generation_eos=tuple(stops),
        )
    if overrides.date is not None:
        profile = replace(profile, date_string=overrides.date)
    return replace(found, profile=profile)


def _by_id(model: str, cache: Path, overrides: Overrides) -> Found:
    name, _, revision = model.partition("@")
    known = None if revision else find(name)
    for source, fetch in (("hub cache", hub.cached), ("hub", hub.download)):
        snapshot = fetch(name, revision or None)
        if snapshot is not None:
            profile, content = directory.load(
                snapshot.folder, name, overrides.chat_template, overrides.eos
            )
            return Found(replace(profile, revision=snapshot.revision), content, source)
    if known is not None:
        return _pinned(known, cache)
    at = f" --revision {revision}" if revision else ""
    raise ModelError(
        f"{model!r} is not in the hub's cache, the hub does not answer, and no profile knows it.",
        f"Fetch it where there is a network ({hub.command(name)}{at}), or "
        "give --model a directory with its tokenizer.",
    )


def resolve(model: str, cache: Path, overrides: Overrides) -> Found:
    """Find a model.

    Raises:
        ModelError: there is no such profile, directory or hub model.
    """
    profiles = all_profiles()
    if model in profiles:
        found = _in_hub_cache(profiles[model]) or _pinned(profiles[model], cache)
    elif model.startswith((".", os.sep, "~")) or model.endswith(os.sep) or model.count("/") > 1:
        folder = Path(model).expanduser()
        if not folder.is_dir():
            raise ModelError(f"There is no model directory {model!r}.", "Check the path.")
        declared = directory.load(folder, folder.name, overrides.chat_template, overrides.eos)
        found = Found(*declared, "directory")
    elif model.count("/") == 1:
        if Path(model).is_dir():
            declared = directory.load(Path(model), model, overrides.chat_template, overrides.eos)
            found = Found(*declared, "directory")
        else:
            found = _by_id(model, cache, overrides)
    else:
        error = catalog.unknown("model", model, sorted(profiles))
        raise ModelError(error.what, f"{error.remedy} A directory needs a path separator (./dir).")
    return _override(found, overrides)
