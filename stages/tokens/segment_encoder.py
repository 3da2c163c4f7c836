"""Segments to ids, for rows whose template could not be compiled: see ``outline_tokens``.

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

from stages import columns
from stages.chat_template.segments import CONTROL
from stages.columns import Ids
from stages.encoders import Encoder
from stages.profile import TargetModel
from stages.tokens.max_length import POLICIES, longer, trimmed
from stages.tokens.merged_cuts import Edges, MergedCuts
from stages.tokens.outline_tokens import OutlineEncoder


@dataclass(slots=True)
class Encoded:
    """A batch's sequences, flat.

    Attributes:
        ids: int32, all rows one after the other.
        kinds: uint8, the kind of the segment that each token comes from.
        offsets: where each row's tokens start.
        kept: which segments ``--too-long`` leaves.
        segments: where each row's segments start; ``lengths``: tokens of each, 0 where dropped.
        truncated: tokens that were dropped, per row; ``longer``: see ``max_length``.
        merged_cuts: per row, how often the tokenizer would have merged across a cut.
    """

    ids: Ids
    kinds: npt.NDArray[np.uint8]
    offsets: columns.Ints
    kept: columns.Bools
    segments: columns.Ints
    lengths: columns.Ints
    truncated: columns.Ints
    longer: columns.Ints
    merged_cuts: columns.Ints


class SegmentEncoder:
    """Encodes a segments column."""

    def __init__(self, model: TargetModel, encoder: Encoder, max_length: int, policy: str) -> None:
        self.max_length = max_length
        self.trims = policy in POLICIES[1:]
        self._encoder = encoder
        self._policy = policy
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

    def _pieces(self, texts: pa.Array, kinds: npt.NDArray[np.uint8]) -> pa.ListArray:
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


Side = tuple[columns.Ints, Ids]  # offsets and flat values of one list per row


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
    offsets: columns.Ints, folded: Ids, trained: columns.Bools, weights: npt.NDArray[np.float32]
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
