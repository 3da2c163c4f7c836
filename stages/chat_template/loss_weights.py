"""Loss weights: from a turn's own number to one for each of its tokens.

They are computed in three steps, each a list per row: per turn (``of_turns``), per segment of the
rendered text (``of_segments``), per token (``of_tokens``). An empty list means that everything
trained has weight 1. So rows without weights store none, and a build of such rows has no column
``loss_weights``.
"""

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns, contract
from stages.chat_template.segments import CONTROL, TRAINED
from stages.columns import Ids
from stages.errors import RowError, counted

NAME = "loss_weights"
Floats = npt.NDArray[np.float32]


def of_turns(conversations: Sequence[Sequence[contract.Message]]) -> pa.ListArray:
    """list<float32>: of each conversation's turns, 0 where untrained; empty where none has one."""
    some = [
        row
        for row, turns in enumerate(conversations)
        for turn in turns
        if turn.weight is not None and turn.trained
    ]
    weighted = {row: [_of_turn(turn) for turn in conversations[row]] for row in dict.fromkeys(some)}
    return lists(weighted, len(conversations))


def _of_turn(turn: contract.Message) -> float:
    if not turn.trained:
        return 0.0
    return 1.0 if turn.weight is None else turn.weight


def lists(by_row: Mapping[int, Sequence[float]], rows: int) -> pa.ListArray:
    """A list<float32> column of ``rows`` rows; rows that are not in ``by_row`` get an empty list.

    Args:
        by_row: lists by row, in ascending order of rows.
    """
    lengths = np.zeros(rows, np.int64)
    for row, values in by_row.items():
        lengths[row] = len(values)
    flat = np.fromiter(itertools.chain.from_iterable(by_row.values()), np.float32)
    return columns.make_list(columns.offsets_of(lengths), pa.array(flat))


def nonempty(column: pa.ListArray) -> dict[int, list[float]]:
    """The lists that are not empty, by row; columns without any value are not looped over."""
    if not len(column.flatten()):
        return {}
    return {row: values for row, values in enumerate(column.to_pylist()) if values}


def of_segments(
    texts: Sequence[str],
    kinds: bytes,
    weights: Sequence[float],
    tokens: Sequence[str],
    ends: Sequence[int] | None,
) -> list[float]:
    """A weight for each segment of a rendered conversation: that of the turn it trains.

    Args:
        weights: of every turn, 0 where untrained.
        tokens: those that end turns.
        ends: where each turn stops in the rendered text; None where answers alone are trained,
            each of which then has one trained end of turn.

    Raises:
        RowError: ``weight_unplaced``: the template joins turns, or adds some.
    """
    # A turn ends at an end-of-turn token, so the segments up to the n-th of these have the weight
    # of the turn that ends there.
    stops = [
        i
        for i, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        if kind & CONTROL and text in tokens and (kind & TRAINED or ends is not None)
    ]
    trained = [i for i, weight in enumerate(weights) if weight]
    owned: list[float | None]
    if ends is None:
        owners = trained if len(stops) == len(trained) else []
        owned = [weights[i] for i in owners]
    else:
        # Every turn has an end of turn, trained or not: the turn is found by the place in the text.
        reached = list(itertools.accumulate(map(len, texts)))
        owners = [bisect_left(ends, reached[stop]) for stop in stops]
        owned = [weights[i] if i < len(weights) else None for i in owners]
        if owners[:2] == [0, 0]:  # two ends up to turn 0: the template added a system turn
            owned[0], owners = 1.0, owners[1:]
    if None in owned or not set(trained) <= set(owners) or len(set(owners)) != len(owners):
        raise RowError(
            "weight_unplaced",
            "the template does not end each turn separately, so weights cannot be placed",
        )
    segment_weights = [0.0] * len(texts)
    start = 0
    for stop, weight in zip(stops, owned, strict=True):
        segment_weights[start : stop + 1] = [weight or 0.0] * (stop + 1 - start)
        start = stop + 1
    return segment_weights


def of_tokens(
    column: pa.ListArray,
    segments: columns.Ints,
    lengths: columns.Ints,
    offsets: columns.Ints,
    labels: Ids,
) -> tuple[pa.ListArray, Floats | None]:
    """Weights of tokens: as a column, and flat for all rows (None where all are plain).

    Args:
        column: list<float32>, the weights of each row's segments; empty lists for weight 1.
        segments: where each row's segments start; ``lengths``: tokens of each segment.
        offsets: where each row's tokens start; ``labels``: of all tokens, flat.
    """
    trained = labels != columns.IGNORED
    if not len(column.flatten()):
        return lists({}, len(column)), None
    at, values = columns.list_parts(column)
    # One weight per segment: 1, but in rows that have weights their own. ``np.repeat`` spreads what
    # is true of a row over its segments, and a weight of a segment over its tokens.
    flat = np.ones(len(lengths), np.float32)
    flat[np.repeat(np.diff(at) > 0, np.diff(segments))] = values.to_numpy()
    tokens = np.where(trained, np.repeat(flat, lengths), np.float32(0))
    # Rows whose weights are 1 where trained and 0 elsewhere say no more than their labels do, and
    # get an empty list.
    more = columns.count_per_row(offsets, tokens != trained) > 0
    sizes = np.where(more, np.diff(offsets), 0)
    kept = tokens[np.repeat(more, np.diff(offsets))]
    return columns.make_list(columns.offsets_of(sizes), pa.array(kept)), tokens


