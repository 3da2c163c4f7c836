"""Profiles of models: a TOML file a family here, users' own files, and those of other packages.

A file gives fields of ``ModelProfile`` by name; each is read by its type. ``like`` starts from the
fields of another profile, or of a file beside this one. ``models`` is an array of tables, a model
each: keys above it hold for all of them. ``tokenizer`` says where the tokenizer is (a directory
beside the file, a profile's name or a hub id). Instead of the source of a template,
``chat_template_file`` names a file beside this one, and ``template`` one of ours.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages import catalog
from stages.errors import ModelError, did_you_mean
from stages.files import file_hash, toml_file
from stages.profile import AddedToken, ModelProfile

MEMBERS: dict[str, str] = {}  # ours are files of TOML
FOLDER = Path(__file__).parents[1] / "profiles"
_TEMPLATES = FOLDER / "chat_templates"
_BESIDE = ("like", "tokenizer", "chat_template_file", "template")
_CHOICES = {"padding_side": ("left", "right"), "bos_policy": ("none", "template", "turns")}
_POSITIVE = ("vocab_size", "embedding_size", "context_length")
_KINDS = {str: "a string", int: "an integer", bool: "true or false"}
_OPTIONAL = (types.UnionType, typing.Union)
_PAIRS = 2  # a tuple of (key, value) is written as a table
_NUMBERS = re.compile(r"\{(\d{1,6})\.\.(\d{1,6})\}")

Fields: typing.TypeAlias = dict[str, Any]  # values of ModelProfile by name, and ``tokenizer``


@functools.cache
def templates() -> tuple[str, ...]:
    """The names of our chat templates."""
    return tuple(sorted(path.stem for path in _TEMPLATES.glob("*.jinja")))


@functools.cache
def template(name: str) -> str:
    """The source of one of our chat templates."""
    return (_TEMPLATES / f"{name}.jinja").read_text("utf-8").removesuffix("\n")


@functools.cache
def own_families() -> dict[str, str]:
    """The text of each of our files, by its name."""
    return {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.toml"))}


@functools.cache
def own_family(name: str) -> tuple[ModelProfile, ...]:
    """The profiles of one of our files, in their order."""
    return models_of(FOLDER / f"{name}.toml")


def _ours(mention: str = "") -> dict[str, ModelProfile]:
    """Profiles of those of our files that mention a text; the others are not parsed."""
    texts = own_families().items()
    return {p.name: p for name, text in texts if mention in text for p in own_family(name)}


def _foreign() -> dict[str, ModelProfile]:
    """Profiles of other packages."""
    families = [catalog.load(__name__, name, "PROFILES") for name in catalog.names(__name__)]
    return {profile.name: profile for family in families for profile in family}


def all_profiles() -> dict[str, ModelProfile]:
    """Every known profile by name; a name of ours means ours."""
    return _foreign() | _ours()


def named(name: str) -> ModelProfile | None:
    """The profile with exactly this name."""
    return _ours(f'"{name}"').get(name) or _foreign().get(name)


def find(name: str) -> ModelProfile | None:
    """The profile with exactly this name, or with exactly this hub id."""
    profiles = _foreign() | _ours(f'"{name}"')
    return profiles.get(name) or next((p for p in profiles.values() if name in p.model_ids), None)


def ending_in(token: str) -> list[ModelProfile]:
    """The profiles whose turns end in a token."""
    known = _foreign() | _ours(f'"{token}"')
    return [profile for profile in known.values() if profile.end_of_turn == token]


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _wrong(where: str, wanted: str, value: Any) -> ModelError:
    return ModelError(f"{where} must be {wanted}, not {value!r}.", "Correct that key.")


def _read(where: str, hint: Any, value: Any) -> Any:
    """A TOML value as a field's type."""
    if hint in _KINDS:
        if type(value) is not hint:
            raise _wrong(where, _KINDS[hint], value)
        return value
    if hint is object:
        return value
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in _OPTIONAL:
        return _read(where, next(a for a in arguments if a is not types.NoneType), value)
    if dataclasses.is_dataclass(hint):
        return _dataclass(where, typing.cast(type, hint), value)
    item = arguments[0]  # of a tuple
    pair = typing.get_args(item)
    if len(pair) == _PAIRS and pair[1] is not Ellipsis:
        if not isinstance(value, Mapping):
            raise _wrong(where, "a table", value)
        return tuple((key, _read(f"{where}.{key}", pair[1], v)) for key, v in value.items())
    if not isinstance(value, list):
        raise _wrong(where, "an array", value)
    read = _added_tokens if item is AddedToken else _one
    return tuple(x for i, v in enumerate(value) for x in read(f"{where}[{i}]", item, v))


def _one(where: str, hint: Any, value: Any) -> list[Any]:
    return [_read(where, hint, value)]


def _added_tokens(where: str, kind: Any, value: Any) -> list[AddedToken]:
    """Tokens with the same flags: a text, or a table whose ``content`` is one or several.

    ``{0..3}`` in a text stands for each of these numbers.
    """
    table = value if isinstance(value, Mapping) else {"content": value}
    texts = table.get("content")
    if not isinstance(texts, list):
        texts = [texts]
    tokens = [_dataclass(where, kind, {**table, "content": text}) for text in texts]
    return [
        AddedToken(text, token.special, token.flag_order)
        for token in tokens
        for text in _spelled(token.content)
    ]


def _spelled(text: str) -> list[str]:
    found = _NUMBERS.search(text)
    if found is None:
        return [text]
    before, after = text[: found.start()], text[found.end() :]
    return [f"{before}{number}{after}" for number in range(int(found[1]), int(found[2]) + 1)]


