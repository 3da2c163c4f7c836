"""All questions of a file at once: each is answered, and the next one asked, until none is left.

An answer that is offered was tried on the sampled rows: with all that it leads to, they are read,
and no more of them are refused than a build allows, where any answer gives that. Answers that
only show that rows contradict themselves are offered too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pipeline.options.config import Config
from pipeline.options.many_values import Pairs
from pipeline.options.ways import FLAGS, Way, applied, ways, without, written
from stages.errors import DataError, PipelineError, UnknownFormatError, UsageError
from stages.rows import judgements
from stages.rows.expressions import parse
from stages.rows.selection import condition

Read = TypeVar("Read")
Page: TypeAlias = Callable[[Config, Mapping[str, str]], Mapping[str, Any]]
_DEEPEST = 12  # questions after one another
_SOME = 0.2  # of the rows, in which a contradiction is in the rows and not in the answer
_MOST = 32  # readings that are tried
_PAIRS = tuple(flag for flag, option in FLAGS.items() if isinstance(option.value, Pairs))
_OTHER = "Name the columns with --map, or the format with --format."


class RefusedError(DataError):
    """The sampled rows are read, and a build would refuse too many of them.

    Attributes:
        code: why; ``every``: no row is left; ``read``: what reading them gives, where nothing
            helps.
        contradicts: some rows contradict themselves, which whoever answers should see.
    """

    code: str
    every: bool
    contradicts: bool
    read: Any

    @classmethod
    def of(cls, what: str, remedy: str, code: str, read: object, share: float) -> RefusedError:
        """The error for a code, of a share of the rows."""
        error = cls(what, remedy)
        error.code, error.read, error.every = code, read, share == 1
        error.contradicts = code == "two_orders" and share <= _SOME
        return error


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, the answer that is tried, and the answers that lead nowhere."""

    error: PipelineError
    answer: Way
    dead: frozenset[Way] = frozenset()


@dataclass(frozen=True, slots=True)
class _Chain:
    """Questions with answers, after which the rows are read; ``refused``: though too few of them
    are left."""

    asked: tuple[Asked, ...]
    refused: bool = False


def _question(error: PipelineError) -> str:
    """What an error asks, whatever it counts."""
    if isinstance(error, UnknownFormatError):
        return type(error).__name__
    if isinstance(error, RefusedError):
        return error.code
    return re.sub(r"(?<!\w)\d[\d,.]*", "", error.what)


class _Explorer:
    """Follows each answer to a question to the questions behind it."""

    def __init__(self, read: Callable[[Config], object]) -> None:
        self._read, self._left = read, _MOST
        self.behind: tuple[Way, PipelineError] | None = None  # the first answer, where it moved on

    def chains(
        self,
        error: PipelineError,
        config: Config,
        taken: tuple[Way, ...] = (),
        *,
        every: bool = True,
    ) -> list[_Chain]:
        """For each answer to a question that leads to a reading: it, and those that follow. Where
        one refuses too many rows, and not because they contradict themselves, only if all do.

        Args:
            taken: the answers before; every: for each answer; else for the first.
        """
        found: dict[Way, list[_Chain]] = {}
        for way in ways(error.remedy):
            if after := self._after(error, way, config, taken, every=every and not found):
                found[way] = after
                if not (every or after[0].refused):
                    break
        good = {way: after for way, after in found.items() if not after[0].refused} or found
        dead = frozenset(ways(error.remedy)).difference(good) if every else frozenset()
        # Of several answers, each with what it leads to at first; of one, with all of that.
        return [
            _Chain((Asked(error, way, dead), *chain.asked), chain.refused)
            for way, after in good.items()
            for chain in (after if len(good) == 1 else after[:1])
        ]

    def _after(
        self, error: PipelineError, way: Way, config: Config, taken: tuple[Way, ...], *, every: bool
    ) -> list[_Chain]:
        """What may follow an answer; nothing where it leads nowhere, or too far to be tried."""
        if len(taken) == _DEEPEST or not self._left or not _go_together((*taken, way)):
            return []
        self._left -= 1
        try:
            changed = applied(way, config)
            self._read(changed)
        except DataError as another:
            if _question(another) == _question(error):
                return []
            if not (taken or self.behind or isinstance(another, UnknownFormatError)):
                self.behind = way, another
            rest = self.chains(another, changed, (*taken, way), every=every)
            if not isinstance(another, RefusedError):
                return rest
            left = [] if another.every else [_Chain((), not another.contradicts)]
            return [one for one in rest if not one.refused] or left
        except PipelineError:
            return []
        return [_Chain(())]


