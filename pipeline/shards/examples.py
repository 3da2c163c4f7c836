"""The examples of all parts, as far as choosing and planning see them: numbers, never text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline import tasks
from pipeline.options import build_options, overlaps
from pipeline.options.config import Config
from pipeline.shards import chain, doubles, storage, train_test
from stages import columns
from stages.columns import Bools, Ints, offsets_of
from stages.errors import PipelineError
from stages.normalize import overlap_search, signatures
from stages.normalize.signatures import Signatures
from stages.rows import groups

Shares = npt.NDArray[np.float64]


def most_shared(column: pa.ChunkedArray) -> Shares:
    """The share of the question that each example has most of; 0 where it has nothing of any.

    Args:
        column: ``overlaps``, of a part.
    """
    offsets, overlaps = columns.list_parts(columns.whole(column))
    found = np.zeros(len(offsets) - 1)
    has = np.diff(offsets) > 0
    if has.any():
        shares = overlaps.flatten()[overlaps.type.get_field_index("share")].to_numpy()
        found[has] = np.maximum.reduceat(shares, offsets[:-1][has])
    return found


_COLUMNS = ("line", "length", "trained", "digest", chain.PARTIAL)  # that every plan is made from
_EVERY = slice(None)
Counts: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PlannedExamples:
    """Every example of the build, in input order: 32 bytes each.

    Attributes:
        starts: index of each part's first example, and the total.
        row: number of the input row, over all inputs; ascending.
        length, trained: tokens.
        digest: 16 bytes each.
        source: number of the source it comes from.
        partial: which have others of their row that were refused; None where none have.
        margin: of each pair, NaN where it has none; None in tasks without pairs.
        group: what decides its side of a split and which are taken first; None where not needed.
        asked: the same by question, ``NO_QUESTION`` where groups are not joined by it; None where
            none are.
        filtered: the number from 1 of the filter that leaves it out, 0 where none does; None
            without filters.
        score: what it is worth among its equals, more is better and NaN is least; None where the
            first of them stays.
        overlap: the largest share of an evaluation's question that it has; None without any.
        signatures: of each part, mapped: what its examples are like; ``questions``: what their
            questions are like. None where rows are not compared.
    """

    starts: Ints
    row: Ints
    length: Counts
    trained: Counts
    digest: doubles.Digests
    source: npt.NDArray[np.int16]
    partial: Bools | None = None
    margin: npt.NDArray[np.float32] | None = None
    group: train_test.Groups | None = None
    asked: train_test.Groups | None = None
    filtered: npt.NDArray[np.uint16] | None = None
    score: npt.NDArray[np.float64] | None = None
    overlap: Shares | None = None
    signatures: tuple[Signatures, ...] | None = None
    questions: tuple[Signatures, ...] | None = None

    def __len__(self) -> int:
        return len(self.row)

    def in_test(self, options: build_options.PlanOptions) -> Bools:
        """Which of them a split by shares has in test: none without one."""
        if self.group is None:
            return np.zeros(len(self), bool)
        return train_test.in_test(self.group, options.test_size, options.seed)

    def rows(self, which: Bools | slice = _EVERY) -> int:
        """How many input rows some of the examples come from."""
        # Examples of one row stand side by side, so a row begins wherever the number changes.
        row = self.row[which]
        return int(np.count_nonzero(row[1:] != row[:-1])) + bool(len(row))


def rows_left_out(examples: PlannedExamples, fate: "Fates") -> dict[str, int]:
    """How many input rows are not used at all, by the last fate of their examples."""
    seen = np.equal(fate, Fate.USED)
    counts = dict.fromkeys(LEFT_OUT.values(), 0)
    if seen.all():
        return counts
    before = examples.rows(seen)
    for one in reversed(LEFT_OUT):
        seen |= fate == one
        rows = examples.rows(seen)
        counts[LEFT_OUT[one]] = rows - before
        before = rows
    return counts


def columns_of(path: Path, names: Sequence[str]) -> pa.Table:
    """Some columns of a part, mapped: no byte of the others is read."""
    with pa.memory_map(str(storage.here(path))) as source:
        schema = pa.ipc.open_file(source).schema
        wanted = [schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        return pa.ipc.open_file(source, options=options).read_all()


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a part that plans need.

    Attributes:
        path: of their file.
        lines: of its split; ``examples``: that were kept.
        source: the number of its source.
    """

    path: str
    lines: int
    examples: int
    source: int = 0


def read_numbers(parts: Sequence[Numbers], config: Config, base: int = 0) -> PlannedExamples:
    """The examples of some consecutive parts.

    Args:
        base: lines of the parts before them.

    Raises:
        PipelineError: the examples of a part are not in the order of its rows.
    """
    grouped, paired = config.grouped, tasks.kind_of(config.task).compares
    of_sources = [groups.columns_of(config.only(n).groups) for n in range(len(config.sources))]
    joined = any(groups.ASKED in own for own in of_sources)
    every = (*_COLUMNS, "margin") if paired else _COLUMNS
    names = (*every, *max(of_sources, key=len))
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
    for part in parts:
        own = of_sources[part.source]
        table = columns_of(Path(part.path), (*every, *own))
        if joined and groups.ASKED not in own:
            table = table.append_column(groups.ASKED, table.column(groups.NAME))
        line = table.column("line").to_numpy()
        if (line[1:] < line[:-1]).any():
            raise PipelineError(f"{part.path}: the examples are not in the order of their rows.")
        if len(line) != part.examples:
            raise PipelineError(f"{part.path} has {len(line)} examples of {part.examples}.")
        columns["line"].append(line + base)
        for name in set(names) - {"line", "digest"}:
            columns[name].append(table.column(name).to_numpy())
        columns["digest"].append(doubles.digests_of(table.column("digest")))
        base += part.lines
    counts = np.array([part.examples for part in parts], np.int64)
    sources = np.array([part.source for part in parts], np.int16)
    partial = _joined(columns, chain.PARTIAL, np.dtype(bool))
    return PlannedExamples(
        starts=offsets_of(counts),
        row=_joined(columns, "line", np.dtype(np.int64)),
        length=_joined(columns, "length", np.dtype(np.int32)),
        trained=_joined(columns, "trained", np.dtype(np.int32)),
        digest=_joined(columns, "digest", doubles.DIGEST),
        partial=partial if partial.any() else None,
        margin=_joined(columns, "margin", np.dtype(np.float32)) if paired else None,
        group=_joined(columns, groups.NAME, np.dtype(np.uint64)) if grouped else None,
        asked=_joined(columns, groups.ASKED, np.dtype(np.uint64)) if joined else None,
        source=np.repeat(sources, counts),
    )


