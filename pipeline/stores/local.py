"""Files, folders and globs of this machine."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pipeline.secrets import named
from pipeline.stores.sources import Located
from stages import readers
from stages.errors import UsageError
from stages.files import file_hash
from stages.readers import arrow

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


def _in_folder(folder: str) -> list[Located]:
    located: list[Located] = []
    entered = set()
    for root, folders, files in os.walk(folder, onerror=_unlisted, followlinks=True):
        real = os.path.realpath(root)
        if real in entered:  # a link to a folder that was read already, or to one of its parents
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        saved = arrow.files(root)
        if saved is not None:  # saved by datasets: its state.json lists the files
            located += [_file(_there(path), arrow.HF.name) for path in saved]
            folders.clear()
            continue
        names = sorted(n for n in files if not n.startswith(".") and n not in SIDECARS)
        paths = [_there(os.path.join(root, name)) for name in names]
        located += [_file(path) for path in paths if readers.of_path(path)]
    if not located:
        raise UsageError(
            f"Folder {folder} has no data files.",
            f"Known suffixes: {', '.join(sorted(readers.suffixes()))}.",
        )
    return located


def left_out(arguments: Sequence[str]) -> list[str]:
    """Files in the given folders that have no reader; hidden files are not counted."""
    unread: list[str] = []
    for folder in filter(os.path.isdir, arguments):
        for root, folders, files in os.walk(folder):
            if arrow.files(root) is not None:  # saved by datasets, which may keep other files there
                folders.clear()
                continue
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            names = sorted(n for n in files if not n.startswith(".") and n not in SIDECARS)
            unread += [named(os.path.join(root, n)) for n in names if not readers.of_path(n)]
    return unread


def in_words(names: Sequence[str]) -> str:
    """A sentence part that names files without a reader; of many the first few."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more} (no reader for the suffix)"


def locate(argument: str) -> list[Located]:
    """See ``sources.locate``."""
    if os.path.isdir(argument):
        return _in_folder(argument)
    if os.path.exists(argument):
        return [_file(argument)]
    if glob.has_magic(argument) and not os.path.lexists(argument):
        found = sorted(glob.glob(argument, recursive=True))
        matched = [path for path in found if not os.path.isdir(_there(path))]
        if not matched:
            raise UsageError(f"Nothing matches {argument}.", "Check the pattern.")
        return [_file(path) for path in matched]
    raise UsageError(f"There is no file or folder {_there(argument)}.", "Check the path.")
