"""Every key of a TOML file is found at its line, however the file is written."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.files.toml_file import Place, lines_of

_PIECES = st.sampled_from(["a", "b-c", '"d.e"', "'f = 1'", "_1", '"\\u0067"'])
_COMMENT = st.sampled_from(["", "  # x = 1", " # [[b]] \"'"])


@st.composite
def _entries(draw: st.DrawFn, numbers: list[int]) -> list[str]:
    """Lines of one table; every number in a file is another."""
    keys = draw(st.lists(_PIECES, unique=True, max_size=4))
    lines = []
    for key in keys:
        dotted = draw(st.sampled_from(["", ".z", " . 'y y' . z"]))
        value = draw(_values(numbers, 2))
        lines += f"{key}{dotted} = {value}{draw(_COMMENT)}".split("\n")
    return lines


@st.composite
def _values(draw: st.DrawFn, numbers: list[int], depth: int) -> str:
    kind = draw(
        st.sampled_from(["number", "text", "long", "list", "table"] if depth else ["number"])
    )
    numbers.append(len(numbers))
    unique = f"9{len(numbers):05}"
    if kind == "list":
        items = draw(st.lists(_values(numbers, depth - 1), max_size=3))
        return "[" + draw(st.sampled_from([", ", ",\n  # ]\n  "])).join(items) + "]"
    if kind == "table":
        items = draw(st.lists(_values(numbers, depth - 1), max_size=3))
        return "{" + ", ".join(f"k{at} = {item}" for at, item in enumerate(items)) + "}"
    texts = {
        "number": unique,
        "text": draw(st.sampled_from([f'"{unique} # \\" ]"', f"'{unique} = ['"])),
        "long": draw(
            st.sampled_from([f'"""{unique}\n[no]\na = 1 \\""""""', f"'''{unique}\n]]'''"])
        ),
    }
    return texts[kind]


@st.composite
def files(draw: st.DrawFn) -> str:
    """A TOML file with all kinds of tables, keys and values."""
    numbers: list[int] = []
    lines = draw(_entries(numbers))
    for name in draw(st.lists(st.sampled_from("tuv"), unique=True, max_size=3)):
        for _ in range(times := draw(st.integers(0, 3))):
            lines += ["", f"[[ {name} ]]" if times > 1 else f"[{name}]", *draw(_entries(numbers))]
            if draw(st.booleans()):
                lines += [f'  [{name}."n.x"]', *draw(_entries(numbers))]
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


def _leaves(value: Any, place: Place = ()) -> list[tuple[Place, str]]:
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in _leaves(inner, (*place, key))]
    if isinstance(value, list):
        return [one for at, inner in enumerate(value) for one in _leaves(inner, (*place, at))]
    return [(place, str(value)[:6])]


@given(files())
def test_each_value_is_at_its_line(text: str) -> None:
    """The line that is found is the one that has the value, which no other line has."""
    table, lines, found = tomllib.loads(text), text.split("\n"), lines_of(text)
    for place, value in _leaves(table):
        assert value in lines[found[place] - 1], (place, text)
        assert all(place[:length] in found for length in range(1, len(place)))


@pytest.mark.parametrize(
    ("text", "place", "line"),
    [
        ("\n\na = 1", ("a",), 3),
        ("d = 1979-05-27 07:32:00\ne = 1", ("e",), 2),
        ("[[s]]\n[[s]]\n[s.map]\np = 1", ("s", 1, "map", "p"), 4),
        ("[[s]]\n[[s.t]]\n[[s.t]]\nx = 1", ("s", 0, "t", 1, "x"), 4),
        ('k = """\n"" """" # a = 1\nl = 2', ("l",), 3),
    ],
)
def test_a_key_is_at_its_line(text: str, place: Place, line: int) -> None:
    """Some that are easily missed."""
    assert lines_of(text)[place] == line
