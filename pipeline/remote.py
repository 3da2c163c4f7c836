"""Fetches URLs through fsspec: ``s3://``, ``gs://``, ``hf://``, ``https://`` and all others that it
knows."""

import hashlib
import json
import os
import posixpath
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from pipeline import ranges, sources
from pipeline.filesystem import filesystem_of, with_patience
from pipeline.secrets import named, redacted
from pipeline.sources import Located
from stages import readers
from stages.errors import SurroundingsError, UsageError
from stages.files import file_hash
from stages.files.file_version import FilePiece, FileVersion, changed

Info: TypeAlias = dict[str, Any]
_AT_ONCE = 16


def _shown(names: list[str]) -> list[str]:
    """Sorted, without hidden files and folders."""
    return sorted(n for n in names if not any(part.startswith(".") for part in n.split("/")))


def _paths(filesystem: Any, path: str, url: str) -> dict[str, Info | None]:
    """The data files of a path, sorted: itself, those in a folder, or those that a pattern fits;
    with what a listing says of them."""
    if filesystem.protocol in (("http", "https"), "http", "https"):
        return {path: None}
    if any(char in path for char in "*?["):
        try:
            found = filesystem.glob(path, detail=True)
        except ValueError as error:
            raise UsageError(f"{redacted(url)}: {error}.", "Correct the pattern.") from error
        paths = [name for name in _shown(list(found)) if found[name]["type"] == "file"]
        if not paths:
            raise UsageError(f"Nothing matches {redacted(url)}.", "Check the pattern.")
        return {name: found[name] for name in paths}
    if not filesystem.isdir(path):
        return {path: None}
    found = filesystem.find(path, detail=True)
    names = [name for name in found if posixpath.basename(name) not in sources.SIDECARS]
    paths = [name for name in _shown(names) if readers.of_path(name)]
    sizes = {name: info.get("size") for name, info in found.items()}
    no_rows = sources.settings(paths, sizes.get, sizes.__contains__, filesystem.cat_file)
    paths = [name for name in paths if name not in no_rows]
    if not paths:
        raise UsageError(
            f"{redacted(url)} has no data files.",
            f"Known suffixes: {', '.join(sorted(readers.suffixes()))}.",
        )
    return {name: found[name] for name in paths}


def _folder(filesystem: Any, path: str, cache_dir: Path, version: str | None) -> Path:
    return cache_dir / FOLDER / key_of(str(filesystem.protocol), path, version or "")


def _address(filesystem: Any, path: str) -> str:
    return redacted(str(filesystem.unstrip_protocol(path)))


def _fetched(filesystem: Any, path: str, url: str, cache_dir: Path) -> Path:
    """The local copy of one object; fetched unless the cache has this version of it.

    Raises:
        SurroundingsError: the object changed while it was fetched.
        ConnectionError: fewer or more bytes arrived than the store says it has.
    """
    before = filesystem.info(path)
    version = ranges.version_of(before)
    folder = _folder(filesystem, path, cache_dir, version)
    if version is not None and (copy := intact_copy(folder)) is not None:
        return copy

    def fetch(target: Path) -> None:
        filesystem.get_file(path, str(target))
        filesystem.invalidate_cache()
        if ranges.version_of(filesystem.info(path)) != version:
            raise SurroundingsError(
                f"{redacted(url)} changed while it was being fetched.",
                "Build again when no other process writes to it.",
            )
        size = before.get("size")
        if size is not None and target.stat().st_size != size:
            raise ConnectionError(f"{target.stat().st_size} bytes of {size} arrived")

    name = _address(filesystem, path)
    name = posixpath.basename(unquote(urlsplit(name).path if "://" in path else name))
    return keep(folder, name or "data", fetch)


