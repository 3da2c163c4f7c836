"""The base class of formats: nothing that a format gives is silently not read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages import catalog, formats
from stages.errors import UsageError
from stages.format import Format

NEEDED = {
    "name": "toy",
    "kinds": ("conversation",),
    "columns": {"text": ("text",)},
    "matches": lambda self, row: None,
    "read": lambda self, row, options: [],
}
MISSPELT = {
    "promts": "prompts",
    "fan_out": "fans_out",
    "doubts": "doubt",
    "setle": "settle",
    "variant": "variants",
    "tokens_ids": "token_ids",
    "first_errors": "first_error",
    "excange": "exchange",
    "name_only": "named_only",
    "useable": "usable",
}


def declared() -> set[str]:
    """The names that the base class declares."""
    return {name for name in (*vars(Format), *Format.__annotations__) if name[0] != "_"}


def every_format() -> Iterator[Format]:
    for name in catalog.names("stages.formats"):
        found = formats.load(name)
        yield from (found, *found.variants.values())


@pytest.mark.parametrize(("name", "meant"), MISSPELT.items())
def test_a_misspelt_attribute_is_refused_with_the_nearest_name(name: str, meant: str) -> None:
    """In the class, announced only, in a class that is mixed in, and in an instance."""
    toy = type("Toy", (Format,), NEEDED)()
    mixed_in = type("Mixin", (), {name: True})
    announced = {"__annotations__": {name: "bool"}}
    with pytest.raises(TypeError, match=f"Toy gives '{name}'.* Did you mean {meant}\\?"):
        type("Toy", (Format,), {**NEEDED, name: True})
    with pytest.raises(TypeError, match=meant):
        type("Toy", (Format,), {**NEEDED, **announced})
    with pytest.raises(TypeError, match=meant):
        type("Toy", (mixed_in, Format), NEEDED)
    with pytest.raises(TypeError, match=meant):
        setattr(toy, name, True)


def test_an_attribute_like_no_other_is_refused_with_all_that_are_known() -> None:
    """A name that is like none is answered with the list."""
    with pytest.raises(
        TypeError, match=r"'qqq', which nothing reads\. Known: answers, asks, asks_in_turns, "
    ):
        type("Toy", (Format,), {**NEEDED, "qqq": 1})


@pytest.mark.parametrize("name", NEEDED)
def test_a_format_that_lacks_what_every_format_has_is_refused(name: str) -> None:
    """Where it is written, not where its first row is read."""
    rest = {key: value for key, value in NEEDED.items() if key != name}
    with pytest.raises(TypeError, match=f"Toy does not give {name}"):
        type("Toy", (Format,), rest)


def test_every_declared_name_is_known_and_private_ones_are_free() -> None:
    """The law refuses no format that keeps it."""
    base = {name: getattr(Format, name, None) for name in declared()}
    toy = type("Toy", (Format,), {**base, **NEEDED, "_own": 1})()
    toy._own = 2
    assert toy.settle([], {}) == ("", "")


def test_every_format_declares_only_what_the_base_knows() -> None:
    """Class by class, and in the instance: all that is not private is in the base class."""
    for found in every_format():
        assert isinstance(found, Format)
        given = {*vars(found)}
        for part in type(found).__mro__[: type(found).__mro__.index(Format)]:
            given |= {*vars(part), *inspect.get_annotations(part)}
        assert {name for name in given if not name.startswith("_")} <= declared(), found.name


def test_every_variant_has_the_name_of_its_format_and_is_itself_settled() -> None:
    """A reading is a name and at most one variant."""
    for name in catalog.names("stages.formats"):
        for variant in formats.load(name).variants:
            assert formats.load(f"{name}/{variant}").name == name


def test_nothing_asks_what_class_a_format_has() -> None:
    """What differs between formats is an attribute of all; only what other packages give is
    checked, once, where it is loaded."""
    root = Path(__file__).parents[1]
    files = [path for folder in ("stages", "pipeline") for path in (root / folder).rglob("*.py")]
    asks = re.compile(r"isinstance\([^()]*\b(Format|Unusable|Asking|NamedSides)\b")
    asking = {path for path in files if asks.search(path.read_text("utf-8"))}
    assert asking == {Path(formats.__file__)}


class _Duck:
    """A format in all but its class."""

    name = "toy"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (_Duck(), "Format toy is a _Duck, not an instance of a subclass of Format"),
        (type("Toy", (Format,), {**NEEDED, "name": "other"})(), "its name is other"),
    ],
)
def test_what_is_no_format_is_refused_where_it_is_loaded(
    given: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another package's object under a format's name, with the fix."""
    monkeypatch.setattr(catalog, "load", lambda *_: given)
    with pytest.raises(UsageError, match=message):
        formats.load("toy")
