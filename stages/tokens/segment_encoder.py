"""Segments to ids, for rows whose template could not be compiled: see ``outline_tokens``; and what
becomes of those that are too long.

Each distinct text of a batch is encoded once; rows are then put together from the pieces by one
``take`` of Arrow. Labels come from the kinds of the segments: no character offsets are mapped to
tokens, no prefixes are encoded twice to compare them, and no Python runs per token.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from stages import columns, contract
from stages.chat_template.segments import CLOSES, CONTROL, MARKER
from stages.columns import Bools, Ids, Ints
from stages.encoders import Encoder
from stages.profile import TargetModel
from stages.tokens.merged_cuts import Edges, MergedCuts
from stages.tokens.outline_tokens import OutlineEncoder

Kinds = npt.NDArray[np.uint8]


# The limit of length, ``--max-length``: longer examples lose whole turns or steps, or are refused.
#
# With ``--too-long trim-turns`` or ``trim-steps`` they are dropped from an example's end. Nothing
# is ever cut inside a turn or a step, and no end-of-turn token is lost or added: what is left is
# what the row would be without the turns or steps that were dropped.


def _keep_turns(kinds: Kinds, lengths: Ints, limit: int) -> Bools | None:
    """Everything up to the last complete turn that fits; None where not even the first does."""
    ends = np.flatnonzero((kinds & CLOSES) > 0)
    fitting = ends[np.cumsum(lengths)[ends] <= limit]
    if not len(fitting):
        return None
    kept: Bools = np.arange(len(kinds)) <= fitting[-1]
    return kept


def _keep_steps(kinds: Kinds, lengths: Ints, limit: int) -> Bools | None:
    """The steps that fit, and what the template prints behind the last of them (``tail``)."""
    markers = np.flatnonzero((kinds & MARKER) > 0)
    tail = int(lengths[markers[-1] + 1 :].sum())
    fitting = markers[np.cumsum(lengths)[markers] + tail <= limit]
    if not len(fitting):
        return None
    at = np.arange(len(kinds))
    kept: Bools = (at <= fitting[-1]) | (at > markers[-1])
    return kept


_POLICIES = {"trim-turns": _keep_turns, "trim-steps": _keep_steps}
POLICIES = ("reject", *_POLICIES)


def trimmed(policy: str, kinds: Kinds, lengths: Ints, offsets: Ints, limit: int) -> Bools:
    """Which segments stay, so that as many rows as possible are at most ``limit`` tokens.

    Args:
        kinds, lengths: of each segment; lengths in tokens.
        offsets: where each row's segments start.
    """
    kept = np.ones(len(kinds), bool)
    totals = np.diff(np.concatenate([[0], np.cumsum(lengths)])[offsets])
    for row in np.flatnonzero(totals > limit) if policy in _POLICIES else ():
        span = slice(int(offsets[row]), int(offsets[row + 1]))
        choice = _POLICIES[policy](kinds[span], lengths[span], limit)
        if choice is not None:
            kept[span] = choice
    return kept


def longer(
    policy: str, kinds: Kinds, lengths: Ints, offsets: Ints, kept: Bools, limit: int
) -> Ints:
    """Tokens that each row would have with the first turn or step that it has lost; of a row that
    is too long whatever was dropped, with its first turn or step alone; 0 elsewhere. That each is
    above the limit is a law of its own, which asks for this alone.

    Args:
        lengths: before anything is dropped; others as ``trimmed`` has them.
    """
    found = np.zeros(len(offsets) - 1, np.int64)
    if policy not in _POLICIES:
        return found
    ends = np.flatnonzero((kinds & (CLOSES | MARKER)) > 0)
    stuck = columns.sum_per_row(offsets, np.where(kept, lengths, 0)) > limit
    dropped = columns.sum_per_row(offsets, (~kept).astype(np.int64))
    for row in np.flatnonzero(stuck | (dropped > 0)).tolist():
        start, stop = int(offsets[row]), int(offsets[row + 1])
        lost = start if stuck[row] else start + int(np.argmin(kept[start:stop]))
        own = ends[(ends >= start) & (ends < stop)]
        if len(own) and own[-1] >= lost:
            # Behind the last step the template goes on; behind the last turn nothing is kept.
            behind = lengths[own[-1] + 1 : stop] if kinds[own[-1]] & MARKER else lengths[:0]
            end = own[np.searchsorted(own, lost)]
            found[row] = lengths[start : end + 1].sum() + behind.sum()
    return found


def too_long(batch: contract.Batch, lengths: Ints, limit: int, name: str = "") -> contract.Batch:
    """Refuse rows that are above the limit, but for those that need not be (``longer``): these go
    on, and break the law.

    Args:
        lengths: tokens of each row; ``name``: what is so long, if it is not the whole row.
    """
    shorter = batch.column("longer").to_numpy()
    over = (lengths > limit) & ~((shorter > 0) & (shorter <= limit))
    details = [f"{n} tokens{name}; --max-length is {limit}" for n in lengths[over]]
    return columns.refuse(batch, over, "too_long", details)


@dataclass(slots=True)
class Encoded:
    """A batch's sequences, flat.

    Attributes:
        ids: int32, all rows one after the other.
        kinds: uint8, the kind of the segment that each token comes from.
        offsets: where each row's tokens start.
        kept: which segments ``--too-long`` leaves.
        segments: where each row's segments start; ``lengths``: tokens of each, 0 where dropped.
        truncated: tokens that were dropped, per row; ``longer``: see ``longer``.
        merged_cuts: per row, how often the tokenizer would have merged across a cut.
    """

    ids: Ids
    kinds: Kinds
    offsets: Ints
    kept: Bools
    segments: Ints
    lengths: Ints
    truncated: Ints
    longer: Ints
    merged_cuts: Ints


class SegmentEncoder:
    """Encodes a segments column."""

    def __init__(self, model: TargetModel, encoder: Encoder, max_length: int, policy: str) -> None:
        self.max_length = max_length
        self.trims = policy in POLICIES[1:]
        self._encoder, self._policy = encoder, policy
        self._names = pa.array(list(model.controls), pa.string())
        self._control_ids = np.fromiter(model.controls.values(), np.int32)
        self._edges = Edges(model.tokenizer_json, model.controls)
        self._merged_cuts = MergedCuts(encoder)
        # Beside a token that swallows blanks a text has other ids in each row: segment by segment.
        self.outlines = (
            None
            if self._edges.swallow
            else OutlineEncoder(encoder, model.controls, self._merged_cuts)
        )

    def _pieces(self, texts: pa.Array, kinds: Kinds) -> pa.ListArray:
        """Ids of each segment."""
        control = (kinds & CONTROL) > 0
        mask = pa.array(control)
        distinct = pc.dictionary_encode(texts.filter(pa.array(~control)))
        ids, starts = self._encoder.encode(distinct.dictionary.to_pylist())
        names = pc.index_in(texts.filter(mask), value_set=self._names)
        # One pool of ids: first each control token by itself, then each distinct text. A segment is
        # then a place in the pool, and Arrow copies the ids of all segments in one ``take``.
        known = len(self._control_ids)
        pool = columns.make_list(
            np.concatenate([np.arange(known, dtype=np.int64), starts + known]),
            pa.array(np.concatenate([self._control_ids, ids])),
        )
        place = np.empty(len(texts), np.int32)
        place[control] = names.to_numpy()
        place[~control] = distinct.indices.to_numpy() + known
        return pool.take(pa.array(place))

    def __call__(self, segments: pa.ListArray) -> Encoded:
        offsets, flat = columns.list_parts(segments)
        kinds = flat.field(1).to_numpy()
        swallowed = self._edges(flat.field(0), kinds, offsets)
        starts, ids = columns.numbers(self._pieces(swallowed.texts, kinds))
        lengths = np.diff(starts)
        merged = self._merged_cuts.per_row(
            swallowed=swallowed, kinds=kinds, pieces=(ids, starts), offsets=offsets
        )
        kept = trimmed(self._policy, kinds, lengths, offsets, self.max_length)
        truncated = columns.sum_per_row(offsets, np.where(kept, 0, lengths))
        untrimmed = longer(self._policy, kinds, lengths, offsets, kept, self.max_length)
        token_kinds = np.repeat(kinds, lengths)
        if not kept.all():
            tokens = np.repeat(kept, lengths)
            ids, token_kinds = ids[tokens], token_kinds[tokens]
            lengths = np.where(kept, lengths, 0)
        row_offsets = columns.offsets_of(columns.sum_per_row(offsets, lengths))
        return Encoded(
            ids=ids,
            kinds=token_kinds,
            offsets=row_offsets,
            kept=kept,
            segments=offsets,
            lengths=lengths,
            truncated=truncated,
            longer=untrimmed,
            merged_cuts=merged,
        )


# A 128-bit hash of an example: equal examples have equal digests, in whatever shard they are.
#
# It is computed from ids and labels alone, so ``--dedup`` finds equal examples across files, and
# the checks of a finished build can compare what is stored with what was encoded.
#
# XXH3 is ten times as fast as a cryptographic hash and as unlikely to collide by chance: among a
# billion examples, with a probability of about 1e-21. Whoever writes the data could make two
# examples collide, so nothing is left out of a build for its digest alone: see
# ``pipeline.shards.collect``.


Side = tuple[Ints, Ids]  # offsets and flat values of one list per row


def _bytes_of(side: Side) -> list[memoryview]:
    """The bytes of each row, 4 for a number, as views."""
    offsets, values = side
    view = np.ascontiguousarray(values).view(np.uint8).data
    return [view[a:b] for a, b in itertools.pairwise((offsets * 4).tolist())]


def digests(*sides: Side) -> pa.Array:
    """128-bit XXH3 of each row's numbers, over all the given lists."""
    if len(sides) == 1:
        return pa.array(list(map(xxh3_128_digest, _bytes_of(sides[0]))), pa.binary(16))
    # The lengths are hashed first: [1, 2], [3] and [1], [2, 3] hold the same numbers.
    lengths = np.stack([np.diff(offsets) for offsets, _ in sides], axis=1).astype("<i4")
    width = 4 * len(sides)
    packed = lengths.tobytes()
    sizes = [packed[at : at + width] for at in range(0, len(packed), width)]
    rows = zip(sizes, *map(_bytes_of, sides), strict=True)
    return pa.array([xxh3_128_digest(b"".join(row)) for row in rows], pa.binary(16))


def weighted_digests(
    offsets: Ints, folded: Ids, trained: Bools, weights: npt.NDArray[np.float32]
) -> pa.Array:
    """Digests of examples with loss weights.

    An example whose weights are 1 where it is trained and 0 elsewhere trains as one without weights
    does, so it has the same digest.

    Args:
        trained, weights: of each token.
    """
    plain = digests((offsets, folded))
    more = columns.count_per_row(offsets, weights != trained) > 0
    if not more.any():
        return plain
    # Weights are hashed by their bits, since ``digests`` takes 32-bit numbers.
    both = digests((offsets, folded), (offsets, np.ascontiguousarray(weights).view(np.int32)))
    chosen = zip(more.tolist(), both.to_pylist(), plain.to_pylist(), strict=True)
    return pa.array([a if own else b for own, a, b in chosen], pa.binary(16))
