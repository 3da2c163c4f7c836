"""What a shell completes for arguments and options: files by what they are, and names.

It is asked at every press of a key, so it imports nothing heavy and opens no file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem

from stages import catalog

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _items(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def _entries(begun: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What lies in the folder of a path that is being typed, as it would be typed."""
    folder, slash, name = begun.rpartition("/")
    try:
        place = Path(f"{folder}{slash}" or ".").expanduser()
        found = sorted(os.scandir(place), key=lambda one: one.name)
    except (OSError, RuntimeError):  # there is no such folder, or no such user
        return
    for one in found:
        if one.name.startswith(name) and (name or not one.name.startswith(".")):
            yield f"{folder}{slash}{one.name}", one


def _paths(begun: str, wanted: Callable[[os.DirEntry[str]], bool]) -> list[CompletionItem]:
    """Entries that are wanted, and folders, in which there may be some."""
    found = []
    for path, one in _entries(begun):
        if wanted(one):
            found.append(CompletionItem(path))
        elif one.is_dir():
            found.append(CompletionItem(f"{path}/"))
    return found


def files(*suffixes: str) -> Completer:
    """Files whose names end in one of these; any file where none is given."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        return _paths(begun, lambda one: one.is_file() and one.name.endswith(suffixes or ("",)))

    return complete


def data(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Files that a reader reads; recipes, where the argument may be one."""
    from stages import readers

    names = catalog.names(readers.__name__)
    known = [suffix for name in names for suffix in readers.load(name).suffixes]
    recipe = [".toml"] if "RECIPE" in (parameter.metavar or "") else []
    return files(*known, *recipe)(ctx, parameter, begun)


def builds(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Folders of builds."""
    return _paths(begun, lambda one: (Path(one.path) / "manifest.json").is_file())


def models(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Profiles; directories and profile files, once a path is begun."""
    if begun.startswith((".", "/", "~")):
        return _paths(begun, lambda one: one.is_file() and one.name.endswith(".toml"))
    from stages.tokenizers.profiles import all_profiles

    return _items(sorted(all_profiles()), begun)


def formats(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Record formats; the variants of one, once its name is followed by a slash."""
    known = ["auto", *catalog.names("stages.formats")]
    name, slash, _variant = begun.partition("/")
    if slash and name in known[1:]:
        from stages import formats as every

        known = [f"{name}/{variant}" for variant in every.load(name).variants]
    return _items(known, begun)


def trainers(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Trainers whose columns can be written."""
    return _items((name.replace("_", "-") for name in catalog.names("pipeline.exports")), begun)


def engines(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Ways to work in parallel."""
    return _items(catalog.names("pipeline.executors"), begun)


OF_OPTION: dict[str, Completer] = {
    "model": models,
    "format": formats,
    "trainer": trainers,
    "engine": engines,
    "data": data,
    "test": data,
    "decontaminate": data,
    "chat_template": files(".jinja", ".j2", ".txt"),
    "expectations": files(".json", ".py"),
    "output": builds,
}
