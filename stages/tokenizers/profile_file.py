"""A profile as a TOML file: every field of ModelProfile, read by its type, checked by name.

``like`` copies another profile's fields; ``tokenizer`` says where the tokenizer is (a directory
next to the file, a profile's name or a hub id). Instead of the source of a template,
``chat_template_file`` names a file next to it, and ``template`` one of the built-in templates.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.errors import ModelError
from stages.files import regular, toml_file
from stages.models.profile import ModelProfile
from stages.profiles import all_profiles, template, templates

_BESIDE = ("like", "tokenizer", "chat_template_file", "template")
_CHOICES = {"padding_side": ("left", "right"), "bos_policy": ("none", "template")}
_POSITIVE = ("vocab_size", "embedding_size", "context_length")
_KINDS = {str: "a string", int: "an integer", bool: "true or false"}
_OPTIONAL = (types.UnionType, typing.Union)
_PAIRS = 2  # a tuple of (key, value) is written as a table


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _wrong(where: str, wanted: str, value: Any) -> ModelError:
    return ModelError(f"{where} must be {wanted}, not {value!r}.", "Correct that key.")


def _read(where: str, hint: Any, value: Any) -> Any:
    """A TOML value as a field's type."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in _OPTIONAL:
        return _read(where, next(a for a in arguments if a is not types.NoneType), value)
    if dataclasses.is_dataclass(hint):
        return _dataclass(where, typing.cast(type, hint), value)
    if hint is object:
        return value
    if typing.get_origin(hint) is tuple:
        item = arguments[0]
        pair = typing.get_args(item)
        if len(pair) == _PAIRS and pair[1] is not Ellipsis:
            if not isinstance(value, Mapping):
                raise _wrong(where, "a table", value)
            return tuple((key, _read(f"{where}.{key}", pair[1], v)) for key, v in value.items())
        if not isinstance(value, list):
            raise _wrong(where, "an array", value)
        return tuple(_read(f"{where}[{i}]", item, v) for i, v in enumerate(value))
    if type(value) is not hint:
        raise _wrong(where, _KINDS[hint], value)
    return value


def _known(where: str, keys: Mapping[str, Any], known: list[str]) -> None:
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=2)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
            raise ModelError(f"{where}: there is no key {key!r}.", hint)


def _dataclass(where: str, kind: type, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(where, "a table", value)
    hints = _hints(kind)
    _known(where, value, list(hints))
    fields = dataclasses.fields(kind)
    _require(where, value, [f.name for f in fields if _required(f)])
    return kind(**{key: _read(f"{where}.{key}", hints[key], v) for key, v in value.items()})


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _require(where: str, keys: Mapping[str, Any], wanted: list[str]) -> None:
    missing = [key for key in wanted if key not in keys]
    if missing:
        raise ModelError(
            f"{where} has no {', '.join(missing)}.", "See docs/profiles.md for what each means."
        )


def _content(path: Path) -> dict[str, Any]:
    try:
        return toml_file.read(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not TOML: {error}.", "Correct that line.") from error


def _template(path: Path, keys: dict[str, Any]) -> None:
    """Replace the name of a template or of its file by its source."""
    ways = [key for key in ("chat_template", "chat_template_file", "template") if key in keys]
    if len(ways) > 1:
        raise ModelError(f"{path} gives {' and '.join(ways)}.", "Give one template.")
    for key in ways:
        if not isinstance(keys[key], str):
            raise _wrong(f"{path}: {key}", "a string", keys[key])
    if "template" in keys:
        name = keys.pop("template")
        if name not in templates():
            raise _wrong(f"{path}: template", " or ".join(templates()), name)
        keys["chat_template"] = template(name)
    named = keys.pop("chat_template_file", None)
    if named is None:
        return
    try:
        keys["chat_template"] = (
            regular.required(path.parent / named).read_text("utf-8").removesuffix("\n")
        )
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{path}: chat_template_file {named!r} cannot be read: {error}.",
            "Its path starts at the profile's directory.",
        ) from error


def _check(path: Path, profile: ModelProfile) -> None:
    for key, allowed in _CHOICES.items():
        if getattr(profile, key) not in allowed:
            raise _wrong(f"{path}: {key}", " or ".join(allowed), getattr(profile, key))
    for key in _POSITIVE:
        if getattr(profile, key) <= 0:
            raise _wrong(f"{path}: {key}", "above 0", getattr(profile, key))
    if profile.embedding_size < profile.vocab_size:
        what = f"at least vocab_size ({profile.vocab_size})"
        raise _wrong(f"{path}: embedding_size", what, profile.embedding_size)
    if profile.bos_policy == "template" and profile.bos_token is None:
        raise ModelError(
            f"{path}: bos_policy 'template' needs a bos_token.", "Name the token that it prints."
        )


def load(path: Path) -> tuple[ModelProfile, str | None]:
    """A profile, and where its tokenizer is, if the file says so.

    Raises:
        ModelError: the file cannot be read, or one of its keys is wrong; the message names it.
    """
    keys = _content(path)
    hints = _hints(ModelProfile)
    _known(str(path), keys, [*hints, *_BESIDE])
    like, tokenizer = keys.pop("like", None), keys.pop("tokenizer", None)
    _template(path, keys)
    keys.setdefault("name", path.stem)
    for key, value in (("like", like), ("tokenizer", tokenizer)):
        if value is not None and not isinstance(value, str):
            raise _wrong(f"{path}: {key}", "a string", value)
    read = {key: _read(f"{path}: {key}", hints[key], value) for key, value in keys.items()}
    if like is not None:
        if like not in all_profiles():
            raise ModelError(
                f"{path}: like names no profile: {like!r}.", "See: pipeline list models."
            )
        profile = dataclasses.replace(all_profiles()[like], **read)
    else:
        read.setdefault("model_ids", ())
        wanted = [f.name for f in dataclasses.fields(ModelProfile) if _required(f)]
        _require(str(path), read, wanted)
        profile = ModelProfile(**read)
    if tokenizer is not None:
        profile = dataclasses.replace(profile, ranks=None)
    _check(path, profile)
    return profile, tokenizer