def spread(table: pa.Table) -> pa.Table:
    """The table with one weight per token in every row: 1 or 0 (by the label) where it has none."""
    offsets, labels = columns.numbers(columns.whole(table.column("labels")))
    at, values = columns.list_parts(columns.whole(table.column(NAME)))
    flat = (labels != columns.IGNORED).astype(np.float32)
    flat[np.repeat(np.diff(at) > 0, np.diff(offsets))] = values.to_numpy()
    place = table.schema.get_field_index(NAME)
    return table.set_column(
        place, NAME, columns.make_list(offsets, pa.array(flat, columns.TYPES[NAME].value_type))
    )


def stored(table: pa.Table) -> pa.Table:
    """The table as a build stores it: one weight per token in every row, or no such column."""
    if NAME not in table.schema.names:
        return table
    return spread(table) if any_in(table) else table.drop_columns([NAME])


def any_in(table: pa.Table) -> bool:
    """Whether some row has a weight other than 0 and 1."""
    return any(len(chunk.flatten()) for chunk in table.column(NAME).chunks)


# The cost of templates that need one example per trained turn.
#
# Where a template prints earlier turns differently once later ones follow, every trained turn
# becomes an example of its own that repeats all turns before it. The same turns are trained as in
# one example, with many more tokens of context.


COUNTS = ("conversations", "examples", "tokens", "tokens_if_whole")
REMEDY = (
    "--train-on last makes one example of a conversation, trained on its last answer; "
    "--history appended makes one, trained on every answer, for servers that keep tokens; "
    "a model whose template keeps earlier turns as they are makes one, trained on every answer"
)


def count(batch: contract.Batch) -> dict[str, int]:
    """Counts of the conversations in a batch that became several examples.

    Args:
        batch: encoded, without refused rows: ``line``, ``messages``, ``length``.

    Returns:
        ``conversations``; their ``examples`` and the ``tokens`` of these; ``tokens_if_whole``:
        of the last example of each conversation alone, which holds all its turns.
    """
    if not batch.num_rows:
        return dict.fromkeys(COUNTS, 0)
    continued = _continued(batch)
    lengths = batch.column("length").to_numpy().astype(np.int64)
    # An example is one of several if the next one continues it, or if it continues the one before.
    several = np.append(continued, False) | np.append(False, continued)
    last = several & ~np.append(continued, False)
    totals = (last.sum(), several.sum(), lengths[several].sum(), lengths[last].sum())
    return dict(zip(COUNTS, map(int, totals), strict=True))


def once(batch: contract.Batch) -> int:
    """Tokens of a batch, a conversation that became several examples counted once."""
    found = count(batch)
    tokens: int = sum(batch.column("length").to_pylist())
    return tokens - found["tokens"] + found["tokens_if_whole"]


def _continued(batch: contract.Batch) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each example but the last, whether the next one is the same conversation, longer."""
    offsets, turns = columns.list_parts(batch.column("messages"))
    starts, sizes = offsets[:-1], np.diff(offsets)
    lines = batch.column("line").to_numpy()
    alike: np.ndarray[Any, np.dtype[np.bool_]]
    alike = (lines[:-1] == lines[1:]) & (sizes[:-1] < sizes[1:]) & (sizes[:-1] > 0)
    candidates = np.flatnonzero(alike)
    # Of the shorter one, the first and the last turn are compared with the turns at their places.
    for place in (np.zeros(len(candidates), np.int64), sizes[candidates] - 1):
        ours, theirs = (
            turns.take(pa.array(starts[which] + place)) for which in (candidates, candidates + 1)
        )
        for number in range(3):  # role, content, fields
            one, other = (side.field(number).fill_null("") for side in (ours, theirs))
            alike[candidates] &= pc.equal(one, other).to_numpy(zero_copy_only=False)
    return alike


def figures(counts: dict[str, int]) -> dict[str, Any] | None:
    """The counts and the factor in tokens; None where no conversation became several examples."""
    if not counts.get("conversations"):
        return None
    figures = {name: counts[name] for name in COUNTS}
    return {**figures, "factor": round(figures["tokens"] / figures["tokens_if_whole"], 4)}


def sentence(split: dict[str, Any]) -> str:
    """The same in words, with the remedy."""
    return (
        f"{counted(split['conversations'], 'conversation')} became "
        f"{counted(split['examples'], 'example')}, one per "
        f"trained turn, because the chat template changes earlier turns: {split['tokens']:,} "
        f"tokens, {split['factor']:.1f} times the {split['tokens_if_whole']:,} of whole "
        f"conversations; {REMEDY}"
    )
