"""A JSON file that is one object with one key, and under it the rows: ``{"data": [...]}``."""

import json
import re

from stages.files import content

_HEAD = 1 << 20
_BEGINS = re.compile(r'\s*\{\s*(?P<key>"(?:[^"\\]|\\.)*")\s*:\s*\[\s*(?=\{)')
_TURN = re.compile(r'\{\s*"(?:role|from)"')
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # only the end is needed


def begin(text: str, more: bool = False) -> re.Match[str] | None:
    """How a text begins that is such an object: ``{"data": [``; None for any other text.

    A list of turns is no list of rows: the object is a row itself.

    Args:
        more: the file goes on behind the text.
    """
    begun = _BEGINS.match(text)
    if begun is None or _TURN.match(text, begun.end()):
        return None
    try:
        value, stop = _DECODER.raw_decode(text, text.index("{"))
    except (ValueError, RecursionError):
        return begun if more else None
    return begun if len(value) == 1 and not more and not text[stop:].strip() else None


def key_of(source: content.Source) -> str:
    """The key under which a file has its rows; empty where they stand alone."""
    with content.opened(source, salvage=True) as file:
        head, more = file.read(_HEAD), bool(file.read(1))
    begun = begin(head.decode("utf-8", "ignore").removeprefix("\ufeff"), more)
    return str(json.loads(begun["key"])) if begun else ""