def _located(filesystem: Any, path: str, url: str, cache_dir: Path, info: Info | None) -> Located:
    """One object: what is needed to read ranges of it, or a copy of it, where its store gives no
    ranges or no version."""
    info = filesystem.info(path) if info is None else info
    address = _address(filesystem, path)
    folder, _, last = address.partition("://")[2].rpartition("/")
    origin = named(address)
    parts = tuple(part for part in (*named(folder).split("/"), last) if part)
    version, size = ranges.version_of(info), info.get("size")
    name = readers.of_path(address)
    ours = name is None or hasattr(readers.load(name), "cut")  # others read files of this machine
    copied = _folder(filesystem, path, cache_dir, version).exists()  # it gave no ranges then
    if version and size and ours and not copied and info.get("partial", True):
        folder = str(cache_dir / ranges.FOLDER)
        there = StoredObject(url, path, origin, version=version, size=size, folder=folder)
        with suppress(ranges.NoRangesError):
            head = there.look(0, min(BLOCK, size))
            suffix = suffix_of(head)
            reader = None if name else readers.of_path(f"data{suffix}")
            whole = (FilePiece(0, size),)
            seen = FileVersion(address, size, head=head[:8], pieces=whole, stored=there)
            return Located(address, parts, origin, reader=reader, version=seen)
    return Located(str(_fetched(filesystem, path, url, cache_dir)), parts, origin)


def find(url: str, cache_dir: Path) -> list[Located]:
    """The files of a URL.

    Raises:
        UsageError, SurroundingsError: see ``sources.locate``.
    """
    filesystem, start = filesystem_of(url)
    filesystem.invalidate_cache()  # of listings that this process has made before
    found = with_patience(url, _paths, filesystem, start, url)

    def located(path: str) -> Located:
        return with_patience(url, _located, filesystem, path, url, cache_dir, found[path])

    if len(found) == 1:
        return [located(path) for path in found]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each waits for a request
        return list(pool.map(located, found))


def locate(argument: str, cache_dir: Path) -> list[Located]:
    """See ``sources.locate``."""
    if argument.startswith("file://"):
        return sources.locate_here(os.path.abspath(unquote(urlsplit(argument).path)))
    return find(argument, cache_dir)


# One version of an object in a store: ranges of its bytes, and never of another version.
#
# Workers fetch what they read. What the driver looks at to plan and to detect formats is kept in
# the cache, by the object's address and version, so that it is fetched once and not by every
# process.


