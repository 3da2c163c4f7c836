"""From what the user points at to files, splits, and the paths that rows are named by."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pipeline import ranges
from pipeline.inputs.opening import reader_of, require_used
from pipeline.options.config import Config
from pipeline.sources import Located, locate
from stages.contract import Cutter, Reader, Split
from stages.errors import SurroundingsError, UsageError, no_permission
from stages.files import content, row_counts
from stages.files.file_version import FileVersion, look, take

_SURROGATE = re.compile("[\ud800-\udfff]")  # stands for a byte that is not UTF-8
SMALL = 32 << 20  # bytes of all inputs that are hashed before anything else is done


@dataclass(frozen=True, slots=True)
class Input:
    """One file.

    Attributes:
        path: as it is opened.
        name: the shortest path that is unique among the inputs; rows are named by it.
        sha256: of its bytes; where it has several pieces, of their hashes. Empty until all of it
            was read.
        seen: names the version that was looked at, the same in every process that looks.
        origin: as the user knows it, without secrets.
        source: the number of the build's source that it belongs to, from 0.
        source_name: that source's name; empty for the one source of a command.
    """

    path: str
    name: str
    bytes: int
    sha256: str
    reader: str
    splits: tuple[Split, ...]
    seen: str = ""
    origin: str = ""
    source: int = 0
    source_name: str = ""

    @property
    def version(self) -> FileVersion | None:
        """The whole file as it was when it was looked at; None where a foreign reader did not."""
        return content.joined(self.splits)

    @property
    def pieces(self) -> int:
        """How many pieces of it are hashed, each by itself."""
        return max(len(self.splits), 1) if self.version is not None else 1

    @property
    def parts(self) -> tuple[str, ...]:
        """Its name in pieces, as of ``Located``."""
        return (self.name,)

    def having(self, splits: Sequence[Split]) -> "Input":
        """The same with splits of which more is known."""
        return replace(self, splits=tuple(splits), sha256=self.sha256 or sha256_of(splits))

    @property
    def address(self) -> str:
        """Where it can be found again from any folder."""
        is_here = self.path == self.origin and "://" not in self.path
        return os.path.abspath(self.path) if is_here else self.origin


def sha256_of(splits: Sequence[Split]) -> str:
    """The hash of a file: of its bytes where they are one piece, else of the hashes of its pieces.
    Empty where one of them is not known yet."""
    hashes = [split.sha256 for split in splits]
    if not all(hashes):
        return ""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def expand(arguments: Sequence[str], cache_dir: Path) -> list[Located]:
    """Files behind everything that was named, in a stable order.

    Raises:
        UsageError: something is missing, empty of data, or named twice.
        SurroundingsError: something cannot be fetched.
    """
    return _each_once([file for argument in arguments for file in locate(argument, cache_dir)])


def located(config: Config) -> list[Located]:
    """The files of all sources, in their order; raises as ``expand`` does."""
    files = [
        replace(file, source=number)
        for number, source in enumerate(config.sources)
        for argument in source.options.data
        for file in locate(argument, config.run.cache)
    ]
    files = _each_once(files)
    require_used(files, config)
    return files


def _each_once(files: list[Located]) -> list[Located]:
    # One file under two names, by a link or another spelling, would be trained on twice.
    real = Counter(file.identity for file in files)
    twice = next((file for file in files if real[file.identity] > 1), None)
    if twice is not None:
        raise UsageError(f"{twice.origin} is named twice.", "Name each file once.")
    called: dict[tuple[str, ...], Located] = {}
    for file in files:  # rows of two inputs with one name could not be told apart
        other = called.setdefault(file.parts, file)
        if other is not file:
            raise UsageError(
                f"{other.origin} and another input, {file.origin}, have the same name: row ids "
                "have only bucket or host, and path.",
                "Download one of them, and give the file.",
            )
    odd = next((one.origin for one in files if _SURROGATE.search(one.origin)), None)
    if odd is not None:
        raise UsageError(f"The name of {odd!r} is not UTF-8.", "Rename it; row ids contain it.")
    return files


def short_names(files: Sequence[Located | Input]) -> list[str]:
    """The shortest end of each file's name that no other shares."""
    # How many files share each ending of one, two, ... parts: counted once for all of them, since
    # a folder may have thousands.
    deepest = max((len(file.parts) for file in files), default=0)
    shared = [Counter(file.parts[-n:] for file in files) for n in range(1, deepest + 1)]
    names = []
    for parts in (file.parts for file in files):
        length = 1
        while length < len(parts) and shared[length - 1][parts[-length:]] > 1:
            length += 1
        names.append("/".join(parts[-length:]))
    return names


def _opened(file: Located, name: str, config: Config, *, is_small: bool, hash_now: bool) -> Input:
    source = config.sources[file.source]
    reader = reader_of(file, source.options)
    splits = [
        replace(split, salvage=source.options.salvage)
        for split in _splits(reader, file, config, is_small=is_small, hash_now=hash_now)
    ]
    row_counts.require_covered(file.path, splits)
    known = content.joined(splits)
    version = known or take(file.path)
    sha256 = sha256_of(splits) if known else version.sha256
    return Input(
        path=file.path,
        name=name,
        bytes=version.size,
        sha256=sha256,
        seen=sha256 if is_small else version.mark,
        reader=reader.name,
        splits=tuple(splits),
        origin=file.origin,
        source=file.source,
        source_name=source.name,
    )


def _splits(
    reader: Reader, file: Located, config: Config, *, is_small: bool, hash_now: bool
) -> list[Split]:
    run, salvage = config.run, config.sources[file.source].options.salvage
    if not hasattr(reader, "cut"):  # a reader of another package, which hashes what it cuts
        return reader.splits(file.path)
    cutter = cast("Cutter", reader)
    if salvage:
        cutter = content.Uncut(cutter)
    version = file.version or look(file.path)
    if hash_now or not version.is_fixed:
        hold = SMALL if is_small and version.stored is not None else 0
        return content.read_all(cutter, version, hold)
    splits = cutter.cut(version)
    return splits if run.verify else [ranges.known(run.cache, split) for split in splits]


def scan(
    config: Config, files: Sequence[Located] | None = None, hash_now: bool = True
) -> list[Input]:
    """Open every input and cut it into splits.

    Args:
        files: what ``located`` gave, where it was called already.
        hash_now: read all bytes for their hashes; else only those of few and small files, whose
            build is then known before anything is made, and of files that were just written.

    Raises:
        UsageError, DataError: an input is missing or not what its name says.
        SurroundingsError: one is not readable.
    """
    if files is None:
        files = located(config)
    is_small = _is_small(files)
    inputs = []
    for file, name in zip(files, short_names(files), strict=True):
        try:
            hashed = hash_now or is_small
            inputs.append(_opened(file, name, config, is_small=is_small, hash_now=hashed))
        except PermissionError as error:
            raise no_permission(file.origin) from error
        except FileNotFoundError as error:
            raise SurroundingsError(
                f"{file.origin} disappeared while it was being read.",
                "Put it back and build again.",
            ) from error
    return inputs


def _is_small(files: Sequence[Located]) -> bool:
    size = 0
    for file in files:
        with suppress(OSError):  # said by who opens it
            size += file.version.size if file.version else os.path.getsize(file.path)
    return size <= SMALL
