"""Outlines: the segments of all rows of one shape, as one text.

Where a shape's template is compiled (see ``compile``), its rows differ in their own texts only. So
a batch has the segments of a shape once, as JSON: a list of text and kind, with null for the text
where a text of the row belongs::

    [["<|im_start|>",1],[null,0],["<|im_end|>",1],...]

and each row has its own texts in a list. Together they are the row's segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import orjson

Outline: TypeAlias = list[tuple[str | None, int]]


def spelled(segments: Iterable[tuple[str | None, int]]) -> str:
    """An outline as the text that the column ``outline`` has."""
    return orjson.dumps([*segments]).decode()


def parsed(text: str) -> Outline:
    """The outline that a text spells."""
    return [(text, kind) for text, kind in orjson.loads(text)]


def filled(outline: Outline, texts: Iterable[str]) -> list[str]:
    """The texts of all segments of a row, given its own."""
    own: Iterator[str] = iter(texts)
    return [next(own) if text is None else text for text, _ in outline]
