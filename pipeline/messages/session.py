"""How one command talks, and the one place where it ends: people, machines, whom it notifies.

It is made from the raw arguments: an error in these must be told in the way that they ask for.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from pipeline.messages import lines, progress
from pipeline.messages.result import FAILED, REFUSED, Result
from pipeline.secrets import note_address, shown


def _value(arguments: Sequence[str], option: str) -> str | None:
    """The last value that an option is given."""
    found = None
    for at, word in enumerate(arguments):
        if word == option and at + 1 < len(arguments):
            found = arguments[at + 1]
        elif word.startswith(f"{option}="):
            found = word.partition("=")[2]
    return found


@dataclass
class Session:
    """One command.

    Attributes:
        in_json: stdout gets one object, whatever happens (``--json``).
        in_lines: stderr gets lines of JSON (``--log-format json``).
        debug: an exception is shown as a traceback.
        trust: a recipe may say what runs (``--trust``).
        notify: a shell command that gets the result of a build.
        paths: what the command writes, as far as is known.
        arguments: all of them.
    """

    in_json: bool = False
    in_lines: bool = False
    debug: bool = False
    trust: bool = False
    notify: str | None = None
    paths: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    ended: bool = False

    @classmethod
    def of(cls, arguments: Sequence[str]) -> "Session":
        """The session that a command's arguments ask for; no other option is looked at."""
        words = list(arguments)
        own = words[: words.index("--")] if "--" in words else words
        for word in words:
            note_address(word)
        return cls(
            in_json="--json" in own,
            in_lines=_value(own, "--log-format") == "json",
            debug="--debug" in own,
            trust="--trust" in own,
            notify=_value(own, "--notify"),
            arguments=tuple(words),
        )

    def begin(self, in_json: bool, notify: str | None = None) -> None:
        """What only the command's own options, or a recipe, say of it."""
        self.in_json |= in_json
        self.notify = self.notify or notify

    def print_path(self, result: Result) -> None:
        """Where the manifest of a build that is there is, unless an object says it."""
        if not self.in_json and result.manifest is not None:
            click.echo(result.paths["manifest"])

    def warn(self, text: str) -> None:
        """A sentence that changes nothing about the result."""
        text = shown(text)
        if self.in_lines:
            lines.log("warning", {"message": text}, level="warning")
        else:
            progress.aside(f"warning: {text}")

    def end(self, result: Result) -> None:
        """Print the object, or where the manifest is; log the last line, notify. The second time
        nothing."""
        if self.ended:
            return
        self.ended = True
        described = json.dumps(result.described(), ensure_ascii=False, default=str)
        if self.in_json:
            click.echo(described)
        self.print_path(result)
        if self.in_lines:
            level = "error" if result.status in (FAILED, REFUSED) else "info"
            lines.log("end", result.without_manifest(), level=level)
        if self.notify:
            from pipeline.messages import notify

            wrong = notify.run(self.notify, described + "\n")
            if wrong is not None:
                self.warn(wrong)


def current() -> Session:
    """The session of the command that is running; one that says nothing special outside of one."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Session) if context is not None else None
    return found or Session()