def settled(read: Callable[[Config], Read], config: Config, page: Page) -> Read:
    """What reading some rows gives.

    Args:
        page: the columns of the rows that asked, from options that answer and the columns that are
            asked about: figures of the error, empty where there are none.

    Raises:
        DataError: they leave questions open; it has all that the first answer to each leads to,
            and the options that answer all of them.
    """
    try:
        return read(config)
    except (DataError, UsageError) as error:
        told = explained(error, read, config, page)
        if isinstance(error, RefusedError) and told is None:
            found: Read = error.read
            return found
        if told is None or told is error:
            raise
        raise told from error


def explained(
    error: PipelineError,
    read: Callable[[Config], object],
    config: Config,
    page: Page = lambda *_: {},
) -> PipelineError | None:
    """The error of a question that reading some rows asks, with what follows from each answer; None
    where rows are refused for a reason that no answer helps.

    Args:
        read, page: see ``settled``.
    """
    explorer = _Explorer(read)
    chains = explorer.chains(error, config)
    if isinstance(error, RefusedError):
        chains = [one for one in chains if not one.refused]
        if not chains:
            return None
    if not chains and explorer.behind is not None:
        error = _moved(error, *explorer.behind)
    first, after = chains[0].asked if chains else (), config
    for one in first:
        after = applied(one.answer, after)
    if isinstance(error, DataError):
        pairs = [(pair, one.error.what) for one in first for pair in one.answer]
        error.figures |= page(after, {path: what for p, what in pairs for path in _columns(*p)})
    if any(len(chain.asked) > 1 for chain in chains):
        each = [chain.asked for chain in chains]
        return _together(error, [*each, *_leaving_rest(read, config, first)])
    dead = first[0].dead if first else frozenset(ways(error.remedy))
    error.remedy = without(error.remedy, dead) or (error.remedy and _OTHER)
    return error


def _moved(error: PipelineError, way: Way, behind: PipelineError) -> PipelineError:
    """The error for a question whose answers lead to one that no option answers."""
    said = f"{error.what} With {written(way)}, what follows is: {behind.what}"
    own = without(error.remedy, frozenset(ways(error.remedy)))
    return type(error)(said, f"{own} {behind.remedy}".lstrip(), error.figures)


def _leaving_rest(
    read: Callable[[Config], object], config: Config, chain: Sequence[Asked]
) -> Iterator[list[Asked]]:
    """The same answers, with all columns left out that nothing reads, where that is enough."""
    others = [one for one in chain if not any(_columns(*pair) for pair in one.answer)]
    rest = Asked(chain[-1].error, (("--leave-rest", ""),))
    try:
        for one in (*others, rest):
            config = applied(one.answer, config)
        read(config)
    except PipelineError:
        return
    yield [*others, rest]


def _joined(answers: Iterable[Way]) -> Way:
    """Answers as one, of an option that has one value the last."""
    pairs = itertools.chain(*answers)
    known = {f if f in FLAGS and not FLAGS[f].value.many else (f, v): (f, v) for f, v in pairs}
    return tuple(known.values())


def _go_together(answers: Sequence[Way]) -> bool:
    """Whether no answer takes another one back: leaves a column out that one reads, or gives a name
    another value."""
    pairs = {*itertools.chain(*answers)}
    left = {value for flag, value in pairs if flag == "--ignore"}
    used = {path for flag, value in pairs if flag != "--ignore" for path in _columns(flag, value)}
    named = [(flag, value.partition("=")[0]) for flag, value in pairs if flag in _PAIRS]
    once = len(named) == len({*named})
    return once and left.isdisjoint(itertools.chain(*(judgements.bare(p).split(",") for p in used)))


def _columns(flag: str, value: str) -> Sequence[str]:
    """The columns that an option is about."""
    if flag == "--filter":
        return parse(value).columns
    if flag == "--where":
        return (judgements.bare(condition(value).column).rpartition(",")[2],)
    named = {"--ignore": value, "--map": value.partition("=")[2]}.get(flag)
    return (named,) if named else ()


def _together(error: PipelineError, chains: Sequence[Sequence[Asked]]) -> DataError:
    """One error for several questions."""
    answers = [written(_joined(one.answer for one in chain)) for chain in chains]
    if len(chains[0]) == 1:
        listed = ", or with ".join(answers)
        return DataError(error.what, f"Say which with {listed}.", error.figures)
    said = [one.error.what.partition(": ") for one in chains[0]]
    where = {start for start, _, _ in said}  # the file, if all questions are about one
    listed = "".join(
        f"\n  {at}. {rest if len(where) == 1 and rest else one.error.what}"
        f" {without(one.error.remedy, one.dead)}".rstrip()
        for at, (one, (_, _, rest)) in enumerate(zip(chains[0], said, strict=True), 1)
    )
    file = f"{where.pop()}: " if len(where) == 1 else ""
    what = f"{file}{len(said)} questions must be answered first.{listed}"
    remedy = f"Answer all of them at once with {', or with '.join(answers)}."
    return DataError(what, remedy, error.figures)
