"""The base class of formats: nothing that a format gives is silently not read."""

from __future__ import annotations

import inspect
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
MISSPELT = {"promts": "prompts", "fan_out": "fans_out", "setle": "settle", "useable": "usable"}


def test_an_attribute_that_nothing_reads_is_refused_with_the_nearest_name() -> None:
    """In the class, announced only, in a class that is mixed in, and in an instance."""
    toy = type("Toy", (Format,), NEEDED)()
    for name, meant in MISSPELT.items():
        with pytest.raises(TypeError, match=f"Toy gives '{name}'.* Did you mean {meant}\\?"):
            type("Toy", (Format,), {**NEEDED, name: True})
        with pytest.raises(TypeError, match=meant):
            type("Toy", (Format,), {**NEEDED, "__annotations__": {name: "bool"}})
        with pytest.raises(TypeError, match=meant):
            type("Toy", (type("Mixin", (), {name: True}), Format), NEEDED)
        with pytest.raises(TypeError, match=meant):
            setattr(toy, name, True)
    with pytest.raises(
        TypeError, match=r"'qqq', which nothing reads\. Known: answers, asks, asks_in_turns, "
    ):
        type("Toy", (Format,), {**NEEDED, "qqq": 1})


def test_a_format_that_lacks_what_every_format_has_is_refused() -> None:
    """Where it is written, not where its first row is read."""
    for name in NEEDED:
        rest = {key: value for key, value in NEEDED.items() if key != name}
        with pytest.raises(TypeError, match=f"Toy does not give {name}"):
            type("Toy", (Format,), rest)


def test_every_format_declares_only_what_the_base_knows() -> None:
    """Class by class, and in the instance: all that is not private is in the base class; a reading
    is a name and at most one variant."""
    declared = {name for name in (*vars(Format), *Format.__annotations__) if name[0] != "_"}
    base = {name: getattr(Format, name, None) for name in declared}
    toy = type("Toy", (Format,), {**base, **NEEDED, "_own": 1})()
    toy._own = 2
    assert toy.settle([], {}) == ("", "")
    for name in catalog.names("stages.formats"):
        variants = formats.load(name).variants
        assert {formats.load(f"{name}/{variant}").name for variant in variants} <= {name}
        for found in (formats.load(name), *variants.values()):
            given = {*vars(found)}
            for part in type(found).__mro__[: type(found).__mro__.index(Format)]:
                given |= {*vars(part), *inspect.get_annotations(part)}
            assert {one for one in given if not one.startswith("_")} <= declared, name


def test_what_is_no_format_is_refused_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package's object under a format's name, with the fix."""
    for given, message in (
        (Path(), "Format toy is a PosixPath, not an instance of a subclass of Format"),
        (type("Toy", (Format,), {**NEEDED, "name": "other"})(), "its name is other"),
    ):
        monkeypatch.setattr(catalog, "load", lambda *_, given=given: given)
        with pytest.raises(UsageError, match=message):
            formats.load("toy")
