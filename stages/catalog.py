"""Plug-ins by file name: each module of a folder is one, and is imported when it is used.

A folder may keep several in one module: each that its ``TABLES`` names provides a ``TABLE``, and
the ``name`` of a row is its key. The ``MEMBERS`` of a folder, or of a module that is a catalog,
give for each key the object, the module that provides it, or ``module:NAME``. Other packages add
theirs through entry points: the group is ``posttrain_pipeline.`` and the last name of the folder or
module, the entry's name is the key, and its value the object itself.
"""

import functools
import importlib
import importlib.util
import pkgutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUP = "posttrain_pipeline."
_INSTALLED = (".dist-info", ".egg-info")


@functools.cache
def _own(package: str) -> dict[str, Any]:
    """Our own plug-ins of a folder by key: the object, or where it is."""
    folder = importlib.import_module(package)
    tables, members = getattr(folder, "TABLES", ()), getattr(folder, "MEMBERS", {})
    found = pkgutil.iter_modules(getattr(folder, "__path__", ()))
    files = {module.name for module in found if not module.name.startswith("_")}
    modules = [importlib.import_module(f"{package}.{name}") for name in tables]
    rows = {row.name: row for module in modules for row in module.TABLE}
    return {name: f"{package}.{name}" for name in files.difference(tables)} | rows | members


def _object(own: Any, attribute: str = "") -> Any:
    """What a value of ``_own`` stands for: the object, or a module where no attribute is asked."""
    if not isinstance(own, str):
        return own
    module, _, name = own.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, name or attribute) if name or attribute else imported


def own(package: str) -> tuple[str, ...]:
    """The keys of our own plug-ins of a folder, sorted."""
    return tuple(sorted(_own(package)))


@functools.cache
def _foreign(package: str) -> "dict[str, EntryPoint]":
    group = _GROUP + package.rpartition(".")[2]
    return {point.name: point for point in _points(tuple(sys.path)).get(group, ())}


@functools.cache
def _points(path: tuple[str, ...]) -> "dict[str, tuple[EntryPoint, ...]]":
    """Entry points by group, of what is installed on ``sys.path``."""
    foreign = [one for one in sys.meta_path if hasattr(one, "find_distributions")]
    if foreign == [PathFinder] and not any(map(_may_add, path)):
        return {}
    from importlib.metadata import entry_points

    every = entry_points()
    groups = [group for group in every.groups if group.startswith(_GROUP)]
    return {group: tuple(every.select(group=group)) for group in groups}


def _may_add(entry: str) -> bool:
    """Whether packages in an entry of ``sys.path`` may add something.

    The library that reads entry points takes longer to import than all else that ``--help`` needs,
    so where no package has one of ours, as is usual, it is not imported.
    """
    folder = Path(entry)
    try:
        every = [one for one in folder.iterdir() if one.name.lower().endswith(_INSTALLED)]
    except NotADirectoryError:
        return True  # an archive
    except OSError:
        return False
    return folder.suffix == ".egg" or any(map(_names_group, every))


def _names_group(information: Path) -> bool:
    try:
        content = (information / "entry_points.txt").read_bytes()
        return f"[{_GROUP}".encode() in b"".join(content.split())
    except OSError:
        return False


def _text(module: str) -> bytes:
    """The bytes of a module's file; empty where there is none, since importing it raises then."""
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:  # its package cannot be imported
        return b""
    path = Path(spec.origin) if spec and spec.origin else None
    return path.read_bytes() if path and path.is_file() else b""


def installed() -> list[bytes]:
    """What other packages add, for fingerprints: entry points, versions and source of modules."""
    contents = []
    points = [point for group in _points(tuple(sys.path)).values() for point in group]
    for point in sorted(points, key=lambda point: (point.group, point.name)):
        version = point.dist.version if point.dist else ""
        described = f"{point.group}\0{point.name}\0{point.value}\0{version}\0"
        contents.append(described.encode() + _text(point.module))
    return contents


def names(package: str) -> list[str]:
    """Every key of a folder, ours and other packages'."""
    return sorted({*own(package), *_foreign(package)})


def load(package: str, name: str, attribute: str) -> Any:
    """The object that a module, a row of a table or an entry point of this name provides.

    Raises:
        UsageError: there is none; the message names the nearest.
    """
    if (own := _own(package).get(name)) is not None:
        return _object(own, attribute)
    if name in _foreign(package):
        return _foreign(package)[name].load()
    raise unknown(package.rpartition(".")[2].rstrip("s"), name, names(package))


def summary(package: str, name: str) -> str:
    """The first paragraph of the docstring of a module, or of a table's row, on one line."""
    text = _object(_own(package).get(name) or _foreign(package)[name].module).__doc__ or ""
    return " ".join(text.strip().split("\n\n")[0].split())


def unknown(kind: str, name: str, known: list[str]) -> UsageError:
    """The error for an unknown name, with similar names or all of them."""
    import difflib

    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    listed = f"See: pipeline list {kind}s." if len(known) > 20 else f"Known: {', '.join(known)}."
    return UsageError(f"There is no {kind} named {name!r}.", hint + listed)
