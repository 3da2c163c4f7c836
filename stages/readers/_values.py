"""JSON values one by one from a stream: the items of an array, also of one that an object wraps
under its only key, or objects one after another.

The standard library's scanner finds where an item ends in a window of text; its bytes are then
parsed by the strict parser. No more than one item and the window are in memory.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from stages import files
from stages.contract import Lines, Record
from stages.errors import ContainerError
from stages.files import line_block

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
        goes_on: the file has more than the first window.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file, self._path = file, path
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._read = 0  # bytes
        self._lines = 1  # number of the line that the window begins in
        self._ended = False
        self.text = ""
        self.at = 0
        self.offset = self.items = 0
        first = file.read(WINDOW + 1)
        self.goes_on = len(first) > WINDOW
        if first.startswith(BOM):
            first = first[len(BOM) :]
            self._read = self.offset = len(BOM)
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

    def pass_by(self, said: str) -> None:
        """Go past characters of the window."""
        self.at += len(said)
        self.offset += len(said.encode())

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
            self.at, self.offset, self.items = stop, self.offset + len(raw), self.items + 1
            return raw

    def _longer(self, message: str, at: int) -> None:
        if len(self.text) - self.at > MAX_ITEM:
            raise self.broken(f"an item of more than {MAX_ITEM} bytes", self.at)
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
    begun = None if in_array else begin_wrapped(text.text[text.at :], text.goes_on)
    if begun is not None:
        in_array = True
        text.pass_by(begun.group())
    after_comma = False
    while True:
        char = text.skip()
        if in_array and char == "]" and not after_comma:
            text.step()
            if begun is not None and text.skip() == "}":
                text.step()
                begun = None
            if text.skip() or begun is not None:
                raise text.broken("text after the end of the array", text.at)
            return
        if not char:
            if in_array:
                raise text.broken("the array is not closed", text.at)
            return
        yield text.offset, text.value()
        if in_array:
            char = text.skip()
            after_comma = char == ","
            if after_comma:
                text.step()
            elif char != "]":
                why = "no comma, and no end of the array" if char else "the array is not closed"
                raise text.broken(why, text.at)


def records(file: IO[bytes], at_start: bool = True, path: str = "The file") -> Iterator[Lines]:
    """Each value as a record; raises what ``in_batches`` does.

    Args:
        at_start: always true here; only readers of lines can start in the middle.
    """
    text = _Text(file, path)
    values = enumerate(_values(text))
    each = (line_block.record(number, at, raw, len(raw)) for number, (at, raw) in values)
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
            blank = lines() - given >= files.FREE_ROWS  # told, so that they are counted
            if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES or blank:
                yield Lines(batch, lines() - given)
                batch, size, given = [], 0, lines()
    except ContainerError as error:
        damage = error
    if batch or (lines() > given and not damage):
        yield Lines(batch, lines() - given)
    if damage is not None:
        raise damage


# The structure of a JSON file, from its first bytes: its encoding, and lines or single values.


HEAD = 1 << 16
BOM = b"\xef\xbb\xbf"
_WIDE = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32"}
_WIDE |= {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


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
    at = 0 if head.startswith(tuple(_WIDE)) else max(0, head.find(b"\0"))
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


# A JSON file that is one object with one key, and under it the rows: ``{"data": [...]}``.

_BEGINS = re.compile(r'\s*\{\s*(?P<key>"(?:[^"\\]|\\.)*")\s*:\s*\[\s*(?=\{)')
_TURN = re.compile(r'\{\s*"(?:role|from)"')


def begin_wrapped(text: str, more: bool = False) -> re.Match[str] | None:
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
