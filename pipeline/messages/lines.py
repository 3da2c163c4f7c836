"""Progress as lines on stderr: of JSON, or of text where stderr is no terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import click

from pipeline import amounts
from pipeline.messages.progress import Follower, Phase
from stages.errors import counted

EVERY = 10.0  # seconds between two lines of a phase


def log(event: str, content: Mapping[str, Any], level: str = "info") -> None:
    """One line of JSON: when, what, how serious, and what belongs to it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {"time": now, "level": level, "event": event, **content}
    click.echo(json.dumps(line, ensure_ascii=False), err=True)


class Log(Follower):
    """One line of JSON when a phase ends, and one every ten seconds while it goes on."""

    def changed(self, phase: Phase) -> None:
        """A line when it ends."""
        if phase.ended is not None:
            self._tell(phase)

    def beat(self) -> None:
        """How far the phase is; nothing between two phases."""
        if self.phases and self.phases[-1].ended is None:
            self._tell(self.phases[-1])

    def _tell(self, phase: Phase) -> None:
        log(
            "phase",
            {"phase": phase.what, "done": phase.done, "total": phase.total} | _counts(phase),
        )


def _counts(phase: Phase) -> dict[str, Any]:
    """What is known of a phase; a key without a value is left out."""
    so_far, share, left = phase.so_far, phase.share, phase.left
    found = {
        "rows": so_far.rows,
        "rows_per_second": phase.rows_per_second,
        "tokens": so_far.tokens,
        "tokens_per_second": phase.tokens_per_second,
        "refused": so_far.refused,
        "kept": phase.kept_pieces,
        "share": None if share is None else round(share, 4),
        "seconds_left": None if left is None else round(left),
    }
    known = {name: value for name, value in found.items() if value}
    return {**known, "seconds": round(phase.seconds, 3)}


class Lines(Follower):
    """One line every ten seconds, and one at the end of a phase that had one."""

    def __init__(self) -> None:
        super().__init__()
        self._told: Phase | None = None

    def changed(self, phase: Phase) -> None:
        """A line at the end of a phase that was told of."""
        told = self._told
        if told is not None and told.ended is not None:
            self._told = None
            click.echo(line_of(told), err=True)

    def beat(self) -> None:
        """How far the phase is."""
        if self.phases and self.phases[-1].ended is None:
            self._told = self.phases[-1]
            click.echo(line_of(self._told), err=True)


def line_of(phase: Phase) -> str:
    """A phase in one line."""
    so_far, share, whole = phase.so_far, phase.share, phase.whole
    ended = phase.ended is not None
    parts = [f"done in {amounts.span(phase.seconds)}" if ended else amounts.span(phase.seconds)]
    if whole is not None and not ended and share is not None:
        of = f" of {amounts.bytes_in_words(whole.size)}" if whole.in_bytes else ""
        parts.append(f"{amounts.percent(share)}{of}")
    if whole is not None and whole.one_round and not ended:
        parts.append(f"{phase.done} of {phase.total}")
    if whole is not None and so_far.rows:
        parts.append(counted(so_far.rows, whole.row))
    if phase.made.rows:
        parts.append(f"{phase.rows_per_second:,} {whole.row if whole else 'row'}s/s")
    if phase.made.tokens:
        parts.append(f"{phase.tokens_per_second:,} tokens/s")
    if so_far.rows and whole is not None and whole.in_bytes:
        parts.append(f"{so_far.refused:,} refused")
    parts += [kept] if (kept := kept_in_words(phase)) else []
    if phase.left is not None:
        parts.append(f"{amounts.span(phase.left)} left")
    return f"{phase.what:<9} {', '.join(parts)}"


def kept_in_words(phase: Phase) -> str:
    """The pieces that were not made again; empty where all are made."""
    if not phase.kept_pieces:
        return ""
    every = phase.kept_pieces == phase.total
    of = f"all {phase.total}" if every else f"{phase.kept_pieces} of {phase.total}"
    return f"{of} parts were there before"
