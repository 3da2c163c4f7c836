"""Progress as lines on stderr: of JSON, or of text where stderr is no terminal."""

import json
import time
from collections.abc import Mapping
from typing import Any

import click

from pipeline import executors
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
        if self.going is not None:
            self._tell(self.going)

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
        if self.going is not None:
            self._told = self.going
            click.echo(line_of(self._told), err=True)


def line_of(phase: Phase) -> str:
    """A phase in one line."""
    shown, *figures, _ = cells(phase)
    ended = phase.ended is not None
    time = executors.span(phase.seconds)
    parts = [f"done in {time}" if ended else time, "" if ended else shown, *figures]
    parts.append(kept_in_words(phase))
    parts += [f"{executors.span(phase.left)} left"] if phase.left is not None else []
    return f"{phase.what:<9} {', '.join(filter(None, parts))}"


def cells(phase: Phase, shortened: int = 0) -> tuple[str, ...]:
    """What a phase says: its share, rows, rows/s, tokens/s, what was refused, and its time.

    Args:
        shortened: 0 for all of it; others for narrow terminals.
    """
    whole, so_far = phase.whole, phase.so_far
    share, left = phase.share, phase.left
    shown = "" if share is None else executors.percent(share)
    if whole is not None and whole.one_round and phase.ended is None:
        shown = f"{phase.done} of {phase.total}"
    rows = rates = tokens = refused = ""
    if whole is not None:
        if shown and whole.in_bytes and shortened < 1:
            shown += f" of {executors.bytes_in_words(whole.size)}"
        rows = counted(so_far.rows, whole.row)
        if shortened > 1:
            rows = f"{executors.short(so_far.rows)} {rows.rpartition(' ')[2]}"
        rows = rows if so_far.rows and shortened < 5 else ""
        if phase.made.rows and shortened < 4:
            rates = f"{_rate(phase.rows_per_second, shortened)} {whole.row}s/s"
        if phase.made.tokens and shortened < 3:
            tokens = f"{_rate(phase.tokens_per_second, shortened)} tokens/s"
        refused = f"{so_far.refused:,} refused" if whole.in_bytes and so_far.rows else ""
    time = executors.clock(phase.seconds) if left is None else f"{executors.clock(left)} left"
    return shown, rows, rates, tokens, refused, time


def _rate(number: int, shortened: int) -> str:
    return f"{number:,}" if shortened < 1 else executors.short(number)


def kept_in_words(phase: Phase) -> str:
    """The pieces that were not made again; empty where all are made."""
    if not phase.kept_pieces:
        return ""
    every = phase.kept_pieces == phase.total
    of = f"all {phase.total}" if every else f"{phase.kept_pieces} of {phase.total}"
    return f"{of} parts were there before"
