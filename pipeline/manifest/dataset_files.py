"""The files that make a build a ``datasets`` directory: ``load_from_disk(DIR)["train"]``.

Written here rather than by ``datasets``, whose import takes longer than a small build. List types
are spelled ``Sequence``, which old and new releases both read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from stages.late import pa


def _feature(kind: pa.DataType) -> dict[str, Any] | list[Any]:
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        # A Sequence of a struct would be read as a struct of lists.
        return [_feature(kind.value_type)]
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "length": -1, "_type": "Sequence"}
    names = {pa.string(): "string", pa.float32(): "float32"}  # pyarrow calls float32 "float"
    return {"dtype": names.get(kind, str(kind)), "_type": "Value"}


def json_text(content: object) -> str:
    """Readable JSON with a final newline and a stable order."""
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


def write_json(path: Path, content: object) -> None:
    """Write readable JSON."""
    path.write_text(json_text(content), "utf-8")


def write_split(place: Path, name: str, schema: pa.Schema, shards: Iterable[str], key: str) -> None:
    """``dataset_info.json`` and ``state.json`` of one split.

    Args:
        shards: file names, in order.
        key: hexadecimal; the split's fingerprint is derived from it.
    """
    columns = {field.name: _feature(field.type) for field in schema}
    info = {"citation": "", "description": "", "features": columns, "homepage": "", "license": ""}
    write_json(place / name / "dataset_info.json", info)
    files = [{"filename": shard} for shard in shards]
    state: dict[str, Any] = {"_data_files": files, "_fingerprint": key[:16]}
    state |= {"_format_columns": None, "_format_kwargs": {}, "_format_type": None}
    state |= {"_output_all_columns": False, "_split": name}
    write_json(place / name / "state.json", state)


def write_splits(folder: Path, names: list[str]) -> None:
    """``dataset_dict.json``."""
    write_json(folder / "dataset_dict.json", {"splits": names})


def listed_and_alike(folder: Path, shard: str) -> bool:
    """Whether ``datasets`` finds a shard (a path in the build) in its split, and with the features
    that the split declares."""
    split, name = shard.split("/")
    try:
        state = json.loads((folder / split / "state.json").read_bytes())
        features = json.loads((folder / split / "dataset_info.json").read_bytes())["features"]
        splits = json.loads((folder / "dataset_dict.json").read_bytes())["splits"]
        with pa.memory_map(str(folder / shard)) as file:
            schema = pa.ipc.open_stream(file).schema
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return False
    alike = features == {field.name: _feature(field.type) for field in schema}
    return alike and split in splits and {"filename": name} in state["_data_files"]


# Files that other programs leave in any folder that they open: caches, thumbnails, swap files.
#
# They belong to no build and are nobody's work. So they do not keep a build from being replaced,
# and do not outlive it; they are named when they are found. Any other file that is not the build's
# own is somebody's, and is never deleted.


# Caches of datasets, of map and filter; what systems and editors leave.
FILES = (
    "cache-*.arrow *.arrow.lock *.incomplete .DS_Store ._* .directory .nfs* Thumbs.db desktop.ini "
    "*~ .*.sw? #*# .#* .~lock.*#"
).split()
FOLDERS = (".ipynb_checkpoints", "__pycache__", ".idea", "@eaDir", ".AppleDouble", ".Trashes")
_UNFINISHED = re.compile(r"tmp[a-z0-9_]{8}")  # a cache that datasets is writing
SHOWN = 5


def is_one(name: str) -> bool:
    """Whether a file is such a leftover, by its path in the build."""
    *folders, file = name.split("/")
    return (
        any(folder in FOLDERS for folder in folders)
        or any(fnmatchcase(file, pattern) for pattern in FILES)
        or _UNFINISHED.fullmatch(file) is not None
    )


def files_in(folder: Path) -> set[str]:
    """Paths of all files in a folder, relative to it; links are files."""
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def apart(present: Iterable[str], own: Collection[str]) -> tuple[list[str], list[str]]:
    """The files that are not a build's own: leftovers of programs, and those that are somebody's.

    Args:
        present: paths in the build; own: those that its manifest names.
    """
    others = sorted(name for name in present if name not in own)
    return [n for n in others if is_one(n)], [n for n in others if not is_one(n)]


def in_words(names: Collection[str]) -> str:
    """A few of them, for a message."""
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
