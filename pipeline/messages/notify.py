"""Runs the command of ``--notify``, or of a recipe's ``[notify]``, with the result as its input.

It is told how a build ended, and has no say in it: if it fails, that is a warning.
"""

import os
import signal
import subprocess
from contextlib import suppress

SECONDS = 60  # that the command may take


def run(command: str, text: str, seconds: float = SECONDS) -> str | None:
    """Run a shell command with a text on its standard input; its own output is not shown.

    Returns:
        What went wrong, as a sentence; None if nothing did.
    """
    try:
        process = subprocess.Popen(
            command,
            shell=True,  # it is the user's own line, as in a crontab
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
    except OSError as error:
        return f"The notify command could not be started: {error}."
    try:
        _, said = process.communicate(text, timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"The notify command did not end within {seconds:g} seconds and was stopped."
    except KeyboardInterrupt:
        _kill(process)
        return "The notify command was interrupted."
    if process.returncode == 0:
        return None
    last = said.strip().splitlines()[-1:] or ["it said nothing"]
    return f"The notify command ended with status {process.returncode}: {last[0]}"


def _kill(process: subprocess.Popen[str]) -> None:
    """End the shell and all that it started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stderr):
        with suppress(OSError):  # what was not read is written once more when a pipe is closed
            assert pipe is not None
            pipe.close()
    process.wait()
