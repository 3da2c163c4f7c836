"""From what ``--model`` says to a profile and the bytes of its tokenizer.

The tokenizer of most profiles is pinned by its hash, so its source cannot change an id; it is taken
from where no network is needed. Other profiles take their tokenizer from the hub and check the ids
that they declare. ``org/name``, or ``org/name@revision``, is looked up in the hub's cache, then,
with ``--fetch``, on the hub; where neither has it, the built-in profile of that name is used.
Nothing is downloaded without ``--fetch``.

Names and hub ids must match exactly: two models of one architecture can have different templates,
so a similar name is only suggested.

A token that the user adds (``--add-token``) is one id wherever its text occurs. It is an ordinary
added token, not a special one: text is meant to become it, and the rule that no text becomes a
control token still holds.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stages import catalog, encoders
from stages.errors import ModelError, UsageError, did_you_mean
from stages.files import file_hash
from stages.profile import ModelProfile, StepTokens
from stages.tokenizers import builtin, claims, hub, profiles

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WRITE = "For another model write a profile: --model ./profile.toml (see docs/profiles.md)"


class Overrides(NamedTuple):
    """Values of options that replace those of the profile."""

    chat_template: str | None = None
    eos: str | None = None
    date: str | None = None
    added_tokens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolved:
    """A profile, its tokenizer's bytes, and their source.

    Attributes:
        repairs: values of the model's own files that the profile does not use.
    """

    profile: ModelProfile
    tokenizer_json: bytes
    source: str
    repairs: tuple[claims.Repair, ...] = ()


def _pinned(profile: ModelProfile, cache: Path, fetch: bool) -> Resolved:
    layout = profile.ranks
    if layout is None:
        return Resolved(*hub.find(profile, fetch=fetch))
    content = builtin.tokenizer_json(profile, layout, cache, fetch=fetch)
    return Resolved(profile, content, "built-in")


def _in_hub_cache(profile: ModelProfile) -> Resolved | None:
    """The vendor's file from the hub's cache, if it is there and has the pinned hash."""
    root = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface")) / "hub"
    root = Path(os.environ.get("HF_HUB_CACHE", root))
    for model_id in profile.model_ids:
        if not (root / f"models--{model_id.replace('/', '--')}").is_dir():
            continue  # without importing the hub's client, which is slow
        snapshot = hub.cached(model_id)
        if snapshot is None or profile.ranks is None:
            continue
        content = (snapshot.folder / "tokenizer.json").read_bytes()
        if hashlib.sha256(content).hexdigest() == profile.ranks.sha256:
            return Resolved(profile, content, "hub cache")
    return None


def _override(model: Resolved, overrides: Overrides) -> Resolved:
    profile = model.profile
    if overrides.chat_template is not None:
        profile = replace(profile, chat_template=overrides.chat_template, end_of_call=None)
    if overrides.eos is not None:
        stops = dict.fromkeys((overrides.eos, *profile.generation_eos))
        profile = replace(
            profile, end_of_turn=overrides.eos, eos_token=overrides.eos, generation_eos=tuple(stops)
        )
    if profile != profiles.named(profile.name):  # which says what ends its turns
        profile = _with_ends(profile, model.tokenizer_json)
    if overrides.chat_template is not None:
        profile = _with_template(profile)
    if overrides.date is not None:
        profile = replace(profile, date_string=overrides.date)
    profile = register_added(profile, model.tokenizer_json, overrides.added_tokens)
    return replace(model, profile=profile)


def _with_ends(profile: ModelProfile, tokenizer_json: bytes) -> ModelProfile:
    """The profile with the token that ends turns of calls in its template, where it names none."""
    from stages.chat_template import turn_ends
    from stages.chat_template.render import template_of_profile
    from stages.chat_template.segments import controls_pattern

    if profile.pair is not None or profile.end_of_call is not None:
        return profile
    added = encoders.parsed(tokenizer_json).get_added_tokens_decoder().values()
    controls = [token.content for token in added if token.special]
    pattern = controls_pattern([*controls, *profile.promoted, profile.end_of_turn])
    template, stops = template_of_profile(profile), profile.generation_eos
    end = turn_ends.of_calls(template, pattern, profile.end_of_turn, stops)
    return replace(profile, end_of_call=end)


def _with_template(profile: ModelProfile) -> ModelProfile:
    """The profile of another chat template, with what is seen of that."""
    from stages.chat_template import ways
    from stages.chat_template.render import template_of_profile

    if profile.pair is not None:
        return profile
    template = template_of_profile(profile)
    return replace(
        profile,
        template_variants=ways.variants(template),
        one_example_per_turn=ways.rewrites(template, profile.ends),
    )


def _by_id(model: str, cache: Path, overrides: Overrides, fetch: bool) -> Resolved:
    name, _, revision = model.partition("@")
    known = None if revision else profiles.find(name)
    found = hub.found([name], revision or None, fetch=fetch)
    if found is not None:
        _, snapshot, source = found
        declared = _declared(snapshot.folder, name, overrides, source=source)
        return replace(declared, profile=replace(declared.profile, revision=snapshot.revision))
    if known is not None:
        return _pinned(known, cache, fetch)
    raise unknown_id(name, revision, fetch=fetch)


def _declared(folder: Path, name: str, overrides: Overrides, source: str) -> Resolved:
    """A model from its own files; where a profile knows the model, its token ids are required."""
    from stages.tokenizers import directory

    file_hash.require_all(folder)
    try:
        source_of = overrides.chat_template
        declared = directory.load_encoder(folder, name, source_of)
        profile, content = declared or directory.load(folder, name, source_of, overrides.eos)
        profile = _with_steps(profile, encoders.parsed(content))
        own_claims = claims.read(folder)
        repaired = claims.repairs(own_claims, profile, content, own_eos=bool(overrides.eos))
    except Exception as error:
        if type(error) is not Exception:  # the tokenizer library raises this class, our bugs others
            raise
        reason = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{folder} is not a model that can be read: {reason}.",
            "Compare its JSON files with those of the model's page, or fetch it again.",
        ) from error
    known = known_as(folder, name)
    if known is not None:
        profile = replace(profile, token_ids=known.token_ids)
    return Resolved(profile, content, source=source, repairs=repaired)


def _with_steps(profile: ModelProfile, tokenizer: "Tokenizer") -> ModelProfile:
    """The profile of a directory with the step tokens of the built-in one whose turns end so and
    whose step tokens its tokenizer has, added ones before words of the vocabulary: no file of a
    model names any."""
    usual, added = StepTokens(), tokenizer.get_added_tokens_decoder().values()
    named = profiles.ending_in(profile.end_of_turn)
    own = {one.step_tokens: {*one.step_tokens} - {*usual} for one in named}
    found = [one for one in own if own[one] and None not in map(tokenizer.token_to_id, own[one])]
    specials = {token.content: token.special for token in added}
    steps = max(found, key=lambda one: own[one] <= specials.keys(), default=usual)
    marks = [token for token in steps if not specials.get(token, True)]
    return replace(profile, step_tokens=steps, promoted=(*profile.promoted, *marks))


def _file(path: Path, cache: Path, fetch: bool) -> Resolved:
    """A profile file, and the tokenizer that it names."""
    profile, tokenizer = profiles.load(path)
    if tokenizer is None:
        return _pinned(profile, cache, fetch)
    folder = path.parent / Path(tokenizer).expanduser()
    if folder.is_dir():
        file_hash.require_all(folder)
        return Resolved(profile, claims.tokenizer_json(folder), "directory")
    if tokenizer.startswith((".", os.sep, "~")) or tokenizer.endswith(".toml"):
        raise ModelError(
            f"{path}: tokenizer {tokenizer!r} is not a directory next to it.",
            "Name a directory with a tokenizer.json, a profile or a hub id.",
        )
    template = Overrides(chat_template=profile.chat_template)
    return replace(resolve(tokenizer, cache, template, fetch=fetch), profile=profile)


def resolve(model: str, cache: Path, overrides: Overrides, *, fetch: bool = False) -> Resolved:
    """Find a model.

    Args:
        fetch: whether a tokenizer that is not on this machine may be downloaded.

    Raises:
        ModelError: there is no such profile, directory or hub model.
    """
    require_known(model)
    known = profiles.named(model)
    if model.endswith(".toml"):
        resolved = _file(Path(model).expanduser(), cache, fetch)
    elif known is not None:
        resolved = _in_hub_cache(known) or _pinned(known, cache, fetch)
    elif _is_path(model):
        folder = Path(model).expanduser()
        resolved = _declared(folder, folder.name, overrides, source="directory")
    elif Path(model).is_dir():
        resolved = _declared(Path(model), model, overrides, source="directory")
    else:
        resolved = _by_id(model, cache, overrides, fetch)
    return _override(resolved, overrides)


def _is_path(model: str) -> bool:
    return model.startswith((".", os.sep, "~")) or model.endswith(os.sep) or model.count("/") > 1


def require_known(model: str) -> bool:
    """Whether a model is a name that a profile has, or a path; else it is a hub id.

    Raises:
        ModelError: it is none of these, or there is no such directory.
    """
    if model.endswith(".toml") or profiles.named(model) is not None:
        return True
    if "/" not in model.rstrip("/") and not _is_path(model):
        raise unknown_name(model)
    if _is_path(model) and not Path(model).expanduser().is_dir():
        raise ModelError(f"There is no model directory {model!r}.", "Check the path.")
    return _is_path(model) or Path(model).is_dir()


def known_as(folder: Path, name: str) -> ModelProfile | None:
    """The profile of a model directory, by its exact name: ``gemma-2-9b-it``,
    ``google/gemma-2-9b-it``, or a snapshot in the hub's cache."""
    parts = folder.resolve().parts
    cached = [p.removeprefix("models--").replace("--", "/") for p in parts if "models--" in p]
    names = (name, *cached, "/".join(parts[-2:]), "".join(parts[-1:]))
    return next(filter(None, map(profiles.find, names)), None)


