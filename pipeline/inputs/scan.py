"""From what the user points at to files, splits, and the paths that rows are named by."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.options.config import Config
from pipeline.sources import Located, locate
from stages import readers
from stages.contract import Reader, Split
from stages.errors import SurroundingsError, UsageError
from stages.files import row_counts
from stages.files.file_version import FileVersion, take


@dataclass(frozen=True, slots=True)
class Input:
    """One file.

    Attributes:
        path: as it is opened.
        name: the shortest path that is unique among the inputs; rows are named by it.
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
    origin: str = ""
    source: int = 0
    source_name: str = ""

    @property
    def version(self) -> FileVersion | None:
        """The whole file as it was when it was hashed; None where a foreign reader hashed none."""
        known = [split.version for split in self.splits if split.version is not None]
        if not known:
            return None
        pieces = {piece.start: piece for version in known for piece in version.pieces}
        return replace(known[0], pieces=tuple(pieces[start] for start in sorted(pieces)))

    @property
    def address(self) -> str:
        """Where it can be found again from any folder."""
        return os.path.abspath(self.path) if self.path == self.origin else self.origin


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
        for file in locate(argument, config.run.cache_dir)
    ]
    return _each_once(files)


def _each_once(files: list[Located]) -> list[Located]:
    # One file under two names, by a link or another spelling, would be trained on twice.
    real = Counter(os.path.realpath(file.path) for file in files)
    twice = next((file for file in files if real[os.path.realpath(file.path)] > 1), None)
    if twice is not None:
        raise UsageError(f"{twice.origin} is named twice.", "Name each file once.")
    odd = next((file.origin for file in files if not _is_unicode(file.origin)), None)
    if odd is not None:
        raise UsageError(f"The name of {odd!r} is not UTF-8.", "Rename it; rows are named by it.")
    return files


def short_names(files: Sequence[Located]) -> list[str]:
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


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


_SEPARATED = {".csv": "", ".tsv": r", delimiter='\t'"}


def _as_rows(path: str) -> str:
    """How a table of texts becomes rows: it does not say which of its values are numbers."""
    options = _SEPARATED.get(Path(path).suffix.lower())
    if options is None:
        return ""
    write = f"[print(json.dumps(row)) for row in csv.DictReader(sys.stdin{options})]"
    rows = shlex.quote(f"{Path(path).stem}.jsonl")
    return (
        " Such a table does not say which values are numbers. Make it rows of texts with: "
        f'python -c "import csv, json, sys; {write}" < {shlex.quote(path)} > {rows}'
    )


def reader_of(file: Located) -> Reader:
    """What reads a file.

    Raises:
        UsageError: nothing does.
    """
    name = file.reader or readers.of_path(file.path)
    if name is None:
        raise UsageError(
            f"{file.origin}: no reader for this suffix.",
            f"Known: {', '.join(sorted(readers.suffixes()))}.{_as_rows(file.path)}",
        )
    return readers.load(name)


def _opened(file: Located, name: str, config: Config) -> Input:
    reader, source = reader_of(file), config.sources[file.source]
    salvage = source.options.salvage
    splits = tuple(replace(split, salvage=salvage) for split in reader.splits(file.path))
    row_counts.require_covered(file.path, splits)
    known = next((split.version for split in splits if split.version), None)
    version = known or take(file.path)
    return Input(
        path=file.path,
        name=name,
        bytes=version.size,
        sha256=version.sha256,
        reader=reader.name,
        splits=splits,
        origin=file.origin,
        source=file.source,
        source_name=source.name,
    )


def scan(config: Config, files: Sequence[Located] | None = None) -> list[Input]:
    """Open and hash every input, and cut it into splits.

    Args:
        files: what ``located`` gave, where it was called already.

    Raises:
        UsageError, DataError: an input is missing or not what its name says.
        SurroundingsError: one is not readable.
    """
    if files is None:
        files = located(config)
    inputs = []
    for file, name in zip(files, short_names(files), strict=True):
        try:
            inputs.append(_opened(file, name, config))
        except PermissionError as error:
            raise SurroundingsError(
                f"{file.origin} is not readable.", "Check its permissions."
            ) from error
        except FileNotFoundError as error:
            raise SurroundingsError(
                f"{file.origin} disappeared while it was being read.",
                "Put it back and build again.",
            ) from error
    return inputs
