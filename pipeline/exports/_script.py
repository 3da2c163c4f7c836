"""Writes launch scripts: the common beginning, and a command over several lines."""

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

RATE = "2e-5"  # default learning rate of reward models on small sets

# Escapes a folder's name for the replacement of sed's s|||, where &, | and \ have a meaning.
PLAIN = "plain() { printf '%s' \"$1\" | sed 's/[&|\\\\]/\\\\&/g'; }\n"

_VARIABLE = re.compile(r"\$(BUILD|MODEL|BATCH_SIZE|LEARNING_RATE|PROGRAM)\b")


def word(text: str) -> str:
    """One word of a shell command; the script's own variables stay variables."""
    if _VARIABLE.search(text):
        return f'"{text}"'
    return shlex.quote(text)


def command(lines: Iterable[Iterable[str]]) -> str:
    """A command over several lines, one list of words a line; the user's options come last."""
    spelled = [" ".join(word(text) for text in line) for line in lines]
    return "exec " + " \\\n    ".join([*spelled, '"$@"']) + "\n"


def beginning(batch: int, length: int) -> tuple[list[str], str]:
    """Notes on batch size, learning rate and lengths for a reward model's script, and the shell
    lines that set them.

    Args:
        batch: the default number of pairs in a batch of one GPU.
        length: tokens of the build's longest side, at most.
    """
    notes = [
        f"Defaults for small sets: {batch} pairs in a batch of one GPU, learning rate {RATE}.",
        "Set BATCH_SIZE and LEARNING_RATE, or give the trainer's own options after MODEL_DIR.",
        f"Leave the lengths: a side has at most {length} tokens, and a lower limit would cut or",
        "drop pairs. For shorter ones build with a smaller --max-length.",
    ]
    return notes, f"BATCH_SIZE=${{BATCH_SIZE:-{batch}}}\nLEARNING_RATE=${{LEARNING_RATE:-{RATE}}}\n"


def script(
    what: str,
    file: str,
    lines: Iterable[Iterable[str]],
    notes: Iterable[str] = (),
    before: str = "",
) -> str:
    """A launch script.

    Args:
        what: the end of the sentence "Trains ...".
        file: its name under ``launch/``.
        lines: the command's words, one list a line; the user's options come last.
        notes: comments, a sentence each.
        before: shell lines that set what the command reads.
    """
    return head(what, file, notes) + before + command(lines)


def head(what: str, file: str, notes: Iterable[str] = ()) -> str:
    """How every launch script begins: comments, ``$BUILD`` and ``$MODEL``."""
    comments = "".join(f"# {note}\n" for note in notes)
    return _HEAD.format(what=what, file=file, notes=comments)
