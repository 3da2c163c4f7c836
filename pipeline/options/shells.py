"""Shells that can complete ``pipeline``, and where the script of each is put: ``completion.bash``
and so on, beside this file.

The script asks the program at each press of the key. A word that ends in ``/`` is a folder in
which one goes on, so no space is put after it.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import click
from click import shell_completion as clicks
from click.shell_completion import CompletionItem

from stages import catalog

NAME = "pipeline"
VARIABLE = "_PIPELINE_COMPLETE"  # of the environment: what the program is asked

_KINDS = {"bash": clicks.BashComplete, "zsh": clicks.ZshComplete, "fish": clicks.FishComplete}


def _script(name: str) -> str:
    return Path(__file__).with_name(f"completion.{name}").read_text("utf-8")


def offered() -> None:
    """Have click use our scripts, which read one word a line; needed only where a shell asks."""
    for name, kind in _KINDS.items():
        own: dict[str, Any] = {"source_template": _script(name)}
        own["format_completion"] = lambda _, item: str(item.value)
        # The script needs no more than bash 4, and asks no other process for it.
        own["_check_version"] = staticmethod(lambda: None)
        made: Any = type(kind.__name__, (kind,), own)
        clicks.add_completion_class(made)


class Shell(NamedTuple):
    """A shell.

    Attributes:
        file: where the script that it reads is put.
        start: the file that the shell reads when it starts, which then reads ``file``; None where
            the shell finds ``file`` by itself.
    """

    name: str
    file: Path
    start: Path | None

    @property
    def script(self) -> str:
        """What it reads."""
        return _script(self.name)

    @property
    def line(self) -> str:
        """What is added to ``start``."""
        return f'[ -r "{self.file}" ] && . "{self.file}"  # completion of {NAME}'


def _home(variable: str, default: str) -> Path:
    said = os.environ.get(variable, "")
    return Path(said) if said else Path.home() / default


def shells() -> dict[str, Shell]:
    """Every shell that is known, by its name."""
    data = _home("XDG_DATA_HOME", ".local/share") / "posttrain-pipeline"
    fish = _home("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / f"{NAME}.fish"
    zsh = _home("ZDOTDIR", ".") / ".zshrc"
    return {
        "bash": Shell("bash", data / "completion.bash", Path.home() / ".bashrc"),
        "zsh": Shell("zsh", data / "completion.zsh", zsh),
        "fish": Shell("fish", fish, None),
    }


def own() -> str:
    """The name of the user's shell; empty where it is not known, or not one of these."""
    name = Path(os.environ.get("SHELL", "")).name
    return name if name in shells() else ""


def install(shell: Shell) -> list[Path]:
    """Write the script, and the line that has the shell read it; the second time nothing.

    Returns:
        The files that were changed.

    Raises:
        OSError: one cannot be written.
    """
    changed = []
    if not shell.file.is_file() or shell.file.read_text("utf-8") != shell.script:
        shell.file.parent.mkdir(parents=True, exist_ok=True)
        shell.file.write_text(shell.script, "utf-8")
        changed.append(shell.file)
    if shell.start is not None:
        text = shell.start.read_text("utf-8") if shell.start.is_file() else ""
        if shell.line not in text.splitlines():
            between = "\n" if text and not text.endswith("\n") else ""
            with shell.start.open("a", encoding="utf-8") as file:
                file.write(f"{between}{shell.line}\n")
            changed.append(shell.start)
    return changed


def remove(shell: Shell) -> list[Path]:
    """Undo ``install``; what else the files say stays.

    Returns:
        The files that were changed or removed.

    Raises:
        OSError: one cannot be written.
    """
    changed = []
    if shell.file.is_file():
        shell.file.unlink()
        changed.append(shell.file)
    if shell.start is not None and shell.start.is_file():
        lines = shell.start.read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.rstrip("\n") != shell.line]
        if kept != lines:
            shell.start.write_text("".join(kept), "utf-8")
            changed.append(shell.start)
    return changed


# What a shell completes for arguments and options: files by what they are, and names.
#
# It is asked at every press of a key, so it imports nothing heavy and opens no file.


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


def of_words(listed: Callable[[], list[str]]) -> Completer:
    """One of some words."""
    return lambda _, __, begun: _items(listed(), begun)


OF_OPTION: dict[str, Completer] = {
    "model": models,
    "format": formats,
    "data": data,
    "test": data,
    "decontaminate": data,
    "chat_template": files(".jinja", ".j2", ".txt"),
    "expectations": files(".json", ".py"),
    "output": builds,
}
