"""``--max-reject``: the law of how much may be refused, and the error of a build that breaks it.

A build fails where more than this share of its rows, of its examples, or of its trained turns is
refused. In a small file a few rows pass all the same: what up to four rows lose, where it is less
than a fifth of each. With 0 nothing passes. A source with a limit of its own is held to it alone.
"""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pipeline import tasks
from pipeline.builder.rejects import TOO_LONG, Codes, Ledger, Long
from pipeline.options.config import FEW_ROWS, Config
from pipeline.shards.chain import Losses
from stages.errors import DataError, counted, were

FIFTH = 1 / 5  # what these lose must be less
_EXACT = 1e-9  # relative: 0.29 * 100 is a little less than 29
_FAR = 8  # times --max-length: rare examples that are longer are left out, not made room for
_RARE = 1 / 10  # of the examples
_STEP = 1024  # lengths that a message offers are multiples of it
_SHARES = (0.5, 0.9, 0.99, 1.0)  # of the examples that are too long


class Share(NamedTuple):
    """How many of some rows, examples or trained turns are refused; ``noun`` says of which."""

    noun: str
    refused: int
    total: int

    @property
    def value(self) -> float:
        return self.refused / max(self.total, 1)

    def exceeds(self, limit: float, *, few: bool) -> bool:
        """Whether it is more than a limit allows.

        Args:
            few: all that is refused is of a few rows.
        """
        if limit and few and self.value < FIFTH:
            return False
        return self.refused > limit * self.total * (1 + _EXACT)


def shares(losses: Losses) -> list[Share]:
    """What a limit holds for, in this order."""
    return [
        Share("row", losses.rows_refused, losses.rows),
        Share("example", losses.examples_refused, losses.examples),
        Share("trained turn", losses.turns_refused, losses.turns),
    ]


def exceeding(losses: Losses, limit: float) -> Share | None:
    """The first of rows, examples and trained turns of which more is refused than a limit allows;
    None where all are within it."""
    few = losses.rows_hit <= FEW_ROWS
    return next((one for one in shares(losses) if one.exceeds(limit, few=few)), None)


class Limit(NamedTuple):
    """A share that fails a build where more is refused, and of what.

    Attributes:
        sources: numbers of the sources; ``name``: of a source with a limit of its own.
    """

    share: float
    sources: tuple[int, ...]
    name: str = ""

    def sentence(self, over: Share, losses: Losses, of: str = "") -> str:
        """How much was refused, and how much may be.

        Args:
            losses: of which ``over`` is a share.
            of: what is said of the rows, with a space behind it.
        """
        in_part = (losses.rows_hit - losses.rows_refused) * (over.noun == "row")
        whose = f" of source {self.name}" if self.name else ""
        option = f"max-reject of source {self.name}" if self.name else "--max-reject"
        total = f"{counted(over.total, f'{of}{over.noun}')}{whose}"
        allowed = f"({over.value:.1%}; at most {self.share:.1%} by {option})"
        beside = f" and {in_part:,} in part" if in_part else ""
        return f"{over.refused:,} of {total} {were(over.refused)} refused{beside} {allowed}"


def limits(config: Config) -> list[Limit]:
    """The limits of a build: sources without one of their own have that of the build together."""
    found, others = [], []
    for number, one in enumerate(config.sources):
        if one.max_reject is None:
            others.append(number)
        else:
            found.append(Limit(one.max_reject, (number,), one.name))
    return [*found, *([Limit(config.judge.max_reject, tuple(others))] if others else [])]


def together(losses: Mapping[int, Losses], sources: Sequence[int]) -> Losses:
    """Those of some sources, by their numbers."""
    return sum((losses[number] for number in sources if number in losses), Losses())


def refuse_too_many(ledger: Ledger, lost: Mapping[int, Losses], left: int, config: Config) -> None:
    """Stop a build that lost more than ``--max-reject`` allows, or everything.

    Args:
        lost: by the number of their source.
        left: examples that are kept.

    Raises:
        DataError: it did.
    """
    for limit in limits(config):
        if not left:
            raise error_of(ledger, together(lost, [*lost]), None, config=config, limit=limit)
        some = together(lost, limit.sources)
        over = exceeding(some, limit.share)
        if over is not None:
            raise error_of(ledger.of(limit.sources), some, over, config=config, limit=limit)


def foreseen(
    lost: Mapping[int, Losses],
    config: Config,
    read: Mapping[int, int],
    rows_of: Callable[[Sequence[int]], int],
    more: int,
) -> str:
    """The sentence of the first limit that a build would exceed; empty for none.

    Args:
        lost: of a sample, by the number of their source; ``read``: its rows.
        rows_of: all rows of some sources.
        more: rows that lose an example besides those of the sample.
    """
    for limit in limits(config):
        some, own = together(lost, limit.sources), sum(read[number] for number in limit.sources)
        every = some.scaled(max(rows_of(limit.sources), own) * some.rows / max(own, 1))
        some, every = (
            replace(one, rows_hit=one.rows_hit + more, examples_refused=one.examples_refused + more)
            for one in (some, every)
        )
        over = exceeding(every, limit.share)
        if over is not None:
            return limit.sentence(exceeding(some, limit.share) or over, some, "sampled ")
    return ""


def fitting(lengths: Sequence[int]) -> dict[int, int]:
    """For a few lengths of ``--max-length``, how many of the examples that are too long fit."""
    ordered = sorted(lengths)
    at = [math.ceil(share * len(ordered)) - 1 for share in _SHARES]
    offered = sorted({_up(ordered[place]) for place in at})
    return {length: bisect.bisect_right(ordered, length) for length in offered}


