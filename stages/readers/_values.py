"""JSON values one by one from a stream: the items of an array, or objects one after another.

The standard library's scanner finds where an item ends in a window of text; its bytes are then
parsed by the strict parser. No more than one item and the window are in memory.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from stages.contract import Lines, Record
from stages.errors import ContainerError
from stages.files import bounds
from stages.files.line_block import record
from stages.readers import _shape

BATCH_ROWS = 8192
BATCH_BYTES = 4 << 20
MAX_ITEM = 64 << 20
WINDOW = 1 << 20
_BLANKS = re.compile(r"[ \t\r\n]*")
# Numbers stay text here, since only their end is needed and they may have any number of digits.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_NEAR_END = 16  # characters; an unfinished word, number or escape at the end is not longer


class _Text:
    """A window of a stream's text.

    Attributes:
        text: the window; ``at``: index of the next character in it.
        items: values that were read so far.
        offset: bytes of the file before ``at``.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._read = 0  # bytes
        self._lines = 1  # number of the line that the window begins in
        self._ended = False
        self.text = ""
        self.at = 0
        self.offset = self.items = 0
        first = file.read(WINDOW)
        if first.startswith(_shape.BOM):
            first = first[len(_shape.BOM) :]
            self._read = self.offset = len(_shape.BOM)
        self.text = self._decoded(first)

    def _decoded(self, chunk: bytes) -> str:
        pending = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            at = self._read - pending + error.start
            raise ContainerError(
                f"{self._path} is not UTF-8: byte {at} is 0x{error.object[error.start]:02x}.",
                "Convert it, for instance with: iconv -f LATIN1 -t UTF-8",
            ) from error
        self._read += len(chunk)
        return text

    def more(self) -> bool:
        """Read more, at least as much as is left in the window; False at the end of the file."""
        if self._ended:
            return False
        chunk = self._file.read(max(WINDOW, len(self.text) - self.at))
        decoded = self._decoded(chunk)
        if not chunk:
            self._ended = True
            return False
        self._lines += self.text.count("\n", 0, self.at)
        self.text, self.at = self.text[self.at :] + decoded, 0
        return True

    def _line(self, at: int) -> int:
        """Number of the line of a place in the window."""
        return self._lines + self.text.count("\n", 0, at)

    def skip(self) -> str:
        """Go past blanks; returns the character there, empty at the end of the file."""
        while True:
            blanks = _BLANKS.match(self.text, self.at)
            assert blanks is not None  # the pattern also matches the empty text
            start, self.at = self.at, blanks.end()
            self.offset += self.at - start
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def step(self) -> None:
        """Go past one character of one byte."""
        self.at += 1
        self.offset += 1

    def value(self) -> bytes:
        """The bytes of the value that begins here; goes past it.

        Raises:
            ContainerError: there is no value.
        """
        while True:
            try:
                stop = _DECODER.raw_decode(self.text, self.at)[1]
            except RecursionError as error:
                raise self.broken("nested too deep", self.at) from error
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated string")
                if not unfinished and error.pos < len(self.text) - _NEAR_END:
                    raise self.broken(error.msg, error.pos) from error
                self._longer(error.msg, error.pos)
                continue
            if stop == len(self.text) and self.more():  # a number may continue
                continue
            raw = self.text[self.at : stop].encode()
            self.at = stop
            self.offset += len(raw)
            self.items += 1
            return raw

    def _longer(self, message: str, at: int) -> None:
        here = self.at
        if len(self.text) - here > MAX_ITEM:
            raise self.broken(f"an item of more than {MAX_ITEM} bytes", here)
        if not self.more():
            raise self.broken(message, at)

    def broken(self, why: str, at: int) -> ContainerError:
        """The error for text that cannot be read past ``at``."""
        return ContainerError(
            f"{self._path}:{self._line(at)} is not JSON: {why}.",
            "After it, the start of the next item is unknown. Repair it, or give JSON lines; "
            "--salvage keeps the items before.",
        )


def _values(text: _Text) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each value."""
    in_array = text.skip() == "["
    if in_array:
        text.step()
    after_comma = False
    while True:
        char = text.skip()
        if in_array and char == "]" and not after_comma:
            text.step()
            if text.skip():
                raise text.broken("text after the end of the array", text.at)
            return
        if not char:
            if in_array:
                raise text.broken("the array is not closed", text.at)
            return
        offset = text.offset
        yield offset, text.value()
        if in_array:
            char = text.skip()
            after_comma = char == ","
            if after_comma:
                text.step()
            elif char != "]":
                raise text.broken(
                    "no comma, and no end of the array" if char else "the array is not closed",
                    text.at,
                )


def records(file: IO[bytes], at_start: bool = True, path: str = "The file") -> Iterator[Lines]:
    """Each value as a record; raises what ``in_batches`` does.

    Args:
        at_start: always true here; only readers of lines can start in the middle.
    """
    text = _Text(file, path)
    values = enumerate(_values(text))
    each = (record(number, at, raw, len(raw)) for number, (at, raw) in values)
    return in_batches(each, lambda: text.items)


def in_batches(records: Iterable[Record | None], lines: Callable[[], int]) -> Iterator[Lines]:
    """Records in batches; those before a damage are yielded before the error is raised.

    Args:
        records: None for lines that are none; ``lines``: how many were read so far.

    Raises:
        ContainerError: from ``records``: the text is damaged.
    """
    batch: list[Record] = []
    size = given = 0  # bytes of the batch; lines that were yielded
    damage = None
    try:
        for one in records:
            if one is not None:
                batch.append(one)
                size += len(one.raw)
            blank = lines() - given >= bounds.FREE_ROWS  # told, so that they are counted
            if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES or blank:
                yield Lines(batch, lines() - given)
                batch, size, given = [], 0, lines()
    except ContainerError as error:
        damage = error
    if batch or (lines() > given and not damage):
        yield Lines(batch, lines() - given)
    if damage is not None:
        raise damage
