"""Datasets of the hub by id: ``org/name``, ``org/name:split`` or ``org/name:config:split``.

``datasets`` only says which files a split consists of. We read the files ourselves, row by row as
they were written: loading them as one table would change values.
"""

import re
from pathlib import Path
from typing import Any

from pipeline.stores import local, remote, sources
from stages import readers
from stages.errors import DataError, UsageError
from stages.tokenizers import hub

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
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"Dataset {name} cannot be resolved: {reason}", "Check its name."
        ) from error
    by_split = {str(key): [str(url) for url in urls] for key, urls in data_files.items()}
    if split is None and len(by_split) == 1:
        (split,) = by_split
    if split not in by_split:
        ways = " or ".join(":".join(filter(None, (name, config, key))) for key in by_split)
        what = f"has no split {split!r}" if split else "has several splits"
        raise UsageError(f"Dataset {name} {what}.", f"Name one: {ways or 'it has no data files'}")
    return by_split[split]


def locate(argument: str, cache_dir: Path) -> list[sources.Located]:
    """See ``sources.locate``."""
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
        for file in (remote.locate(url, cache_dir) if "://" in url else local.locate(url))
    ]
