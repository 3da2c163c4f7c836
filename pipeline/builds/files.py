"""Compares the files of a build with the hashes in its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.manifest.manifest import MANIFEST
from pipeline.manifest.records import RUN
from stages.files import file_hash

MISSING, HASH, UNKNOWN = "missing", "hash", "unknown"
_UNLISTED = {RUN, MANIFEST}  # no manifest names these
# What the hub has in every repository, and what its library leaves in a folder that it fills.
_OF_THE_HUB = (".gitattributes", ".cache/huggingface/")


@dataclass(frozen=True, slots=True)
class Difference:
    """A file that differs from the manifest; ``code`` is ``missing``, ``hash`` or ``unknown``.

    Attributes:
        name: its path in the build.
    """

    name: str
    code: str
    detail: str


def links(folder: Path, files: Iterable[str]) -> list[str]:
    """Those of a build's files that are links, or lie behind one: others decide what they are."""
    steps = {name: (Path(name), *Path(name).parents[:-1]) for name in (*files, *_UNLISTED)}
    return [name for name, some in steps.items() if any((folder / s).is_symlink() for s in some)]


def differences(
    folder: Path, files: Mapping[str, str], sha256: Callable[[Path], str] = file_hash.sha256
) -> Iterator[Difference]:
    """Every file that is missing, changed, or not named.

    Args:
        files: sha256 by path, as a manifest has them.
        sha256: gives that of a file; by default every file is read.
    """
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    linked = links(folder, files)
    for name in sorted({*files, *linked}):
        if name in linked:
            yield Difference(name, MISSING, "a link is in its place")
        elif name not in present:
            yield Difference(name, MISSING, "the manifest lists it, but it does not exist")
        elif not (folder / name).is_file():
            yield Difference(name, HASH, "it is not a regular file")
        elif sha256(folder / name) != files[name]:
            yield Difference(name, HASH, f"its sha256 is not {files[name]}")
    for name in sorted(present - {*files} - _UNLISTED):
        if name.startswith(_OF_THE_HUB):
            continue
        yield Difference(name, UNKNOWN, "the manifest does not list it")


def hash_files(folder: Path, known: Mapping[str, str]) -> dict[str, str]:
    """sha256 of every file of a build, by path; ``known`` spares hashing shards twice."""
    hashes = dict(known)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in hashes and name not in _UNLISTED:
            hashes[name] = file_hash.sha256(path)
    return dict(sorted(hashes.items()))
