"""Converts JSON to frozen records and back, from the same declarations.

A record is a dataclass whose fields are the keys of a JSON object, in the order of the file. The
field of a key that is a Python keyword ends in an underscore: ``in_`` is the key ``in``. Keys of a
newer version are kept in their places, so that reading a record and writing it again gives the same
bytes.

Other dataclasses are converted, too, with arrays of int64, counters, and mappings of numbers: files
of the cache hold them. They have just the keys that this version knows.
"""

import functools
import hashlib
import json
import types
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import orjson

from pipeline.manifest.dataset_files import json_text
from stages.findings import JsonRecord

_OWN = ("unknown", "order")  # of a record; never keys
_WORDS: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


class MalformedError(ValueError):
    """A key is missing, or holds something of another type.

    Attributes:
        key: with dots, from the top of the file: ``splits.train.shards.0.rows``; empty for the top.
        why: ``is missing``, ``is text, not a whole number``.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(key, why)
        self.key = key
        self.why = why

    def __str__(self) -> str:
        return f"{self.key or 'it'} {self.why}"


class Sealed(JsonRecord, kw_only=True):
    """A file with its own hash: ``content_sha256``, its last key, hashes all other keys."""

    content_sha256: str = ""


_R = TypeVar("_R")
_S = TypeVar("_S", bound=Sealed)


@functools.cache
def _keys(kind: Any) -> dict[str, tuple[Field[Any], Callable[[Any], Any]]]:
    """The field of each JSON key, and what reads its value."""
    hints = get_type_hints(kind)
    every = sorted(fields(kind), key=lambda one: one.name == KEY)  # the seal is last
    own = [one for one in every if one.name not in _OWN]
    return {one.name.rstrip("_"): (one, _reader(hints[one.name])) for one in own}


def _default(one: Field[Any]) -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _inside(key: object, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except MalformedError as error:
        path = f"{key}.{error.key}" if error.key else str(key)
        raise MalformedError(path, error.why) from error


def _is(kind: type, value: Any) -> Any:
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise MalformedError("", f"is {_WORDS[type(value)]}, not {_WORDS[kind]}")
    return value


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """A function that converts a JSON value to this type, or raises MalformedError."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is object:
        return lambda value: value
    if origin in (Union, types.UnionType):
        some = _reader(next(one for one in inner if one is not type(None)))
        return lambda value: None if value is None else some(value)
    if origin is tuple:
        return functools.partial(_tuple, tuple(_reader(one) for one in inner if one is not ...))
    if origin is Counter:
        return lambda value: Counter(_mapping(inner[0], _reader(int), value))
    if origin in (dict, Mapping):
        return functools.partial(_mapping, inner[0], _reader(inner[1]))
    if origin is not None:  # numpy's, which is not imported for a manifest
        from numpy import array, int64

        return lambda value: array(value, int64)
    if is_dataclass(kind):
        return functools.partial(_record, cast(Any, kind))
    return functools.partial(_is, kind)


def _tuple(readers: tuple[Callable[[Any], Any], ...], value: Any) -> tuple[Any, ...]:
    """A list of one type, or of as many values as there are types."""
    _is(list, value)
    each = readers * len(value) if len(readers) == 1 else readers
    if len(each) != len(value):
        raise MalformedError("", f"has {len(value)} values, not {len(each)}")
    pairs = zip(each, value, strict=True)
    return tuple(_inside(at, read, one) for at, (read, one) in enumerate(pairs))


def _mapping(keyed: Callable[[str], Any], read: Callable[[Any], Any], value: Any) -> dict[Any, Any]:
    _is(dict, value)
    return {keyed(key): _inside(key, read, one) for key, one in value.items()}


def _record(kind: type[_R], value: Any) -> _R:
    _is(dict, value)
    known, given = _keys(cast(Any, kind)), {}
    for key, (one, read) in known.items():
        if key in value:
            given[one.name] = _inside(key, read, value[key])
        elif "optional" not in one.metadata:
            raise MalformedError(key, "is missing")
    if issubclass(kind, JsonRecord):
        given["unknown"] = {key: one for key, one in value.items() if key not in known}
        given["order"] = tuple(value)
    return kind(**given)


def plain(value: Any) -> Any:
    """A value as ``json`` writes it; the keys of its mappings are written as texts."""
    if isinstance(value, JsonRecord):
        return as_json(value)
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):  # an array
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def from_json(kind: type[_R], value: object) -> _R:
    """A record from what ``json`` made of an object.

    Raises:
        MalformedError: naming the first key that is missing or of another type.
    """
    return _record(kind, value)


def as_json(record: JsonRecord) -> dict[str, Any]:
    """The object that ``json`` writes, its keys in their order.

    A key that the file did not have, or a sparse one, is written only if its value is not the
    default.
    """
    every: dict[str, Any] = {}
    for key, (one, _) in _keys(cast(Any, type(record))).items():
        value, always = getattr(record, one.name), not (record.order or "sparse" in one.metadata)
        if always or key in record.order or value != _default(one):
            every[key] = plain(value)
    every |= record.unknown
    return {key: every[key] for key in record.order if key in every} | every


def load(kind: type[_R], data: bytes) -> _R:
    """A record from a file's bytes.

    Raises:
        MalformedError: they are not JSON, or a key is missing or of another type.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedError("", f"is not JSON: {error}") from error
    return _record(kind, value)


def dump(record: JsonRecord) -> bytes:
    """A file's bytes: readable JSON with a final newline."""
    return json_text(as_json(record)).encode()


def one_line(record: JsonRecord) -> str:
    """The same on one line, for ``--json``."""
    return json.dumps(as_json(record), ensure_ascii=False)


def sealed(record: _S) -> _S:
    """The record with its seal, in the place of an older one."""
    return replace(record, content_sha256=sealed_text(as_json(record))[KEY])


# The seal of a JSON file: a hash of its content, stored in the file itself.
#
# The manifest has the hash of every other file but not its own; it leaves out ``run.json``, which
# may differ between equal builds. These two, and the report of a part, carry their own hash. A
# sealed file must also have the exact bytes that we would write, so that every change is noticed.


KEY = "content_sha256"
_SPELLING = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed_text(content: dict[str, Any]) -> dict[str, Any]:
    """The content with a new seal; an older one is dropped."""
    bare = {key: value for key, value in content.items() if key != KEY}
    return {**bare, KEY: _hash(bare)}


def problem(data: bytes) -> str | None:
    """What is wrong with a sealed file's bytes; None when they are what was written."""
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            return "it is not an object"
    except ValueError as error:
        return f"it is not JSON: {error}"
    if KEY not in content:
        return "it has no seal"
    if sealed_text(content)[KEY] != content[KEY]:
        return "its content changed after it was sealed"
    return None if _is_spelled(content, data) else "its JSON is written differently"


def content_of(data: bytes) -> dict[str, Any]:
    """What a sealed file says.

    Raises:
        ValueError: its bytes are not those that were written; it says what is wrong.
    """
    wrong = problem(data)
    if wrong is not None:
        raise ValueError(wrong)
    content: dict[str, Any] = json.loads(data)
    return content


def _is_spelled(content: object, data: bytes) -> bool:
    """Whether these are the bytes that we would write; orjson is asked first, since it is fast.

    It spells some numbers in another way, and refuses some texts: then Python has the last word.
    """
    with suppress(TypeError):
        if orjson.dumps(content, option=_SPELLING) == data:
            return True
    return json_text(content).encode(errors="surrogatepass") == data  # a lone half is JSON, too