def _up(length: int) -> int:
    return -(-length // _STEP) * _STEP


def fitted(losses: Losses, long: Sequence[Long], length: int) -> Losses:
    """What is lost under another ``--max-length``.

    Args:
        long: every example that is too long.
    """
    fits = [one for one in long if one.tokens <= length]
    still = {one.row for one in long if one.tokens > length}
    freed = {one.row for one in fits if not one.stuck} - still
    return replace(
        losses,
        rows_refused=losses.rows_refused - len({one.row for one in fits if one.whole}),
        rows_hit=losses.rows_hit - len(freed),
        examples_refused=losses.examples_refused - len(fits),
        turns_refused=losses.turns_refused - sum(one.turns for one in fits),
    )


def _enough(losses: Losses, long: Sequence[Long], limit: float) -> int | None:
    """The least length with which a build passes; None where none is enough."""
    lengths = sorted({_up(one.tokens) for one in long})
    place = bisect.bisect_left(
        lengths, True, key=lambda n: exceeding(fitted(losses, long, n), limit) is None
    )
    return lengths[place] if place < len(lengths) else None


def _left_out(losses: Losses, limit: Limit, count: int) -> str:
    """How a few examples are left out that are far longer than all others."""
    rows = "its row" if count == 1 else "their rows"
    return f" Leave {rows} out of the file{_without(losses, limit)}."


def _without(losses: Losses, limit: Limit) -> str:
    """The way on without what is refused, where that is less than a fifth; else empty."""
    share = math.ceil(max(one.value for one in shares(losses)) * 100) / 100
    if limit.name or share >= FIFTH:
        return ""
    return f", or build without all that is refused with --max-reject {share:g}"


def _for_long(
    long: Sequence[Long], losses: Losses, config: Config, limit: Limit, of: str
) -> tuple[str, dict[str, Any]]:
    """What helps examples that are too long: a sentence or two, and their figures."""
    fits, count = fitting([one.tokens for one in long]), len(long)
    listed = [f"{'all' if n == count else n} fit {length:,} tokens" for length, n in fits.items()]
    text = f"Of the {counted(count, 'example')} that are too long, {', '.join(listed)}."
    if count == 1:
        room = next(iter(fits))
        text = f"One example is too long: {long[0].name} needs room for {room:,} tokens."
    enough = _enough(losses, long, limit.share)
    far = enough is not None and enough - _STEP >= _FAR * config.plan.max_length
    if far and count <= _RARE * losses.examples:
        text += _left_out(losses, limit, count)
        enough = None
    if enough is not None:  # what is named as an option can be pasted, and should build
        goal = "this sample passes" if of else "this build passes"
        text += f" With --max-length {enough} {goal}."
    trims = tasks.kind_of(config.task).trims if config.parts.too_long == "reject" else ""
    # Without its only trained turn, nothing of a conversation is left.
    trimmed = trims != "turns" or any(one.turns > 1 for one in long)
    if trims and trimmed and enough is not None:
        text += f" --too-long trim-{trims} drops whole {trims} from their ends."
    figures = {"examples": count, "max_length": config.plan.longest_example, "passes_at": enough}
    return text, {**figures, "fit": {str(length): n for length, n in fits.items()}}


def _by_code(codes: Codes, total: int, unit: str) -> dict[str, dict[str, Any]]:
    from pipeline.messages import explanations

    by_rule = explanations.left_out() if unit == "examples" else frozenset()
    return {
        code: {
            unit: count,
            "share": round(count / max(total, 1), 6),
            "first": codes.first[code],
            "detail": codes.details[code],
        }
        for code, count in codes.counts.most_common()
        if code not in by_rule
    }


def _reason(code: str, count: int, how: str, figures: Mapping[str, Any]) -> str:
    """The line of a code in the message of the error."""
    return f"  {count:>7} {code} ({how}): {', '.join(figures['first'])} ({figures['detail']})"


def error_of(
    ledger: Ledger,
    losses: Losses,
    over: Share | None,
    *,
    config: Config,
    limit: Limit,
    of: str = "",
) -> DataError:
    """The error: how much was refused, by reason, and what would help.

    Args:
        over: what is more than the limit allows; None where nothing is left.
        of: what the message says of the rows, with a space behind it.
    """
    told = over or shares(losses)[0]
    unit = "rows" if told.noun == "row" else "examples"
    codes, total = getattr(ledger, unit), getattr(losses, unit)
    figures: dict[str, Any] = {
        "of": f"{of}{told.noun}s" + (f" of source {limit.name}" if limit.name else ""),
        "total": told.total,
        "refused": told.refused,
        "share": round(told.value, 6),
        "max_reject": limit.share,
        "lost": {
            f"{one.noun}s": {"total": one.total, "refused": one.refused} for one in shares(losses)
        },
        "unit": unit,
        "by_code": _by_code(codes, total, unit),
    }
    reasons = [
        _reason(code, one[unit], f"{one['share']:.1%}", one)
        for code, one in figures["by_code"].items()
    ]
    in_part = _by_code(ledger.in_part, total, "examples") if unit == "rows" else {}
    reasons += [_reason(code, one["examples"], "in part", one) for code, one in in_part.items()]
    ways = []
    if ledger.long:
        text, figures["too_long"] = _for_long(ledger.long, losses, config, limit, of)
        ways.append(text)
    if over is not None and set(figures["by_code"]) != {TOO_LONG}:
        ways.append(f"Correct those rows, or leave them out of the file{_without(losses, limit)}.")
    if figures["by_code"]:
        ways.append(
            f"What it means, and the fix: pipeline explain {next(iter(figures['by_code']))}"
        )
    what = limit.sentence(over, losses, of) if over is not None else "Nothing is left"
    if told.noun == "trained turn":
        what += f", in {counted(losses.examples_refused, 'example')}"
    return DataError("\n".join([f"{what}:", *reasons]), " ".join(ways), figures)
