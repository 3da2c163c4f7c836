"""How a command ended, as one object: what ``--json`` prints, whatever happens.

A script reads ``status`` and ``code`` first; the same object goes to the command of ``--notify``,
into ``DIR.failed/reasons.json`` and, without the manifest, into a history.
"""

import errno
import json
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline import lines, secrets, stores
from pipeline.builds import failed
from pipeline.manifest.json_records import as_json
from stages.errors import DataError, PipelineError, SurroundingsError, counted, no_permission

if TYPE_CHECKING:
    from pipeline.builds.limits import Built
    from pipeline.manifest.manifest import Manifest

BUILT, UNCHANGED, REFUSED, FAILED = "built", "unchanged", "refused", "failed"
OK = "ok"  # of commands that build nothing
INTERRUPTED = 130
REPORT_TO = "the project's issue tracker"

_OURS = ("pipeline", "expectations", "stages")
_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended.

    Attributes:
        status: ``built``, ``unchanged``, ``refused`` (the data was) or ``failed``.
        code: the exit status.
        message: what happened, and where; ``remedy``: what to do about it, empty where nothing is.
            Both as they may be shown, whatever was given.
        task, build_id: of a build that is there.
        figures: the numbers that the message speaks of.
        paths: by what lies there: ``build``, ``manifest``, ``failed``, ``rejects``.
        manifest: of the build that is there.
        builds: the results of the builds of one recipe, where there are several.
        commands: what could be run instead: the command that failed, corrected.
    """

    status: str
    code: int
    message: str
    remedy: str = ""
    task: str | None = None
    build_id: str | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    manifest: "Manifest | None" = None
    builds: "Sequence[Result]" = ()
    commands: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("message", "remedy"):
            object.__setattr__(self, name, secrets.shown(getattr(self, name)))

    def described(self) -> dict[str, Any]:
        """The object that ``--json`` prints; keys without a value are null."""
        names = ("status", "code", "message", "remedy", "task", "build_id", "figures", "paths")
        return {
            **{name: getattr(self, name) for name in names},
            "manifest": self.manifest and as_json(self.manifest),
            **({"commands": list(self.commands)} if self.commands else {}),
            **({"builds": [one.described() for one in self.builds]} if self.builds else {}),
        }

    def without_manifest(self) -> dict[str, Any]:
        """The same in few bytes, for logs."""
        every = replace(self, manifest=None, builds=()).described()
        builds = [one.without_manifest() for one in self.builds]
        del every["manifest"]
        return every | ({"builds": builds} if builds else {})


def status_of(code: int) -> str:
    """The status of a command that built nothing and ended with this exit status."""
    return {0: OK, DataError.exit_code: REFUSED}.get(code, FAILED)


def with_status(code: int, content: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a command that builds nothing, begun with the same two keys."""
    return {"status": status_of(code), "code": code, **content}


def print_object(code: int, content: Mapping[str, Any]) -> None:
    """Print what such a command prints with ``--json``."""
    click.echo(json.dumps(with_status(code, content), ensure_ascii=False))


def of_built(built: "Built") -> Result:
    """The result of a build that is there: a new one, or an equal one that was there before."""
    from pipeline.manifest.manifest import MANIFEST

    manifest = built.build.manifest
    what = f"{manifest.task} for {manifest.model.name}, {manifest.layout}"
    return Result(
        status=BUILT if built.fresh else UNCHANGED,
        code=0,
        message=f"{'built' if built.fresh else 'already up to date'}: {what}",
        task=manifest.task,
        build_id=manifest.build_id,
        figures={
            "rows": as_json(manifest.rows),
            "examples": as_json(manifest.examples),
            "tokens": as_json(manifest.tokens),
            "splits": {
                name: {"rows": one.rows, "examples": one.examples, "tokens": one.tokens}
                for name, one in manifest.splits.items()
            },
            "drift": {name: as_json(one) for name, one in (built.drift or {}).items()},
            "left_by_other_programs": list(built.left_by_tools),
            "versions_removed": list(built.removed),
            "notes": [*built.notes, *built.trouble],
        },
        paths={
            "build": built.build.shown(),
            "manifest": built.build.shown(MANIFEST),
            **({"current": stores.shown(built.current)} if built.current else {}),
        },
        manifest=manifest,
    )


def of_builds(builds: Sequence[Result], stopped: bool = False) -> Result:
    """The result of several builds: that of the first that failed, and what became of each.

    Args:
        stopped: the last one was the end of all, whatever became of those before it.
    """
    wrong = [one for one in builds if one.code]
    fresh = [one for one in builds if one.status == BUILT]
    first = builds[-1] if stopped else (wrong or fresh or builds)[0]
    said = f"{len(fresh)} of {counted(len(builds), 'build')} made"
    if wrong:
        said += f", {len(wrong)} failed; {first.paths.get('output')}: {first.message}"
    return Result(first.status, first.code, said, first.remedy, builds=tuple(builds))


def show(result: Result, where: str = "") -> None:
    """Print an error, as people read it.

    Args:
        where: what it is about, where there are several.
    """
    if not result.code:
        click.echo(f"warning: {result.figures['notes'][-1]}", err=True)
        return
    if result.code == INTERRUPTED:
        click.echo(result.message, err=True)
        return
    click.echo("\n".join(_page(result, where)), err=True)


def of_error(
    error: BaseException, paths: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
) -> Result:
    """The result of a command that an exception ended.

    What it has published stands (``standing``).

    Args:
        paths: what it would have written, and what it left.
        arguments: of the command, as they were typed.
    """
    told = _failed(error, paths, arguments)
    interrupted = told.code == INTERRUPTED
    built = failed.after("interrupted" if interrupted else told.message)
    return told if built is None else of_built(built)


