"""All questions of a file at once: each is answered, and the next one asked, until none is left.

An answer that is offered was tried on the sampled rows: with all that it leads to, they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline.options.config import Config
from pipeline.options.ways import TASK, Way, applied, ways, written
from stages.errors import DataError, PipelineError
from stages.rows.selection import condition

Read = TypeVar("Read")
_DEEPEST = 12  # questions after one another
_MOST = 60  # readings that are tried


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and the answer that is tried."""

    error: DataError
    answer: Way


class _Explorer:
    """Follows each answer to a question to the questions behind it."""

    def __init__(self, read: Callable[[Config], object]) -> None:
        self._read, self._left = read, _MOST

    def chains(self, error: DataError, config: Config, depth: int = 0) -> Iterator[list[Asked]]:
        """For each answer to a question that leads to a reading: it, and those that follow."""
        for way in ways(error.remedy):
            if depth == _DEEPEST or not self._left or any(flag == TASK for flag, _ in way):
                continue
            self._left -= 1
            try:
                changed = applied(way, config)
                self._read(changed)
            except DataError as another:
                if another.what == error.what:
                    continue
                rest = next(self.chains(another, changed, depth + 1), None)
                if rest is not None:
                    yield [Asked(error, way), *rest]
            except PipelineError:
                continue
            else:
                yield [Asked(error, way)]


def settled(
    read: Callable[[Config], Read],
    config: Config,
    page: Callable[[Config, Mapping[str, str]], Sequence[Mapping[str, Any]]],
) -> Read:
    """What reading some rows gives.

    Args:
        page: the columns of the rows that asked, from options that answer and the columns that are
            asked about; it is in the error's figures as ``sheet``.

    Raises:
        DataError: they leave questions open; it has all that the first answer to each leads to,
            and the options that answer all of them.
    """
    try:
        return read(config)
    except DataError as error:
        chains = list(_Explorer(read).chains(error, config))
        first = chains[0] if chains else []
        before = config
        for one in first:
            config = applied(one.answer, config)
        error.figures["sheet"] = page(config, _asked_about(first))
        if all(len(chain) == 1 for chain in chains):
            raise
        raise _together(error, [*chains, *_leaving_rest(read, before, first)]) from error


def _leaving_rest(
    read: Callable[[Config], object], config: Config, chain: Sequence[Asked]
) -> Iterator[list[Asked]]:
    """The same answers, with all columns left out that nothing reads, where that is enough."""
    others = [one for one in chain if not any(_column(*pair) for pair in one.answer)]
    rest = Asked(chain[-1].error, (("--leave-rest", ""),))
    try:
        for one in (*others, rest):
            config = applied(one.answer, config)
        read(config)
    except PipelineError:
        return
    yield [*others, rest]


def _asked_about(chain: Sequence[Asked]) -> dict[str, str]:
    """The columns that answers name, each with its question."""
    return {
        path: one.error.what
        for one in chain
        for flag, value in one.answer
        if (path := _column(flag, value))
    }


def _column(flag: str, value: str) -> str:
    if flag == "--where":
        return condition(value).column
    return {"--ignore": value, "--map": value.partition("=")[2]}.get(flag, "")


def _together(error: DataError, chains: Sequence[Sequence[Asked]]) -> DataError:
    """One error for several questions."""
    answers = [" ".join(written(one.answer) for one in chain) for chain in chains]
    others = [
        f"or use another task: pipeline run {task}"
        for way in ways(error.remedy)
        for flag, task in way
        if flag == TASK
    ]
    if len(chains[0]) == 1:
        which = ", ".join((f"Say which with {', or with '.join(answers)}", *others))
        return DataError(error.what, f"{which}.", error.figures)
    said = [one.error.what.partition(": ") for one in chains[0]]
    where = {start for start, _, _ in said}  # the file, if all questions are about one
    listed = [
        f"\n  {at}. {rest if len(where) == 1 and rest else one.error.what} {one.error.remedy}"
        for at, (one, (_, _, rest)) in enumerate(zip(chains[0], said, strict=True), 1)
    ]
    file = f"{where.pop()}: " if len(where) == 1 else ""
    what = f"{file}{len(listed)} questions must be answered first.{''.join(listed)}"
    remedy = f"Answer all of them at once with {', or with '.join(answers)}"
    return DataError(what, f"{', '.join((remedy, *others))}.", error.figures)
