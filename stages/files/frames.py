"""Pieces of compressed files of lines, where these can be entered: at zstandard frames whose sizes
are written down, and at the blocks of block gzip (BGZF).

A piece begins and ends at line ends of the text, and reads the frames that it lies in: the one in
which two pieces meet is read by both. Nothing is decompressed to find pieces but the text up to the
first line end of such a frame. Where anything is in doubt, there are no pieces.
"""

import io
import itertools
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from typing import IO, Any, NamedTuple

import zstandard

from stages import files
from stages.files.file_version import FileVersion, VersionBytes

_MAGIC = 0xFD2FB528
_SKIPPED = range(0x184D2A50, 0x184D2A60)  # frames without text
_TABLE, _FOOTER = 0x184D2A5E, 0x8F92EAB1  # of the seekable format: its frame, and its last bytes
_LEAST = 18  # bytes of a frame's header that say all about it, in both formats
_BLOCK = 1 << 16


class Frame(NamedTuple):
    """One frame: its bytes in the file, and those of its text."""

    start: int
    stop: int
    text_start: int
    text_stop: int


@dataclass(frozen=True, slots=True)
class FramedPiece:
    """One piece.

    Attributes:
        start, stop: of its text, in the text of the file.
        first, last: of the bytes that it is read from, in the file.
        skip, rest: bytes of text in these before it, and behind it.
    """

    start: int
    stop: int
    first: int
    last: int
    skip: int
    rest: int


class _DoubtError(Exception):
    """The file is not what it would have to be."""


def pieces(version: FileVersion, kind: str, least: int) -> list[FramedPiece]:
    """The pieces of a compressed file, in order; none where it has no more than one.

    Args:
        kind: ``gz`` or ``zst``.
        least: bytes of text in each but the last.
    """

    def found() -> list[int]:
        numbers: list[int] = []
        try:
            for one in _pieces(version, kind, least):
                numbers += astuple(one)
        except (_DoubtError, struct.error, EOFError, zlib.error, zstandard.ZstdError):
            return []
        return numbers

    stored = version.stored
    numbers = found() if stored is None else stored.noted(f"frames of {least} bytes", found)
    each = [FramedPiece(*numbers[at : at + 6]) for at in range(0, len(numbers), 6)]
    return each if len(each) > 1 else []


def _pieces(version: FileVersion, kind: str, least: int) -> Iterator[FramedPiece]:
    frames = [one for one in _frames(version, kind) if one.text_stop > one.text_start]
    if not frames:
        return
    cuts = _cuts(version, kind, least, frames)
    begins = [frame.text_start for frame in frames]
    places = [0, *cuts, frames[-1].text_stop]
    for number, (start, stop) in enumerate(itertools.pairwise(places)):
        first, last = (frames[bisect_right(begins, place) - 1] for place in (start, stop - 1))
        end = version.size
        if stop < places[-1]:  # frames without text between two pieces belong to the first
            end = max(last.stop, frames[bisect_right(begins, stop) - 1].start)
        skip = start - first.text_start
        rest = last.text_stop - stop
        yield FramedPiece(start, stop, first.start if number else 0, end, skip, rest)


def _cuts(version: FileVersion, kind: str, least: int, frames: list[Frame]) -> list[int]:
    """Where the text is cut: behind the first line end of a frame, so far from the last cut."""
    cuts: list[int] = []
    at = 0
    for number, frame in enumerate(frames):
        if frame.text_start >= at + least:
            at = _line_end(version, kind, frames[number:])
            if at >= frames[-1].text_stop:
                break
            cuts.append(at)
    return cuts


def _line_end(version: FileVersion, kind: str, frames: list[Frame]) -> int:
    """Behind the first line end of some frames, in the text; else where their text ends."""
    at = frames[0].text_start
    with version.range(frames[0].start, frames[-1].stop).open() as file:
        text = io.BufferedReader(Inflated(file, kind), _BLOCK)
        while block := text.read1(_BLOCK):
            found = block.find(b"\n")
            if found >= 0:
                return at + found + 1
            at += len(block)
    return at


def _frames(version: FileVersion, kind: str) -> list[Frame]:
    """All frames, those without text included: they cover the file.

    Raises:
        _DoubtError: their sizes are not written down, or cannot be found without a transfer.
    """
    with VersionBytes(version) as source:
        if kind == "gz":
            sizes = _walked(source, version, _block)
        else:
            sizes = _listed(source, version.size) or _walked(source, version, _frame)
    frames, start, text = [], 0, 0
    for size, length in sizes:
        frames.append(Frame(start, start + size, text, text + length))
        start, text = start + size, text + length
    if start != version.size or files.expands_too_far(start, text):  # read as one, and refused
        raise _DoubtError
    return frames


def _listed(source: VersionBytes, size: int) -> list[tuple[int, int]]:
    """Bytes and text of each frame, by the table at the end of a seekable file; none where there is
    no such table."""
    if size < 17:
        return []
    number, flags, magic = struct.unpack("<IBI", source.look(size - 9, size))
    entry = 12 if flags & 0x80 else 8
    length = number * entry + 9
    if magic != _FOOTER or flags & 0x7C or length + 8 > size:
        return []
    table = source.look(size - length - 8, size - 9)
    if struct.unpack_from("<II", table) != (_TABLE, length):
        return []
    sizes = [struct.unpack_from("<II", table, 8 + at * entry) for at in range(number)]
    return [*sizes, (length + 8, 0)]