def _known(where: str, keys: Mapping[str, Any], known: list[str]) -> None:
    for key in keys:
        if key not in known:
            hint = did_you_mean(key, known, most=2) or f"Known: {', '.join(known)}."
            raise ModelError(f"{where}: there is no key {key!r}.", hint)


def _dataclass(where: str, kind: type, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(where, "a table", value)
    hints = _hints(kind)
    _known(where, value, list(hints))
    _require(where, kind, value)
    return kind(**{key: _read(f"{where}.{key}", hints[key], v) for key, v in value.items()})


def _require(where: str, kind: type, keys: Mapping[str, Any]) -> None:
    """Check that there is a value for every field without a default."""
    missing = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in keys
    ]
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where a table stands: its file, the models above it, and the files that led to this one."""

    path: Path
    found: Mapping[str, Fields] = dataclasses.field(default_factory=dict)
    above: tuple[Path, ...] = ()


def _template(where: str, keys: dict[str, Any], folder: Path) -> None:
    """Replace the name of a template or of its file by its source."""
    ways = [key for key in ("chat_template", "chat_template_file", "template") if key in keys]
    if len(ways) > 1:
        raise ModelError(f"{where} gives {' and '.join(ways)}.", "Give one template.")
    if "template" in keys:
        name = keys.pop("template")
        if name not in templates():
            raise _wrong(f"{where}: template", " or ".join(templates()), name)
        keys["chat_template"] = template(name)
    named_file = keys.pop("chat_template_file", None)
    if named_file is None:
        return
    try:
        file = file_hash.required(folder / named_file)
        keys["chat_template"] = file.read_text("utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{where}: chat_template_file {named_file!r} cannot be read: {error}.",
            "Its path starts at the profile's directory.",
        ) from error


def _alike(where: str, like: str, place: _Place) -> Fields:
    """The values that a table starts from: of a file, a model above it, or a known profile."""
    if like.endswith(".toml"):
        path = place.path.parent / like
        if path.parent != place.path.parent or path in (*place.above, place.path):
            raise _wrong(f"{where}: like", "another file beside this one", like)
        return _of_file(_Place(path, above=(*place.above, place.path)))
    if like in place.found:
        return place.found[like]
    profile = named(like)
    if profile is None:
        raise ModelError(f"{where}: like names no profile: {like!r}.", "See: pipeline list models.")
    return {field.name: getattr(profile, field.name) for field in dataclasses.fields(profile)}


def _fields(where: str, keys: Mapping[str, Any], place: _Place) -> Fields:
    """The values that a table gives, and those of what it is like."""
    hints = {**_hints(ModelProfile), "tokenizer": str}
    _known(where, keys, [*hints, *_BESIDE])
    for key in _BESIDE:
        if not isinstance(keys.get(key, ""), str):
            raise _wrong(f"{where}: {key}", "a string", keys[key])
    own = dict(keys)
    like = own.pop("like", None)
    _template(where, own, place.path.parent)
    read = {key: _read(f"{where}: {key}", hints[key], value) for key, value in own.items()}
    return read if like is None else {**_alike(where, like, place), **read}


def _of_file(place: _Place) -> Fields:
    keys = {"name": place.path.stem, **_content(place.path)}
    if "models" in keys:
        raise ModelError(
            f"{place.path} describes several models.",
            "Give a file of one; like = 'base.toml' starts from a file beside it.",
        )
    return _fields(str(place.path), keys, place)


def _profile(where: str, fields: Fields) -> ModelProfile:
    _require(where, ModelProfile, fields)
    profile = ModelProfile(**fields)
    for key, allowed in _CHOICES.items():
        if fields.get(key, allowed[0]) not in allowed:
            raise _wrong(f"{where}: {key}", " or ".join(allowed), fields[key])
    for key in _POSITIVE:
        if fields[key] <= 0:
            raise _wrong(f"{where}: {key}", "above 0", fields[key])
    if profile.embedding_size < profile.vocab_size:
        what = f"at least vocab_size ({profile.vocab_size})"
        raise _wrong(f"{where}: embedding_size", what, profile.embedding_size)
    if profile.bos_policy != "none" and profile.bos_token is None:
        raise ModelError(
            f"{where}: bos_policy {profile.bos_policy!r} needs a bos_token.",
            "Name the token that it prints.",
        )
    return profile


def load(path: Path) -> tuple[ModelProfile, str | None]:
    """The profile of a file of one model, and where its tokenizer is, if the file says so.

    Raises:
        ModelError: the file cannot be read, or one of its keys is wrong; the message names it.
    """
    fields = {"model_ids": (), **_of_file(_Place(path))}
    tokenizer = fields.pop("tokenizer", None)
    if tokenizer is not None:
        fields["ranks"] = None
    return _profile(str(path), fields), tokenizer


def models_of(path: Path) -> tuple[ModelProfile, ...]:
    """The profiles of a file of several models, in their order.

    Raises:
        ModelError: the file cannot be read, or one of its keys is wrong; the message names it.
    """
    keys = _content(path)
    models = keys.pop("models", None)
    if not isinstance(models, list) or not all(isinstance(one, dict) for one in models):
        raise _wrong(f"{path}: models", "an array of tables", models)
    shared = _fields(str(path), keys, _Place(path))
    found: dict[str, Fields] = {}
    profiles = []
    for number, table in enumerate(models):
        where = f"{path}: models[{number}]"
        fields = {**shared, **_fields(where, table, _Place(path, found))}
        if "tokenizer" in fields:
            raise ModelError(f"{where} names a tokenizer.", "Name the model's hub id in model_ids.")
        profiles.append(_profile(where, fields))
        found[profiles[-1].name] = fields
    return tuple(profiles)
