"""Values that are paths, which in a recipe count from its folder; and where a build goes: a folder
of this machine, or a place in a store beside a folder here.

A recipe is there to be built again, so its builds are versions; ``pipeline run`` and a call make
one build. An output that is one build already stays one: trainers read it by that path.
"""

import glob
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

import click

from pipeline.manifest.manifest import MANIFEST
from pipeline.options.many_values import Texts
from pipeline.options.values import Schema, Value, limited, plain
from pipeline.secrets import redacted
from pipeline.stores import ADDRESS, address_of, default_cache, is_address
from stages.errors import UsageError
from stages.files import file_hash

# Where a build can be put; others are published to, if at all.
_STORES = set("s3 s3a gs gcs abfs abfss az adl oci oss r2".split())


def require_local(path: str | PathLike[str], what: str, *, build: bool) -> None:
    """A path that is written to is one of this machine.

    Args:
        what: the option, as the sentence begins with it.
        build: whether a build goes there.

    Raises:
        UsageError: it is an address. As a path, ``s3://bucket/x`` would be a folder called ``s3:``.
    """
    text = fspath(path)
    if ADDRESS.match(text) is None:
        return
    address = redacted(ADDRESS.sub(r"\1://", text, count=1))
    remedy = "Give a path of this machine."
    if build:
        remedy = f"Write to a folder, and then: pipeline publish DIR {address}"
    raise UsageError(f"{what} {address} is an address, not a path of this machine.", remedy)


def require_output(path: str | PathLike[str], what: str, *, build: bool) -> None:
    """A path that is written to is one of this machine, or an address in a store.

    Raises:
        UsageError: it is another address: of the web, of the hub.
    """
    address = address_of(path)
    if address.partition("://")[0].lower() not in _STORES:
        require_local(path, what, build=build)
    elif redacted(address) != address:  # it is kept with what lies there
        what = f"{what} {redacted(address)} has a user or a query."
        raise UsageError(what, "Leave them out: the store's own settings have credentials.")


def read_text(path: str | PathLike[str]) -> str:
    """A file's text.

    Raises:
        UsageError: it is not there, or not UTF-8.
        IrregularError: it is no file.
    """
    file = file_hash.required(Path(path))
    if not file.is_file():
        raise UsageError(f"There is no file {fspath(path)}.", "Check the path.")
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error}.", "Give a text file.") from error


# Paths of commands that are written to: on this machine, where a build appears in one step.


FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class LocalPath(click.Path):
    """A path that is no address.

    Args:
        build: whether a build goes there.

    Raises:
        UsageError: it is one, ``s3://bucket/path`` for instance.
    """

    require = staticmethod(require_local)

    def __init__(self, *, build: bool = False, **settings: Any) -> None:
        super().__init__(path_type=Path, **settings)
        self._build = build

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        self.require(value, param.opts[0] if param else "the path", build=self._build)
        return super().convert(value, param, ctx)


class OutputPath(LocalPath):
    """A path of this machine, or an address in a store."""

    require = staticmethod(require_output)


class BuildPath(click.Path):
    """A folder that is there, or an address in a store, which is asked when it is read."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Path(value) if is_address(value) else super().convert(value, param, ctx)


# Values of options.


@dataclass(eq=False, repr=False)
class Place(Value):
    """A path of this machine: of a file or a folder.

    Attributes:
        settings: of ``click.Path``: which of the two, and whether it must be there.
        build: whether a build goes there, which can be published to an address afterwards.
    """

    settings: tuple[tuple[str, bool], ...] = ()
    build: bool = False
    kind: ClassVar[Any] = LocalPath
    called = "a path"

    def of_click(self) -> dict[str, Any]:
        return {"type": self.kind(build=self.build, **dict(self.settings)), "metavar": self.metavar}

    def loosened(self, value: Any) -> Any:
        return plain(value)

    def anchored(self, value: Any, folder: str) -> Any:
        return each(self.loosened(value), lambda one: under(folder, one))

    def settled(self, value: Any) -> Any:
        self.kind.require(value, "the path", build=self.build)
        return Path(value)


class StorePlace(Place):
    """A path of this machine, or an address in a store."""

    called = "a path or an address"
    kind = OutputPath


@dataclass(eq=False, repr=False)
class TextFile(Place):
    """A file that must be there, whose text is the option's value."""

    settings: tuple[tuple[str, bool], ...] = (("exists", True), ("dir_okay", False))
    called = "the path of a file"

    def settled(self, value: Any) -> Any:
        return read_text(value)