def unknown_name(name: str) -> ModelError:
    """The error for a name that no profile has."""
    error = catalog.unknown("model", name, sorted(profiles.all_profiles()))
    return ModelError(
        error.what, f"{error.remedy} A directory needs a path separator (./dir). {_WRITE}."
    )


def unknown_id(model_id: str, revision: str = "", *, fetch: bool) -> ModelError:
    """The error for a hub id that is not cached; ``fetch``: and that the hub did not give."""
    known = {i for profile in profiles.all_profiles().values() for i in profile.model_ids}
    at = f" --revision {revision}" if revision else ""
    get = f"{hub.command(model_id)}{at}"
    silent = f", {hub.silent()}" if fetch else ""
    way = f"Fetch it where there is a network ({get})" if fetch else f"Add --fetch (or run: {get})"
    return ModelError(
        f"{model_id!r} is not in the hub's cache{silent}, and no profile has this name.",
        did_you_mean(
            model_id,
            sorted(known),
            f"{way}, or give --model a directory with its tokenizer. {_WRITE}.",
        ),
    )


def _problem(text: str, name: str, controls: Sequence[str]) -> str | None:
    """Why a text cannot be a token of its own, as a clause."""
    if not text or text != text.strip():
        return "is empty, or begins or ends in whitespace"
    if text in controls:
        return f"is a control token of {name} already"
    inside = next((token for token in controls if token in text), None)
    return None if inside is None else f"holds the control token {inside!r}"


def register_added(
    profile: ModelProfile, tokenizer_json: bytes, wanted: tuple[str, ...]
) -> ModelProfile:
    """The profile with those of the wanted tokens that the tokenizer does not have yet.

    Raises:
        UsageError: a text cannot be a token of its own.
    """
    if not (wanted or profile.added_tokens):
        return profile
    tokenizer = encoders.parsed(tokenizer_json)
    known = {t.content: t.special for t in tokenizer.get_added_tokens_decoder().values()}
    controls = [text for text, special in known.items() if special]
    for text in wanted:
        problem = _problem(text, profile.name, controls)
        if problem is not None:
            raise UsageError(
                f"--add-token {text!r} {problem}.", "Give another text, such as <search>."
            )
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if text not in known and (tokenizer.token_to_id(text) is not None or len(ids) == 1):
            raise UsageError(
                f"--add-token {text!r} is one token of {profile.name} already, a word of its "
                "vocabulary.",
                "Leave it out. Its string can be a stop all the same: see the option --stop.",
            )
    new = dict.fromkeys(text for text in (*profile.added_tokens, *wanted) if text not in known)
    return replace(profile, added_tokens=tuple(new))