def read_examples(
    parts: Sequence[Numbers], paths: Sequence[Path], config: Config
) -> PlannedExamples:
    """Every example of a build: the numbers that plans need, and what rows are compared by.

    Args:
        paths: of the parts.

    Raises:
        PipelineError: the examples of a part are not in the order of its rows.
    """
    examples = read_numbers(parts, config)
    searched = () if overlaps.search_of(config.plan) is None else (overlap_search.NAME,)
    likeness = overlaps.likeness_of(config.plan)
    compared = likeness.columns if likeness else ()
    alike: dict[str, list[Signatures]] = {name: [] for name, _ in compared}
    overlap: list[Shares] = []
    for path in paths if searched or alike else ():
        table = columns_of(path, (*searched, *alike))
        overlap += [most_shared(table.column(name)) for name in searched]
        for name, found in alike.items():
            found.append(signatures.numbers(table.column(name)))
    return replace(
        examples,
        overlap=np.concatenate(overlap) if overlap else None,
        signatures=tuple(alike[signatures.ROW]) if likeness else None,
        questions=tuple(alike[likeness.by_question]) if likeness and likeness.sides else None,
    )


def _joined(
    columns: dict[str, list[npt.NDArray[Any]]], name: str, kind: np.dtype[Any]
) -> npt.NDArray[Any]:
    """One column of all parts, whose pieces are given up."""
    return np.concatenate([np.zeros(0, kind), *columns.pop(name)], dtype=kind)


def part_of(starts: Ints, index: Ints) -> Ints:
    """The part that holds each example."""
    return np.searchsorted(starts, index, side="right") - 1


# What becomes of every example that was encoded: it is used, or left out for one reason.


Fates: TypeAlias = npt.NDArray[np.uint8]


class Fate(IntEnum):
    """Why an example is left out: the first reason in this order."""

    USED = 0
    FILTERED = 1
    CONTAMINATED = 2
    DUPLICATE = 3
    NEAR_DUPLICATE = 4
    OVER_BUDGET = 5


# Those of examples that are left out, with the names that a manifest counts them under.
_NAMES = "filtered contaminated duplicates near_duplicates left_out".split()
LEFT_OUT = dict(zip([*Fate][1:], _NAMES, strict=True))


class Asked(NamedTuple):
    """What the budget of a source came to, on the train side.

    Attributes:
        unit: ``rows`` (examples), ``tokens``, ``trained_tokens`` or ``epochs``.
        amount: in that unit; ``given``: of it.
        short: the source has less than that, in as many passes as are allowed.
        rated: a share or a weight says how much, or the total of the build.
        scarcest: all that it may give is used, and nothing but the sources says how much.
    """

    unit: str
    amount: float
    given: float
    short: bool
    rated: bool = False
    scarcest: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Which examples are used, on which side, and how often.

    Attributes:
        fate: of every example, a ``Fate``.
        test: which examples are of the test side.
        group: what decided that; None where nothing needs it.
        times: how often each example is stored, 0 where it is left out; None for once.
        near: those that are like another; None where rows are not compared.
        asked: of each source, what its budget came to; empty where no source has a budget.
    """

    fate: Fates
    test: Bools
    group: train_test.Groups | None = None
    times: npt.NDArray[np.uint16] | None = None
    asked: tuple[Asked, ...] = ()
    near: doubles.NearDoubles | None = None

    def of(self, first: int, end: int) -> "Choice":
        """What becomes of the examples from .. to .."""
        return Choice(
            self.fate[first:end],
            self.test[first:end],
            group=None if self.group is None else self.group[first:end],
            times=None if self.times is None else self.times[first:end],
        )

    @property
    def used(self) -> Bools:
        """Which examples are used, on either side."""
        return np.equal(self.fate, Fate.USED)

    @property
    def held(self) -> Bools:
        """Which examples are used, or would be by another budget."""
        return self.used | np.equal(self.fate, Fate.OVER_BUDGET)

    @property
    def stored_times(self) -> Ints:
        """How often each example is stored."""
        return (self.used if self.times is None else self.times).astype(np.int64)

    @property
    def left_out(self) -> dict[str, int]:
        """How many examples are left out, by the names of ``LEFT_OUT``."""
        counts = np.bincount(self.fate, minlength=len(Fate)).tolist()
        return {name: counts[fate] for fate, name in LEFT_OUT.items()}

    def stored(self, values: npt.NDArray[np.integer[Any]]) -> int:
        """The sum of a number of every example over all that is stored, copies included."""
        return int((values * self.stored_times).sum())
