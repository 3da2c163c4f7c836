"""What a plan counts of its examples: all that a manifest, a ledger and the audits say of them.

What is counted of one window adds up with what is counted of the others, so whoever has the counts
needs no example.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.contract import Context
from expectations.stored_rows import Chunk, chunk_of
from pipeline import executors, tasks
from pipeline.manifest.counts import MarginCounts
from pipeline.options.config import Config
from pipeline.shards import budgets, plan, train_test
from pipeline.shards.examples import Asked, Choice, PlannedExamples, rows_left_out
from stages import columns
from stages.columns import Ints
from stages.contract import Batch
from stages.profile import TargetModel
from stages.tokens import folded_labels, packed, ragged

_AUDITED = {*ragged.ORDER} - {"source", "loss_weights"}  # columns of a part

# How many pairs of a build have a margin, and how many have none.
#
# The column is stored when at least one pair has a margin; the others are null in it. In a loss
# that subtracts margins a pair without one counts as margin 0, which is that loss without margins.


@dataclass(frozen=True, slots=True)
class Margins(executors.Sums):
    """Pairs with a margin and without, and those whose margin is below zero."""

    present: int = 0
    absent: int = 0
    negative: int = 0

    def recorded(self) -> MarginCounts:
        """The manifest's ``rm.margins``; the audit of margins has those below zero."""
        return MarginCounts(self.present, self.absent)


def of_column(column: pa.Array | pa.ChunkedArray) -> Margins:
    """The counts of a float32 column, which is null where a pair has no margin."""
    values = column.drop_null().to_numpy()
    return Margins(len(values), column.null_count, int((values < 0).sum()))


def sampled(batch: Batch, names: Sequence[str], model: TargetModel, config: Config) -> Chunk:
    """The examples of a sample that fit, as audits read them.

    Args:
        batch: after ``encode``; ``names``: of its rows, by their lines.
    """
    longest = config.plan.longest_example
    fit = folded_labels.unfold(batch.filter(pc.less_equal(batch.column("length"), longest)))
    kept = [name for name in fit.schema.names if name in _AUDITED]
    table = pa.table({name: columns.whole(fit.column(name)) for name in kept})
    ids = pa.array([names[line] for line in fit.column("line").to_pylist()], pa.string())
    context = Context(tasks.kind_of(config.task), ragged.LAYOUT.name, longest, model)
    return chunk_of(table.append_column("row_id", ids), "train", context)


def _margins(examples: PlannedExamples, choice: Choice) -> Margins | None:
    """The counts of the pairs that are used; None in tasks without pairs."""
    if examples.margin is None:
        return None
    return of_column(pa.array(examples.margin[choice.used], from_pandas=True))  # NaN is null


@dataclass(frozen=True, slots=True)
class Counts(executors.Sums):
    """Of all examples of a plan, or of those of a window. It can be pickled.

    Attributes:
        kept: examples that are used; ``copies``: how often they are stored beyond once.
        tokens, trained: of all that is stored.
        rows_used: input rows of which an example is used; ``rows_in_part``: those of them of which
            another was refused; ``rows_left_out``: those of which none is used, by the names of
            ``choice.fates.LEFT_OUT``, as ``left_out`` has the examples.
        found: examples that equal an earlier one; ``equal``: those of them that are used and equal
            another that is used.
        apart: examples that equal one on the other side; a build that has some is refused.
        leaked: examples of test that equal one of train.
        lower_bound: fewer packs cannot hold all that is stored.
        held, held_tokens, held_trained: where packs are an index, what is stored, each once;
            ``held_equal``: examples of it that equal another; 0 where packs are rows.
        doubles: what ``--dedup`` leaves out, by its source and the source of what stays.
        lengths: how many examples that are used have so many tokens.
        of_parts: of each part, the examples that are used, and their tokens: shape (parts, 2).
        portions: what sources have, and give to each side; None without sources and budgets.
        margins: of the pairs that are used; None in tasks without pairs.
    """

    kept: int = 0
    copies: int = 0
    tokens: int = 0
    trained: int = 0
    rows_used: int = 0
    rows_in_part: int = 0
    found: int = 0
    equal: int = 0
    apart: int = 0
    leaked: int = 0
    lower_bound: int = 0
    held: int = 0
    held_tokens: int = 0
    held_trained: int = 0
    held_equal: int = 0
    rows_left_out: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    doubles: Counter[tuple[int, int]] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    of_parts: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    portions: budgets.SourcePortions | None = None
    margins: Margins | None = None

    @property
    def stored(self) -> int:
        """Examples, copies included."""
        return self.kept + self.copies

    def histogram(self) -> tuple[Ints, Ints]:
        """The lengths that there are, ascending, and how many examples have each."""
        ordered = sorted(self.lengths.items())
        return np.array([n for n, _ in ordered], np.int64), np.array(
            [count for _, count in ordered], np.int64
        )