def _failed(
    error: BaseException, paths: Mapping[str, str] | None, arguments: Sequence[str]
) -> Result:
    """The result of a command that has published nothing."""
    places = dict(paths or {})
    if isinstance(error, click.ClickException):
        asked = error.exit_code
        return Result(status_of(asked), asked, error.format_message(), _help(error), paths=places)
    if isinstance(error, KeyboardInterrupt | click.Abort):  # click makes the second of the first
        message = "interrupted; nothing was published"
        return Result(FAILED, INTERRUPTED, message, "Run it again.", paths=places)
    if isinstance(error, OSError) and not isinstance(error, PipelineError):
        error = _from_system(error)
    if isinstance(error, PipelineError):
        code = error.exit_code
        remedy, commands = _offered(arguments, error.remedy)
        return Result(
            status=status_of(code),
            code=code,
            message=error.what,
            remedy=remedy,
            figures=error.figures,
            paths=places,
            commands=commands,
        )
    text = secrets.shown(" ".join(str(error).split()))[:300]
    message = f"internal error{_place(error)}, {type(error).__name__}: {text}"
    remedy = f"Run again with --debug and report it to {REPORT_TO}."
    return Result(FAILED, 1, message, remedy, paths=places)


def _offered(arguments: Sequence[str], remedy: str) -> tuple[str, Sequence[str]]:
    """A remedy without the options that the command has already, and the command with each way
    that it offers."""
    if not arguments:
        return remedy, ()
    from pipeline.options.ways import commands, given, without

    had = given(arguments, remedy)
    remedy = without(remedy, had) if had else remedy
    return remedy, commands(arguments, remedy)


def _help(error: click.ClickException) -> str:
    """The sentence that click shows beside the message."""
    context = getattr(error, "ctx", None)
    return f"{HELP}{context.command_path} --help" if context is not None else ""


_ELSEWHERE = "or name another place with -o, or with --cache-dir"
# What the system says, in a sentence about the path, and the fix.
_OF_SYSTEM = {
    errno.ENOSPC: ("The disk is full: {} cannot be written.", "Make room and run again."),
    errno.EDQUOT: ("Your quota is used up: {} cannot be written.", "Make room and run again."),
    errno.ENOENT: (
        "There is no {}.",
        "Check the path, and do not change data or cache while a build runs.",
    ),
    errno.EROFS: ("The disk of {} can only be read.", f"Mount it to be written, {_ELSEWHERE}."),
    errno.ENAMETOOLONG: ("The name of {} is too long.", f"Shorten it, {_ELSEWHERE}."),
    errno.ENOTDIR: ("{} needs a folder where a file stands.", f"Move the file, {_ELSEWHERE}."),
    errno.EEXIST: ("{} is a file, and a folder is needed there.", f"Move it, {_ELSEWHERE}."),
    errno.EISDIR: ("{} is a folder, and a file is needed there.", f"Move it, {_ELSEWHERE}."),
} | dict.fromkeys((errno.EACCES, errno.EPERM), no_permission("{}").args)
_OF_TARGET = (errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG)  # of two paths, what is written


def _from_system(error: OSError) -> SurroundingsError:
    error = _first(error)
    what, remedy = _OF_SYSTEM.get(error.errno or 0, ("", "Check the disk and the path."))
    if not what or (error.filename is None and what.startswith(("{}", "There is no"))):
        return SurroundingsError(f"{error}.", remedy)
    path = error.filename2 if error.errno in _OF_TARGET and error.filename2 else error.filename
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else "a file"
    return SurroundingsError(what.format(name), remedy)


def _first(error: OSError) -> OSError:
    """The first failure of a copied folder: of those, ``shutil`` keeps source, target and words."""
    from shutil import Error

    if not isinstance(error, Error) or not isinstance(error.args[0], list):
        return error
    _, target, words = error.args[0][0]
    said = re.match(r"\[Errno (\d+)\] ", str(words))
    if said is None:
        return OSError(f"{target}: {words}")
    return OSError(int(said[1]), os.strerror(int(said[1])), str(target))


def _place(error: BaseException) -> str:
    """The last frame of our own code in the traceback, as `` (stages/x.py:12)``."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _OURS:
            return f" ({path.relative_to(_ROOT)}:{frame.lineno})"
    return ""


HELP = "Try:   "  # begins the remedy of an error in the arguments


def _page(result: Result, where: str) -> list[str]:
    """The lines of an error."""
    columns = lines.width(sys.stderr)
    found = _lines(f"{where}: {result.message}" if where else result.message, "Error: ", columns)
    if page := result.figures.get("sheet"):
        of = result.figures.get("sheet_of")
        found += ["", *([f"{of}:"] if of else []), *lines.of_columns(page), ""]
    if result.remedy.startswith(HELP):
        found += lines.wrapped(result.remedy.removeprefix(HELP), columns, HELP)
    elif result.remedy:
        found += _lines(result.remedy, "Fix:   ", columns)
    for number, command in enumerate(result.commands):
        from pipeline.options.ways import reads_stdin

        again = ", with the same rows piped in" if reads_stdin(result.commands[0]) else ""
        found.append(f"{'Or' if number else 'Run'}{again}:")
        found += lines.command(lines.words(command), columns, "  ")
    return found


def _lines(text: str, start: str, columns: int) -> list[str]:
    """A sentence; where more follows, a list say, it stays as it is indented."""
    first, *more = text.split("\n")
    found = lines.wrapped(first, columns, start)
    for line in more:
        indent = line[: len(line) - len(line.lstrip())]
        found += lines.wrapped(line.lstrip(), columns, indent, f"{indent}  ")
    return found
