"""The command line: one command per file under ``commands``, loaded when it is called.

Exit status: 0 built or already up to date; 1 a bug of this program; 2 usage, recipe or model; 3 the
data was refused; 4 the gate could not judge; 5 disk, network or memory; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import click

from pipeline import __version__, commands, memory
from stages import catalog
from stages.errors import PipelineError, SurroundingsError

_OURS = ("pipeline", "expectations", "stages")
REPORT_TO = "the project's issue tracker"


class _Commands(click.Group):
    """Commands by file name, with an underscore for a dash."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name.replace("_", "-") for name in catalog.names(commands.__name__)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        key = name.replace("-", "_")
        if key not in catalog.names(commands.__name__):
            return None
        command: click.Command = catalog.load(commands.__name__, key, "COMMAND")
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version")
def cli() -> None:
    """Compile raw conversations, preference pairs and rated steps into train-ready Arrow shards."""


def _say(error: PipelineError) -> int:
    click.echo(f"error: {error.what}", err=True)
    if error.remedy:
        click.echo(f"       {error.remedy}", err=True)
    return error.exit_code


def _from_system(error: OSError) -> SurroundingsError:
    if error.errno == errno.ENOSPC:
        return SurroundingsError(f"The disk is full: {error}.", "Make room and run again.")
    if error.errno == errno.ENOENT:
        remedy = "Check the path, and do not change data or cache while a build runs."
        return SurroundingsError(f"{error}.", remedy)
    return SurroundingsError(f"{error}.", "Check permissions and paths.")


def _place(error: Exception) -> str:
    """The last frame of our own code in the traceback, as `` (stages/x.py:12)``."""
    root = Path(__file__).resolve().parent.parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(root) and path.relative_to(root).parts[0] in _OURS:
            return f" ({path.relative_to(root)}:{frame.lineno})"
    return ""


def _status(debug: bool) -> int:
    try:
        # A command that ends by itself gives 0 (help, version) or its own status.
        return int(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:  # click raises Abort on a KeyboardInterrupt
        published = next(iter((stop.__cause__ or stop).args), "nothing was published")
        click.echo(f"interrupted; {published}", err=True)
        return 130
    except PipelineError as error:
        if debug:
            raise
        return _say(error)
    except BrokenPipeError:
        # Python flushes stdout at its end, which would raise the same error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug:
            raise
        return _say(_from_system(error))
    except Exception as error:
        if debug:
            raise
        text = " ".join(str(error).split())[:300]
        click.echo(
            f"error: internal error{_place(error)}, {type(error).__name__}: {text}\n"
            f"       Run again with --debug and report it to {REPORT_TO}.",
            err=True,
        )
        return 1


def _interrupt(*_: object) -> NoReturn:
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.SIG_IGN)  # a second one must not cut the cleaning up short
    raise KeyboardInterrupt


def main() -> NoReturn:
    """The program; ``posttrain_pipeline.command`` calls it when all packages are ours."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, _interrupt)
    memory.keep_freed()
    # Nothing here multiplies matrices, and a process with threads cannot be copied.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    debug = "--debug" in sys.argv[1:]
    sys.exit(_status(debug))
