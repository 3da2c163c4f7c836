"""Finds input data (files, URLs, standard input, the hub) and says which versions there are.

Workers read ranges of a version, wherever it lies, and no bytes of another one. What gives no
ranges or no version is fetched whole into the cache first, and the build reads that copy.
"""

import glob
import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import orjson

from pipeline.secrets import named
from stages import readers
from stages.errors import DataError, UsageError
from stages.files import file_hash, file_version
from stages.readers import arrow
from stages.tokenizers import hub


@dataclass(frozen=True, slots=True)
class Located:
    """One file of the input.

    Attributes:
        path: on this machine, or as messages have it.
        parts: its full name in pieces. Row ids have the shortest end of it that no other input has.
        origin: where it came from, without passwords, keys or signatures.
        reader: the name of its reader, where its suffix does not say so.
        source: the number of the build's source that it belongs to, from 0.
        version: of a file that is not on this machine.
    """

    path: str
    parts: tuple[str, ...]
    origin: str
    reader: str | None = None
    source: int = 0
    version: file_version.FileVersion | None = None

    @property
    def identity(self) -> str:
        """Equal where two names are of one file."""
        if self.version is not None and self.version.stored is not None:
            return self.version.stored.key
        return os.path.realpath(self.path)


def locate(argument: str, cache_dir: Path) -> list[Located]:
    """The files that an argument of the command line stands for, in a stable order.

    Raises:
        UsageError: there is nothing there.
        SurroundingsError: it cannot be fetched.
    """

    if argument == "-" or "://" in argument:
        from pipeline import remote

        if argument == "-":
            return remote.standard_input(cache_dir)
        return remote.locate(argument, cache_dir)
    if is_dataset_id(argument) and not os.path.lexists(argument):
        return locate_dataset(argument, cache_dir)
    return locate_here(argument)


# Datasets of the hub by id: ``org/name``, ``org/name:split`` or ``org/name:config:split``.
#
# ``datasets`` only says which files a split consists of. We read the files ourselves, row by row as
# they were written: loading them as one table would change values.


_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+){0,2}")


def is_dataset_id(argument: str) -> bool:
    """Whether an argument looks like an id: two words and a slash, no suffix of a data file."""
    return _ID.fullmatch(argument) is not None and readers.of_path(argument) is None


def _builder(name: str, config: str | None) -> Any:
    import datasets

    return datasets.load_dataset_builder(name, config)


def _files(name: str, config: str | None, split: str | None) -> list[str]:
    """URLs of the files of one split."""
    try:
        data_files = _builder(name, config).config.data_files or {}
    except (OSError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())[:300]
        raise UsageError(f"Dataset {name} cannot be resolved: {why}", "Check its name.") from error
    by_split = {str(key): [str(url) for url in urls] for key, urls in data_files.items()}
    if split is None and len(by_split) == 1:
        (split,) = by_split
    if split not in by_split:
        ways = " or ".join(":".join(filter(None, (name, config, key))) for key in by_split)
        what = f"has no split {split!r}" if split else "has several splits"
        raise UsageError(f"Dataset {name} {what}.", f"Name one: {ways or 'it has no data files'}")
    return by_split[split]


def locate_dataset(argument: str, cache_dir: Path) -> list[Located]:
    """See ``locate``."""
    from pipeline import remote

    name, *more = argument.split(":")
    config, split = (more[0], more[1]) if len(more) == 2 else (None, more[0] if more else None)
    if not hub.answers():
        raise UsageError(
            f"There is no file or folder {argument}, and the hub cannot be reached.",
            "Check the path, or the connection.",
        )
    urls = _files(name, config, split)
    odd = next((url for url in urls if readers.of_path(url) is None), None)
    if odd is not None:
        raise DataError(
            f"Dataset {name} is made of files that have no reader, {odd.rpartition('/')[2]} "
            "for example.",
            "Load it with datasets, save_to_disk, and give that folder.",
        )
    return [
        file
        for url in urls
        for file in (remote.locate(url, cache_dir) if "://" in url else locate_here(url))
    ]


# Files, folders and globs of this machine.


# Files that datasets writes beside its data; they hold no rows.
SIDECARS = ("dataset_info.json", "dataset_infos.json", "state.json", "dataset_dict.json")


def _file(path: str, reader: str | None = None) -> Located:
    folder, name = os.path.split(os.path.abspath(file_hash.required(path)))
    parts = (*Path(named(folder)).parts, name)
    return Located(path, parts=parts, origin=named(path), reader=reader)


