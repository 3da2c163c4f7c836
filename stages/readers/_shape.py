"""The structure of a JSON file, from its first bytes: its encoding, and lines or single values."""

from __future__ import annotations

import functools
import json

import orjson

from stages.errors import ContainerError
from stages.files import content

HEAD = 1 << 16
BOM = b"\xef\xbb\xbf"
_WIDE = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def _encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 by a byte-order mark or by the places of zero bytes; None for neither."""
    marked = next((name for mark, name in _WIDE.items() if head.startswith(mark)), None)
    if marked is not None:
        return marked
    # ASCII text in UTF-32 has zeros at three of four places, in UTF-16 at every second place.
    sample = head[: min(len(head), 256) // 4 * 4]
    zeros = [place % 4 for place, byte in enumerate(sample) if not byte]
    if len(zeros) * 10 > len(sample) * 7 and len(set(zeros)) == 3:
        return "UTF-32"
    if len(zeros) * 10 > len(sample) * 3 and set(zeros) in ({0, 2}, {1, 3}):
        return "UTF-16"
    return None


def refuse_other_encodings(path: str, head: bytes) -> None:
    """Check the first bytes of a file of text.

    Raises:
        ContainerError: they are UTF-16 or UTF-32.
    """
    encoding = _encoding(head)
    marked = any(head.startswith(mark) for mark in _WIDE)
    at = 0 if marked else max(0, head.find(b"\0"))
    if encoding is not None:
        raise ContainerError(
            f"{path} is {encoding}, not UTF-8: byte {at} is 0x{head[at]:02x}.",
            f"Convert it with: iconv -f {encoding} -t UTF-8",
        )


def binary(path: str, at: int, wanted: str) -> ContainerError:
    """The error for a file with a zero byte in the place of text."""
    return ContainerError(
        f"{path} is binary, not {wanted}: byte {at} is 0x00.", f"Give a file of {wanted}."
    )


def _is_a(kind: type, line: bytes) -> bool:
    """Whether a line is a whole value of a kind, so that what follows it is another row."""
    try:
        return type(orjson.loads(line)) is kind
    except orjson.JSONDecodeError:
        return False


_is_object = functools.partial(_is_a, dict)


def _spans_lines(head: bytes) -> bool:
    """Whether the first value is complete and spans lines, or a lone carriage return follows it.

    Lines that end in a lone carriage return are not lines here, so they are read as values.
    """
    text = head.decode("utf-8", "ignore")
    try:
        stop = json.JSONDecoder(parse_int=str).raw_decode(text)[1]
    except (ValueError, RecursionError):
        return False
    lone = text[stop : stop + 1] == "\r" and text[stop + 1 : stop + 2] != "\n"
    return "\n" in text[:stop] or lone


def is_lines(source: content.Source, default: bool, limit: int) -> bool:
    """Whether a file has one value per line; otherwise it is an array, or values one after another.

    Args:
        default: the answer by the file's name, where its beginning does not show it.
        limit: bytes of the longest line.

    Raises:
        ContainerError: it is binary, or not UTF-8.
    """
    with content.opened(source, salvage=True) as file:  # a damage is reported when rows are read
        head = file.read(HEAD)
        if b"\n" not in head and not head.removeprefix(BOM).lstrip().startswith(b"["):
            head += file.readline(limit)
        more = bool(file.read(1))
    refuse_other_encodings(content.path_of(source), head)
    # With rows of JSON before or after it, a zero byte damages one row only.
    if b"\0" in head and not any(map(_is_object, head.removeprefix(BOM).split(b"\n"))):
        raise binary(content.path_of(source), head.index(0), "JSON")
    body = head.removeprefix(BOM).lstrip()
    lines = [line for line in body.split(b"\n")[: -1 if more else None] if line.strip()]
    if body.startswith(b"["):
        return len(lines) > 1 and _is_a(list, lines[0])
    objects = sum(map(_is_object, lines))
    if objects and (_is_object(lines[0]) or objects * 2 >= len(lines)):
        return True
    if body.startswith(b"{") and _spans_lines(body):
        return False
    return default