def _walked(
    source: VersionBytes,
    version: FileVersion,
    measured: Callable[[VersionBytes, bytes, int, int], tuple[int, int]],
) -> list[tuple[int, int]]:
    """The same, from what stands before each frame."""
    if version.stored is not None:  # sizes are all over the file: all of it would be fetched
        raise _DoubtError
    sizes, at = [], 0
    while at < version.size:
        head = source.read(at, min(at + _LEAST, version.size))
        sizes.append(measured(source, head, at, version.size))
        at += sizes[-1][0]
    return sizes


def _frame(source: VersionBytes, head: bytes, at: int, size_of_file: int) -> tuple[int, int]:
    """Bytes and text of a zstandard frame, from its header and those of the blocks in it."""
    magic, length = struct.unpack_from("<II", head)
    if magic in _SKIPPED:
        return 8 + length, 0
    if magic != _MAGIC:
        raise _DoubtError
    said = zstandard.get_frame_parameters(head)
    if said.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise _DoubtError
    begin = at + zstandard.frame_header_size(head)
    size = _behind_blocks(source, begin, size_of_file) - at + 4 * said.has_checksum
    return size, said.content_size


def _behind_blocks(source: VersionBytes, at: int, size_of_file: int) -> int:
    is_last = False
    while not is_last:
        if at + 3 > size_of_file:
            raise _DoubtError
        header = int.from_bytes(source.read(at, at + 3), "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else size)  # of one byte that is repeated, only that byte
    return at


def _block(source: VersionBytes, head: bytes, at: int, size_of_file: int) -> tuple[int, int]:
    """Bytes and text of a block of block gzip."""
    # A header as every writer has it: gzip with one field more, of six bytes, which gives the size.
    if head[:4] != b"\x1f\x8b\x08\x04" or head[10:16] != b"\x06\0BC\x02\0":
        raise _DoubtError
    size = struct.unpack_from("<H", head, 16)[0] + 1
    if size < _LEAST + 8 or at + size > size_of_file:
        raise _DoubtError
    (text,) = struct.unpack("<I", source.read(at + size - 4, at + size))
    return size, text


# gzip members and zstandard frames, one after the other, in bounded memory.
#
# Unlike the libraries' own readers it notices a frame that is cut off, never expands one step to
# more than about 64 MB (so a compression bomb is read like any long file), and can stop at a damage
# and keep the text before it.


_MAX_TEXT = 1 << 20
# zstandard has no limit on the output of one step; a kilobyte expands to 32 MB at most.
_STEP = {"gz": 1 << 16, "zst": 1 << 10}


class Inflated(io.RawIOBase):
    """A stream of the decompressed bytes.

    Attributes:
        damage: with ``salvage``, the error that ended the stream early; None when there was none.
        bytes_in, bytes_out: compressed bytes read, and decompressed bytes.
    """

    def __init__(self, file: IO[bytes], kind: str, salvage: bool = False) -> None:
        self.damage: str | None = None
        self.bytes_in = self.bytes_out = 0
        self._file = file
        self._gzip = kind == "gz"
        self._step = _STEP[kind]
        self._salvage = salvage
        self._frame = self._new()
        self._started = False  # inside a frame
        self._frames = 0
        self._input = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def _new(self) -> Any:
        if self._gzip:
            return zlib.decompressobj(31)  # 31: gzip format, whose checksum and length are checked
        return zstandard.ZstdDecompressor(max_window_size=files.ZSTD_WINDOW).decompressobj()

    def _inflate(self) -> bytes:
        if not self._gzip:
            text: bytes = self._frame.decompress(self._input)
            self._input = self._frame.unused_data if self._frame.eof else b""
            return text
        before = self._frame.copy() if self._salvage else None
        try:
            text = self._frame.decompress(self._input, _MAX_TEXT)
        except zlib.error as error:
            if before is None:
                raise
            self.damage = str(error)
            return _until_damage(before, self._input)
        done = self._frame.eof
        self._input = self._frame.unused_data if done else self._frame.unconsumed_tail
        return text

    def _more(self) -> bool:
        """Decompress the next piece; False at the end of the file."""
        if self._frame.eof:
            self._frame = self._new()
            self._started = False
            self._frames += 1
        if self._gzip and self._frames and not self._started:
            self._input = self._input.lstrip(b"\0")  # zero bytes after a member are padding
        if not self._input:
            self._input = self._file.read(self._step)
            self.bytes_in += len(self._input)
            if not self._input:
                if self._started:
                    raise EOFError("it is cut off")
                return False
            if self._gzip and self._frames and not self._started:
                return True  # these bytes may be padding: look at them in the next round
        self._started = True
        self._ready = memoryview(self._inflate())
        self.bytes_out += len(self._ready)
        if files.expands_too_far(self.bytes_in, self.bytes_out):
            raise EOFError(f"it {files.TOO_FAR}")
        return True

    def _advance(self) -> bool:
        if self.damage is not None:
            return False
        try:
            return self._more()
        except (EOFError, zlib.error, zstandard.ZstdError) as error:
            if not self._salvage:
                raise
            self.damage = str(error)
            return False

    def readinto(self, buffer: Any) -> int:
        while not len(self._ready):
            if not self._advance():
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


def _until_damage(frame: Any, compressed: bytes) -> bytes:
    """The text before the damaged byte: decompressed byte by byte until that one."""
    text = bytearray()
    try:
        for at in range(len(compressed)):
            text += frame.decompress(compressed[at : at + 1])
    except zlib.error:
        pass
    return bytes(text)