class Outline(NamedTuple):
    """What a plan came to, without its examples. It can be pickled.

    Attributes:
        sides: those that have examples; of each how many packings were made apart from each other.
        split: the build was asked for two sides; ``rule``: how they were made.
        width: of padded rows, in tokens; 0 otherwise.
        asked: of each source, what its budget came to; empty where no source has one.
        windows: that were planned apart.
    """

    counts: Counts
    sides: Mapping[str, int]
    split: bool
    width: int
    rule: train_test.SplitRule | None = None
    asked: tuple[Asked, ...] = ()
    windows: int = 1


def joined(counts: Sequence[Counts]) -> Counts:
    """The counts of all windows together; theirs are in the order of the parts."""
    none = np.zeros((0, 2), np.int64)
    total = sum((replace(one, of_parts=none) for one in counts), Counts())
    return replace(total, of_parts=np.concatenate([none, *(one.of_parts for one in counts)]))


def _of_parts(examples: PlannedExamples, choice: Choice) -> Ints:
    """Of each part, the examples that are used, and their tokens."""
    found = np.zeros((len(examples.starts) - 1, 2), np.int64)
    for part, (first, last) in enumerate(pairwise(examples.starts.tolist())):
        own = choice.used[first:last]
        found[part] = int(own.sum()), int(examples.length[first:last][own].sum(dtype=np.int64))
    return found


def _lengths(examples: PlannedExamples, choice: Choice) -> Counter[int]:
    counts = np.bincount(examples.length[choice.used])
    there = np.flatnonzero(counts)
    return Counter(dict(zip(there.tolist(), counts[there].tolist(), strict=True)))


def lower_bound(examples: PlannedExamples, choice: Choice, capacity: int) -> int:
    """Fewer packs than these cannot hold the examples of all sides."""
    stored = (own for own, _ in plan.keys_of(choice).values())
    return sum(packed.lower_bound(examples.length[own], capacity) for own in stored)


def of(config: Config, examples: PlannedExamples, choice: Choice) -> Counts:
    """Count a window, but for what its equals in others decide (``equal.find``)."""
    kept, partial = int(choice.used.sum()), examples.partial
    held = choice.held & config.plan.index_only
    return Counts(
        kept=kept,
        copies=choice.stored(np.ones(len(choice.fate), np.int64)) - kept,
        tokens=choice.stored(examples.length),
        trained=choice.stored(examples.trained),
        rows_used=examples.rows(choice.used),
        rows_in_part=0 if partial is None else examples.rows(choice.used & partial),
        lower_bound=lower_bound(examples, choice, config.plan.max_length),
        held=int(held.sum()),
        held_tokens=int(examples.length[held].sum(dtype=np.int64)),
        held_trained=int(examples.trained[held].sum(dtype=np.int64)),
        rows_left_out=Counter(rows_left_out(examples, choice.fate)),
        left_out=Counter(choice.left_out),
        lengths=_lengths(examples, choice),
        of_parts=_of_parts(examples, choice),
        portions=budgets.source_portions(config, examples, choice),
        margins=_margins(examples, choice),
    )
