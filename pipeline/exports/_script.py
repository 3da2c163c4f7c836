"""Launch scripts: how all of them begin, and how a command is spelled over several lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_HEAD = """#!/bin/sh
# Trains {what}.
# usage: sh launch/{file} MODEL_DIR [more options of the trainer]
# MODEL_DIR is a model directory with this build's tokenizer and configuration; make it with
#     pipeline overlay ORIGINAL_MODEL_DIR -o MODEL_DIR --build BUILD_DIR
{notes}set -eu
BUILD=$(cd "$(dirname "$0")/.." && pwd)
MODEL=${{1:?give the model directory}}
shift
"""

# A folder's name as the replacement of sed's s|||, where three characters mean something.
PLAIN = "plain() { printf '%s' \"$1\" | sed 's/[&|\\\\]/\\\\&/g'; }\n"

_VARIABLE = re.compile(r"\$(BUILD|MODEL)")


def word(text: str) -> str:
    """One word of a shell command; ``$BUILD`` and ``$MODEL`` stay variables."""
    if _VARIABLE.search(text):
        return f'"{text}"'
    return shlex.quote(text)


def script(what: str, file: str, lines: Iterable[Iterable[str]], notes: Iterable[str] = ()) -> str:
    """A launch script.

    Args:
        what: the end of the sentence "Trains ...".
        file: its name under ``launch/``.
        lines: the command's words, one list a line; the user's options come last.
        notes: comments, a sentence each.
    """
    spelled = [" ".join(word(text) for text in line) for line in lines]
    command = " \\\n    ".join([*spelled, '"$@"'])
    comments = "".join(f"# {note}\n" for note in notes)
    return _HEAD.format(what=what, file=file, notes=comments) + f"exec {command}\n"
