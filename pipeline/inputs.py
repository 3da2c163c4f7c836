"""From what the user points at to files, splits, and the paths that rows are named by."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stages import readers
from stages.contract import Split
from stages.errors import DataError, SurroundingsError, UsageError
from stages.readers import _bytes


@dataclass(frozen=True, slots=True)
class Input:
    """One file.

    Attributes:
        path: as it is opened.
        name: the shortest path that is unique among the inputs; rows are named by it.
    """

    path: str
    name: str
    bytes: int
    sha256: str
    reader: str
    splits: tuple[Split, ...]


def _reader_of(path: str) -> str | None:
    known = readers.suffixes()
    fitting = [suffix for suffix in known if path.endswith(suffix)]
    return known[max(fitting, key=len)] if fitting else None


def _in_folder(folder: str) -> list[str]:
    found = []
    for root, folders, files in os.walk(folder):
        folders.sort()
        found += [os.path.join(root, name) for name in sorted(files) if not name.startswith(".")]
    ours = ("dataset_info.json", "state.json", "dataset_dict.json")  # beside save_to_disk shards
    data = [path for path in found if _reader_of(path) and not path.endswith(ours)]
    if not data:
        raise UsageError(
            f"Folder {folder} has no data files.",
            f"Known suffixes: {', '.join(sorted(readers.suffixes()))}.",
        )
    return data


def expand(arguments: Sequence[str]) -> list[str]:
    """Files behind files, folders and globs, in a stable order.

    Raises:
        UsageError: something is missing, empty of data, or named twice.
    """
    paths: list[str] = []
    for argument in arguments:
        if os.path.isdir(argument):
            paths += _in_folder(argument)
        elif os.path.exists(argument):
            paths.append(argument)
        elif glob.has_magic(argument):
            matched = sorted(p for p in glob.glob(argument, recursive=True) if os.path.isfile(p))
            if not matched:
                raise UsageError(f"Nothing matches {argument}.", "Check the pattern.")
            paths += matched
        else:
            raise UsageError(f"There is no file or folder {argument}.", "Check the path.")
    real = [os.path.realpath(path) for path in paths]
    twice = next((p for p, r in zip(paths, real, strict=True) if real.count(r) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice.", "Name each file once.")
    return paths


def short_names(paths: Sequence[str]) -> list[str]:
    """The shortest trailing part of each path that no other shares."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    names = []
    for mine in parts:
        length = 1
        while length < len(mine) and sum(other[-length:] == mine[-length:] for other in parts) > 1:
            length += 1
        names.append("/".join(mine[-length:]))
    return names


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _opened(path: str, name: str) -> Input:
    reader = _reader_of(path)
    if reader is None:
        raise UsageError(
            f"{path}: no reader for this suffix.",
            f"Known: {', '.join(sorted(readers.suffixes()))}.",
        )
    size = os.path.getsize(path)
    if size == 0:
        raise DataError(f"{path} is empty.", "Give a file with rows.")
    splits = tuple(readers.load(reader).splits(path))
    sha256 = splits[0].sha256 if len(splits) == 1 else _bytes.sha256_of(path)
    return Input(path, name, size, sha256, reader, splits)


def scan(arguments: Sequence[str]) -> list[Input]:
    """Open and hash every input, and cut it into splits.

    Raises:
        UsageError, DataError: an input is missing, empty or not what its name says.
        SurroundingsError: one may not be read.
    """
    paths = expand(arguments)
    odd = next((path for path in paths if not _is_unicode(path)), None)
    if odd is not None:
        raise UsageError(f"The name of {odd!r} is not UTF-8.", "Rename it; rows are named by it.")
    found = []
    for path, name in zip(paths, short_names(paths), strict=True):
        try:
            found.append(_opened(path, name))
        except PermissionError as error:
            raise SurroundingsError(f"{path} may not be read.", "Check its permissions.") from error
    return found


def identity(inputs: Sequence[tuple[str, str]]) -> str:
    """Hash over the inputs' names and the hashes of their bytes."""
    digest = hashlib.sha256()
    for name, sha256 in inputs:
        digest.update(f"{name}\0{sha256}\0".encode())
    return digest.hexdigest()