class TextFiles(Texts, TextFile):
    """Several of them, of which those in Python run; with each text comes its file's name."""

    called = "a list of paths of files"

    def runs(self, value: Any) -> bool:
        listed = value if isinstance(value, list) else [value]
        return any(Path(str(path)).name.endswith(".py") for path in listed)

    def settled(self, value: Any) -> Any:
        return tuple((Path(path).name, read_text(path)) for path in value)


class Data(Texts):
    """Files, folders, globs and addresses of inputs."""

    called = "one path or several"

    def schema(self) -> Schema:
        return limited("array", items={"type": "string"}, minItems=1)

    def anchored(self, value: Any, folder: str) -> Any:
        return each(self.loosened(value), lambda one: _data_under(folder, one))


class ModelName(Value):
    """A profile, a hub id, a directory or a profile file."""

    def anchored(self, value: Any, folder: str) -> Any:
        if not isinstance(value, str):
            return value
        path = value.startswith((".", os.sep, "~")) or value.endswith((os.sep, ".toml"))
        there = value.count("/") == 1 and os.path.isdir(os.path.join(folder, value))
        return under(folder, value) if path or value.count("/") > 1 or there else value


class Origin(Value):
    """Where rows are from, which everybody may read."""

    def loosened(self, value: Any) -> Any:
        return redacted(value) if isinstance(value, str) else super().loosened(value)

    settled = loosened


def each(value: Any, change: Callable[[str], str]) -> Any:
    """A path changed, or all of a list; what is none stays."""
    if isinstance(value, list):
        return [change(one) if isinstance(one, str) else one for one in value]
    return change(value) if isinstance(value, str) else value


def _data_under(folder: str, argument: str) -> str:
    """An argument of the command line that counts from a folder, as it counts from here."""
    from pipeline import sources

    path = under(folder, argument)
    if argument == "-" or os.path.lexists(path):
        return argument if argument == "-" else path
    if sources.is_dataset_id(argument):
        return argument
    if glob.has_magic(argument) and path != argument:  # the folder's own name is no pattern
        return os.path.join(glob.escape(folder), argument)
    return path


def under(folder: str, path: str) -> str:
    """A path that counts from a folder, as it counts from here."""
    return path if "://" in path else os.path.join(folder, os.path.expanduser(path))


def hashed(files: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    """Names and texts of files, recorded as names and hashes."""
    return [{"file": n, "sha256": hashlib.sha256(text.encode()).hexdigest()} for n, text in files]


# Where a build goes, and how many versions the builds of a recipe keep there.

OUTPUTS = "outputs"  # in the cache: where builds for stores are made
SHARED = "shared"  # in the cache: a folder for each cache in a store


class Output:
    """The part of ``RunOptions`` that says where.

    ``output`` is what was given; pathlib has dropped a slash of an address, which ``address`` has.
    """

    __slots__ = ()
    output: Path
    cache_dir: Path
    single_writer: bool

    @property
    def address(self) -> str:
        """The address of an output in a store; empty for a folder."""
        return address_of(self.output)

    @property
    def shown(self) -> str:
        """The output, as the user knows it, without keys and signatures."""
        return redacted(self.address) if self.address else str(self.output)

    @property
    def place(self) -> Path:
        """The output on this machine: of one in a store, the folder that it is made beside."""
        if not self.address:
            return self.output
        return self.cache / OUTPUTS / hashlib.sha256(self.address.encode()).hexdigest()[:32]

    @property
    def cache(self) -> Path:
        """The cache of this machine."""
        return local_cache(self.cache_dir)

    @property
    def shared(self) -> str:
        """The address of parts that machines share; empty where the cache is a folder."""
        address = address_of(self.cache_dir)
        return f"{address.rstrip('/')}/parts" if address else ""


def local_cache(cache_dir: Path) -> Path:
    """The folder of this machine for a cache: itself, or that of the copies from a store."""
    address = address_of(cache_dir)
    if not address:
        return cache_dir
    return default_cache() / SHARED / hashlib.sha256(address.encode()).hexdigest()[:32]


BY_RECIPE = 7


def versions_where_unsaid(output: Path) -> tuple[int, tuple[str, ...]]:
    """The number for an output, 0 where that is one build; and notes for the user about it."""
    # What cannot be looked at is no build here; to publish there fails with the reason.
    if not os.path.lexists(output / MANIFEST):
        return BY_RECIPE, ()
    note = (
        f"{output} is one build and stays one: each build of the recipe replaces it. To keep "
        f"versions, give a new output (-o); keep = 0 in the recipe says that one build is meant."
    )
    return 0, (note,)
