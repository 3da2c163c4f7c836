"""The commands: a module beside this has those of one subject, which is loaded when one is called.

Exit status: 0 built or already up to date; 1 a bug of this program; 2 usage, recipe or model; 3 the
data was refused; 4 the gate could not judge; 5 disk, network or memory; 130 interrupted.
"""

import os
import signal
import sys
import traceback
from typing import NoReturn

import click

from pipeline import __version__, executors, lines, secrets
from pipeline.lines import WIDE
from pipeline.messages import screen
from pipeline.messages.result import of_error, show
from pipeline.messages.session import Session
from pipeline.options import shells
from pipeline.options.help_page import Group, declared, with_debug
from stages import catalog

# Of each module the command that it is called after, and the others.
_MODULES = {
    "cache": "rollback stage versions",
    "check": "doctor export overlay publish stops",
    "list": "completion explain",
    "run": "build commit init parts plan shards",
    "show": "diff overlaps report",
}
MEMBERS = {name: f"posttrain_pipeline.{name}_commands" for name in _MODULES} | {
    other: f"posttrain_pipeline.{name}_commands:{other.upper()}"
    for name, others in _MODULES.items()
    for other in others.split()
}


def beginning(version: str) -> str:
    """The page, for the terminal that it is printed on."""
    columns = min(lines.width(sys.stdout), lines.WIDE)
    said = declared()["pipeline"]
    found = lines.wrapped(said["help"].format(version), columns)
    for does, *typed in said["examples"]:
        found += ["", *lines.wrapped(f"{does}:", columns)]
        for command in typed:
            found += lines.command(lines.words(command), columns, "  ")
    return "\n".join([*found, "", *lines.wrapped(said["more"], columns)])


class _Commands(Group):
    """Commands by their keys, with an underscore for a dash."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name.replace("_", "-") for name in catalog.names(__name__)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        key = name.replace("-", "_")
        if key not in catalog.names(__name__):
            return None
        command: click.Command = catalog.load(__name__, key, "COMMAND")
        return with_debug(command)

    def listed(self, ctx: click.Context, name: str) -> tuple[str, str] | None:
        """No command of ours is loaded only to be named."""
        ours = declared().get(name)
        return (ours["heading"], ours["help"]) if ours else super().listed(ctx, name)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDE},
)
@click.version_option(__version__, "--version")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Compile raw conversations, preference pairs and rated steps into train-ready Arrow shards."""
    if ctx.invoked_subcommand is None:
        click.echo(beginning(__version__))


def _status(session: Session) -> int:
    try:
        if shells.VARIABLE in os.environ:  # a shell asks how a command goes on
            shells.offered()
        # A command that ends by itself gives 0 (help, version) or its own status.
        code = int(cli.main(standalone_mode=False, obj=session, complete_var=shells.VARIABLE) or 0)
        if not code:
            screen.require_written()
        return code
    except click.exceptions.Exit as done:
        return done.exit_code
    except (Exception, KeyboardInterrupt) as error:
        result = of_error(error, session.paths, session.arguments)
        expected = isinstance(error, click.ClickException | click.Abort | KeyboardInterrupt)
        with_traceback = session.debug and result.code and not expected
        if not session.in_lines and not with_traceback:
            show(result)
        session.end(result)
        if with_traceback:
            sys.stderr.write(secrets.shown(traceback.format_exc()))
        return result.code


def _interrupt(*_: object) -> NoReturn:
    for kind in executors.SIGNALS:
        signal.signal(kind, signal.SIG_IGN)  # a second one must not cut the cleaning up short
    raise KeyboardInterrupt


def main() -> NoReturn:
    """The program; ``posttrain_pipeline.command`` calls it when all packages are ours."""
    screen.guard()
    for kind in executors.SIGNALS:
        if kind is not signal.SIGHUP or signal.getsignal(kind) is not signal.SIG_IGN:  # nohup
            signal.signal(kind, _interrupt)
    executors.keep_freed()
    # Nothing here multiplies matrices, and a process with threads cannot be copied.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(_status(Session.of(sys.argv[1:])))