BLOCK = 1 << 16  # bytes that are looked at, at least
_MEMORY = 1 << 10  # blocks
_blocks: dict[tuple[str, int], bytes] = {}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What ``stages.files.file_version.Stored`` asks for.

    Attributes:
        url: with all that a request needs; it is not shown.
        path: in the file system of the URL; ``shown``: for messages.
        version: as the store gives it.
        folder: of the cache.
    """

    url: str = field(repr=False)
    path: str = field(repr=False)
    shown: str
    version: str
    size: int
    folder: str

    @property
    def key(self) -> str:
        """Names the version."""
        text = "\0".join((self.path, self.version, str(self.size)))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def read(self, start: int, stop: int) -> bytes:
        """A range of its bytes, fetched.

        Raises:
            SurroundingsError: it cannot be fetched, or is another version by now.
        """
        return with_patience(self.url, self._fetched, start, stop) if start < stop else b""

    def _fetched(self, start: int, stop: int) -> bytes:
        content = ranges.fetch(self.url, self.path, start=start, stop=stop, version=self.version)
        if content is None:
            raise changed(self.shown)
        if len(content) != stop - start:
            raise ConnectionError(f"{len(content)} bytes of {stop - start} arrived")
        return content

    def look(self, start: int, stop: int) -> bytes:
        """A few bytes, from the cache where somebody has looked at them before; raises what
        ``read`` does."""
        first, last = start // BLOCK, -(-stop // BLOCK)
        blocks = {number: self._kept(number) for number in range(first, last)}
        lacking = [number for number, block in blocks.items() if block is None]
        if lacking:
            begin = lacking[0] * BLOCK
            content = self.read(begin, min((lacking[-1] + 1) * BLOCK, self.size))
            for number in range(lacking[0], lacking[-1] + 1):
                at = number * BLOCK - begin
                blocks[number] = content[at : at + BLOCK]
                self._keep(number, content[at : at + BLOCK])
        joined = b"".join(block or b"" for block in blocks.values())
        return joined[start - first * BLOCK : stop - first * BLOCK]

    def _file(self, name: str) -> Path:
        return Path(self.folder) / self.key[:2] / f"{self.key}.{name}"

    def _kept(self, number: int) -> bytes | None:
        known = _blocks.get((self.key, number))
        return known if known is not None else ranges.read(self._file(f"{number}.block"))

    def _keep(self, number: int, block: bytes) -> None:
        while len(_blocks) >= _MEMORY:
            _blocks.pop(next(iter(_blocks)))
        _blocks[self.key, number] = block
        ranges.write(self._file(f"{number}.block"), block)

    def noted(self, what: str, find: Callable[[], list[int]]) -> list[int]:
        """Numbers that follow from its bytes, from the cache where they were found before."""
        path = self._file(f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.note")
        numbers: list[int] = ranges.noted(path, find)
        return numbers


# Copies of remote data and of standard input in the cache; a copy is complete or absent.
#
# Standard input is copied so that it can be split, hashed and read twice. Its rows are ``stdin:1``
# and so on.


MAGIC = {b"PAR1": ".parquet", b"ARROW1": ".arrow"}
FOLDER = "inputs"


def suffix_of(head: bytes) -> str:
    """A suffix for a file whose name has none, from its first bytes; lines of JSON by default."""
    return next((suffix for magic, suffix in MAGIC.items() if head.startswith(magic)), ".jsonl")


def key_of(*parts: str) -> str:
    """A folder name for a copy."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def intact_copy(folder: Path) -> Path | None:
    """The copy in a folder, if its bytes still have the hash that was noted; else None."""
    try:
        note = json.loads((folder / "copy.json").read_bytes())
        path = folder / str(note["name"])
        if file_hash.sha256(path) != note["sha256"]:
            return None
        for used in (path, folder / "copy.json"):  # pipeline cache prune removes old files
            used.touch()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return path


def keep(folder: Path, name: str, fetch: Callable[[Path], None]) -> Path:
    """Fetch into a temporary file, and rename it once it is complete.

    A name without a known suffix gets one from the first bytes, since readers go by suffixes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{uuid.uuid4().hex}.tmp"
    try:
        fetch(temporary)
        if "." not in name.strip(".") or readers.of_path(name) is None:
            with temporary.open("rb") as file:
                name += suffix_of(file.read(8))
        path = folder / name
        note = {"name": name, "sha256": file_hash.sha256(temporary)}
        os.replace(temporary, path)
        (folder / "copy.json").write_text(json.dumps(note), "utf-8")
    finally:
        temporary.unlink(missing_ok=True)
    return path


STDIN = "stdin"


def standard_input(cache_dir: Path) -> list[Located]:
    """See ``sources.locate``."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("Nothing is piped into standard input.", "For example: cat rows | ... -")
    sha256 = ""

    def fetch(path: Path) -> None:
        nonlocal sha256
        with path.open("wb") as copy:
            sha256 = file_hash.copied(sys.stdin.buffer, copy)

    waiting = cache_dir / FOLDER / uuid.uuid4().hex
    path = keep(waiting, STDIN, fetch)
    # Named by its content, so that the same input piped again is kept only once.
    home = waiting.with_name(sha256[:32])
    if intact_copy(home) is None:
        home.mkdir(exist_ok=True)
        for name in (path.name, "copy.json"):
            (waiting / name).replace(home / name)
    for left in waiting.iterdir():
        left.unlink()
    waiting.rmdir()
    return [Located(str(home / path.name), (STDIN,), STDIN)]
