"""What is being done, and how far it is: one record of each phase, and whoever shows them.

A build calls a report with the name of a phase, and how many of how many pieces are done. A report
that is a ``Follower`` is also told what came of the pieces, as workers count it. Who shows it, and
how, is said in ``following``: ``lines`` writes lines, ``screen`` draws on a terminal.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import click

from pipeline.executors import NOTHING, Amount, total

Report = Callable[[str, int, int], None]  # of a phase: its name, pieces done, of how many

START, ENCODE, PLAN, WRITE, CHECK, REPORT, PUBLISH = (
    "start", "encode", "plan", "write", "check", "report", "publish",
)  # fmt: skip
_LONG_ENOUGH = 3.0  # seconds of work that a time left is told by
_ENOUGH = 0.02  # share of the work that it is told by
_ROUNDS = 2  # pieces of each worker that it is told by, where pieces are counted when they are done


@dataclass(frozen=True)
class Whole:
    """All of a phase.

    Attributes:
        pieces: how many there are.
        sizes: of those that are to be made; empty where each counts as one.
        kept: what came of those that were there before; ``size`` of each is in the same unit.
        in_bytes: sizes are bytes of the inputs.
        row: what a row of results is called.
        one_round: the phase has more rounds, of which nobody knows how many.
        at_once: how many pieces are made at the same time.
    """

    pieces: int
    sizes: Sequence[int] = ()
    kept: Sequence[Amount] = ()
    in_bytes: bool = False
    row: str = "row"
    one_round: bool = False
    at_once: int = 1

    def size_of(self, number: int) -> int:
        """Of one of the pieces that are to be made."""
        return self.sizes[number] if self.sizes else 1

    @cached_property
    def size(self) -> int:
        """Of all pieces."""
        made = sum(self.sizes) if self.sizes else self.pieces - len(self.kept)
        return made + total(self.kept).size


@dataclass(slots=True)
class Phase:
    """A phase that is going on, or that has ended.

    Attributes:
        done, total: pieces; 0 of 1 where nothing is counted.
        whole: what is known of its pieces.
        amount: of the pieces that are done; ``partly``: of those that are being made, by number.
        kept: of the pieces that were there before, of which there are ``kept_pieces``.
        began, ended: by the monotonic clock; ``ended`` is None while it goes on.
        heard: when the first piece was told of, and how much was made then.
    """

    what: str
    done: int = 0
    total: int = 1
    whole: Whole | None = None
    amount: Amount = NOTHING
    partly: dict[int, Amount] = field(default_factory=dict)
    kept: Amount = NOTHING
    kept_pieces: int = 0
    began: float = field(default_factory=lambda: time.monotonic())
    ended: float | None = None
    heard: tuple[float, int] | None = None

    @property
    def seconds(self) -> float:
        """That it took, or takes until now."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    @property
    def so_far(self) -> Amount:
        """What was made, and what was there."""
        return self.amount + total(self.partly.values())

    @property
    def made(self) -> Amount:
        """What was made since it began."""
        return self.so_far - self.kept

    @property
    def rows_per_second(self) -> int:
        """Of what is made."""
        return round(self.made.rows / max(self.seconds, 1e-3))

    @property
    def tokens_per_second(self) -> int:
        """Of what is made."""
        return round(self.made.tokens / max(self.seconds, 1e-3))

    @property
    def share(self) -> float | None:
        """Of the work that is done; None where that is not known."""
        if self.whole is None or self.whole.one_round or not self.whole.size:
            return None
        if self.done == self.total:
            return 1.0
        found = self.so_far.size / self.whole.size
        return min(found, 0.999) if found or self.heard is not None else None

    @property
    def left(self) -> float | None:
        """Seconds until it ends, if it goes on as since the first piece was told of; None where too
        little was made to say so."""
        if self.whole is None or self.whole.one_round or self.ended is not None:
            return None
        if self.heard is None:
            return None
        since, before = self.heard
        seconds, made = time.monotonic() - since, self.made.size - before
        told_meanwhile = bool(self.partly)
        rounds = (self.done - self.kept_pieces) / max(self.whole.at_once, 1)
        if seconds < _LONG_ENOUGH or made < _ENOUGH * self.whole.size:
            return None
        if not told_meanwhile and rounds < _ROUNDS:
            return None
        return max(0.0, (self.whole.size - self.so_far.size) * seconds / made)


class Follower:
    """Knows the phases of a command; a subclass shows them.

    Attributes:
        phases: in their order; the last one goes on, unless it has ended.
    """

    def __init__(self) -> None:
        self.phases: list[Phase] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        """So many pieces of a phase are done."""
        phase = self._at(what)
        if done < phase.done:  # it begins again
            phase.began, phase.ended = time.monotonic(), None
        phase.done, phase.total = done, total
        self._step(phase)

    def begin(self, what: str, whole: Whole) -> None:
        """A phase begins whose pieces are told of; or it begins again."""
        phase, kept = self._at(what), total(whole.kept)
        phase.whole, phase.ended, phase.heard = whole, None, None
        phase.amount = phase.kept = kept
        phase.kept_pieces = len(whole.kept)
        phase.partly.clear()
        phase.done, phase.total = len(whole.kept), whole.pieces
        self._step(phase)

    def partly(self, number: int, amount: Amount) -> None:
        """So much of one piece is done while it is made."""
        if self.phases:
            phase = self.phases[-1]
            phase.partly[number] = amount
            if phase.heard is None:
                phase.heard = time.monotonic(), phase.made.size

    def piece(self, number: int, amount: Amount, kept: bool = False) -> None:
        """One piece is done.

        Args:
            kept: it was there before.
        """
        phase = self.phases[-1]
        phase.partly.pop(number, None)
        if phase.whole is not None:
            amount = amount + Amount(size=phase.whole.size_of(number) - amount.size)
        phase.amount += amount
        phase.done += 1
        if kept:
            phase.kept, phase.kept_pieces = phase.kept + amount, phase.kept_pieces + 1
        elif phase.heard is None:
            phase.heard = phase.began, 0
        self._step(phase)

    @property
    def going(self) -> Phase | None:
        """The phase that goes on; None between two."""
        last = self.phases[-1] if self.phases else None
        return last if last is not None and last.ended is None else None

    def _at(self, what: str) -> Phase:
        if self.phases and self.phases[-1].what == what:
            return self.phases[-1]
        if self.going is not None:
            self.going.ended = time.monotonic()
        self.phases.append(Phase(what))
        return self.phases[-1]

    def _step(self, phase: Phase) -> None:
        phase.ended = time.monotonic() if phase.done == phase.total else None
        self.changed(phase)

    def changed(self, phase: Phase) -> None:
        """Shows that a phase has begun, that a piece is done, or that the phase has ended."""

    def beat(self) -> None:
        """Shows that time passes."""

    def aside(self, text: str) -> None:
        """A line on stderr, beside what is shown."""
        click.echo(text, err=True)

    def close(self, well: bool) -> None:
        """Nothing is shown any more.

        Args:
            well: the command did what it should.
        """


class Called(Follower):
    """Tells a function, which counts nothing."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def changed(self, phase: Phase) -> None:
        """A call."""
        self._report(phase.what, phase.done, phase.total)


def follower_of(report: Report) -> Follower:
    """The report itself, or what calls it."""
    return report if isinstance(report, Follower) else Called(report)


open_now: list[Follower] = []  # what shows progress, while a command runs


def aside(text: str) -> None:
    """A line on stderr, beside the progress that may be there."""
    if open_now:
        open_now[-1].aside(text)
    else:
        click.echo(text, err=True)