def _there(path: str) -> str:
    """A path that was listed, if it is no link to nothing."""
    if os.path.islink(path) and not os.path.exists(path):
        raise UsageError(
            f"{path} is a broken link: {os.readlink(path)} is not there.",
            "Put back what it points to, or remove the link.",
        )
    return path


def _unlisted(error: OSError) -> NoReturn:
    raise error  # os.walk would pass over a folder that it may not read


def _folders(folder: str) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Of each folder of a tree, the files of a dataset that was saved there; or all files but
    hidden ones and those that datasets writes beside its data."""
    entered = set()
    for root, folders, files in os.walk(folder, onerror=_unlisted, followlinks=True):
        real = os.path.realpath(root)
        if real in entered:  # a link to a folder that was read already, or to one of its parents
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        saved = arrow.files(root)
        if saved is not None:  # its state.json lists the files; other programs may keep some there
            folders.clear()
            yield saved, ()
            continue
        names = sorted(n for n in files if not n.startswith(".") and n not in SIDECARS)
        yield (), [os.path.join(root, name) for name in names]


# What shows that a folder is a repository of the hub, whose settings lie beside its data.
_REPOSITORY = ("README.md", ".gitattributes")
_MOST_SETTINGS = 1 << 20  # bytes that a file of settings has
_NO_SIZE = 1 << 62


def _are_settings(content: bytes) -> bool:
    """Whether a file of JSON in a repository of the hub is one object that is no row: it has no
    list of objects, as turns are, and does not wrap rows."""
    try:
        held = orjson.loads(content)
    except orjson.JSONDecodeError:
        return False  # said by who reads it
    if not isinstance(held, dict):
        return False
    lists = [one for one in held.values() if isinstance(one, list)]
    return not any(isinstance(one, dict) for one in itertools.chain(*lists))


def settings(
    paths: Sequence[str],
    size_of: Callable[[str], int | None],
    exists: Callable[[str], bool],
    read: Callable[[str], bytes],
) -> set[str]:
    """Which of the data files of a folder are settings; none, where there is nothing else: then
    they are rows, one a file. What is too large, or has no size, is not read."""
    found = set()
    for path in paths:
        small = readers.of_path(path) == "json" and (size_of(path) or _NO_SIZE) <= _MOST_SETTINGS
        if small and any(exists(posixpath.join(posixpath.dirname(path), n)) for n in _REPOSITORY):
            found.update([path] if _are_settings(read(path)) else [])
    return found if len(found) < len(paths) else set()


def _size(path: str) -> int | None:
    return os.path.getsize(path) if os.path.exists(path) else None


def _content(path: str) -> bytes:
    with suppress(OSError):  # said by who reads it
        return Path(path).read_bytes()
    return b""


def _tree(folder: str) -> tuple[list[Located], list[str]]:
    """The data files of a folder, and the files that hold no rows."""
    found = [*_folders(folder)]
    data = [path for _, others in found for path in others if readers.of_path(path)]
    no_rows = settings(data, _size, os.path.exists, _content)
    located: list[Located] = []
    left: list[str] = []
    for saved, others in found:
        located += [_file(_there(path), arrow.HF.name) for path in saved]
        for path in map(_there, others):
            if path in no_rows or not readers.of_path(path):
                left.append(named(path))
            else:
                located.append(_file(path))
    return located, left


def _in_folder(folder: str) -> list[Located]:
    located, _ = _tree(folder)
    if not located:
        raise UsageError(
            f"Folder {folder} has no data files.",
            f"Known suffixes: {', '.join(sorted(readers.suffixes()))}.",
        )
    return located


def left_out(arguments: Sequence[str]) -> list[str]:
    """Files in the given folders that hold no rows; hidden files are not counted."""
    return [path for one in filter(os.path.isdir, arguments) for path in _tree(one)[1]]


def in_words(names: Sequence[str]) -> str:
    """A sentence part that names files without rows; of many the first few."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more} (no rows in them)"


def locate_here(argument: str) -> list[Located]:
    """See ``locate``."""
    if os.path.isdir(argument):
        return _in_folder(argument)
    try:
        os.stat(argument)
    except PermissionError:
        raise
    except OSError:
        pass
    else:
        return [_file(argument)]
    if glob.has_magic(argument) and not os.path.lexists(argument):
        found = sorted(glob.glob(argument, recursive=True))
        matched = [path for path in found if not os.path.isdir(_there(path))]
        if not matched:
            raise UsageError(f"Nothing matches {argument}.", "Check the pattern.")
        return [_file(path) for path in matched]
    raise UsageError(f"There is no file or folder {_there(argument)}.", "Check the path.")
