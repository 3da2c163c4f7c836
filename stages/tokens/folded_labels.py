"""Ids and labels in one column, as parts store them on disk until shards are written.

Where a label is the token's id or -100, one number is enough for both: the id itself where the
token is not trained, and its bitwise complement ``~id`` where it is. Ids are not negative, so the
complement always is, and id 0 can be told from a trained id 0 (``~0 == -1``). This halves a part::

    input_ids  [  5,    6, 7]
    labels     [-100, -100, 7]
    folded     [  5,    6, -8]

Where labels stand at markers, the label is another id, and the token is the marker, always the same
one. There the complement is that of the label, and whoever takes it apart knows the marker::

    input_ids  [  5,    6, 3]    marker 3
    labels     [-100, -100, 7]
    folded     [  5,    6, -8]
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from stages import columns, contract, profile
from stages.chat_template import segments as outlines
from stages.chat_template.segments import CONTROL, MARKER, STEP
from stages.columns import IGNORED, Ids, list_parts, make_list, numbers, offsets_of
from stages.errors import PipelineError

NO_MARKER = -1  # a label is its token's id


def folded_ids(ids: Ids, labels: Ids) -> Ids:
    """Ids and labels in one array; each label must be its id or -100."""
    # 0 where a label is -100 and else -1; xor with -1 is the complement. There is no branch: to
    # choose between two values for each token takes ten times as long.
    trained: Ids = (labels == IGNORED).astype(np.int32)
    trained -= 1
    trained ^= ids
    return trained


def _marked(ids: Ids, labels: Ids, marker: int) -> Ids:
    """The same where labels stand at markers."""
    folded, trained = ids.copy(), np.flatnonzero(labels != IGNORED)
    if (ids[trained] != marker).any():
        raise PipelineError(
            "A label stands at a token that is no marker.", "Please report it with the recipe."
        )
    folded[trained] = ~labels[trained]
    return folded


def fold(batch: contract.Batch, marker: int = NO_MARKER) -> contract.Batch:
    """Replace ``input_ids`` and ``labels`` by ``folded``; a batch that has it stays as it is.

    Args:
        marker: the id at which labels stand, where they are no ids of their tokens.

    Raises:
        PipelineError: a label stands elsewhere.
    """
    if "folded" in batch.schema.names:
        return batch
    offsets, ids = numbers(batch.column("input_ids"))
    labels = numbers(batch.column("labels"))[1]
    values = folded_ids(ids, labels) if marker == NO_MARKER else _marked(ids, labels, marker)
    folded = make_list(offsets, pa.array(values))
    return columns.put(batch.drop_columns(["input_ids", "labels"]), "folded", folded)


def unfolded(folded: Ids, marker: int = NO_MARKER) -> tuple[Ids, Ids]:
    """The inverse of ``folded_ids``; at trained places the id is the marker, where there is one."""
    # An arithmetic shift by 31 gives -1 (all bits set) for negative numbers and 0 for others: xor
    # with it complements the trained ids back and leaves the other ids as they are.
    trained = folded >> 31
    ids = folded ^ trained
    # With -1, ``and`` keeps a number, and with 0 nothing of it; xor with -100 twice gives it back.
    labels = ids ^ np.int32(IGNORED)
    labels &= trained
    labels ^= np.int32(IGNORED)
    if marker != NO_MARKER:
        ids[np.flatnonzero(folded < 0)] = marker
    return ids, labels


Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def readable(names: Iterable[str]) -> set[str]:
    """The columns that rows with these columns have after ``unfold``."""
    known = set(names)
    return known | {"input_ids", "labels"} if "folded" in known else known


def unfold(table: Rows, marker: int = NO_MARKER) -> Rows:
    """The inverse of ``fold``; rows without the column stay as they are."""
    if "folded" not in table.schema.names:
        return table
    offsets, folded = numbers(columns.whole(table.column("folded")))
    ids, labels = unfolded(folded, marker)
    table = table.drop_columns(["folded"])
    table = table.append_column("input_ids", make_list(offsets, pa.array(ids)))
    return table.append_column("labels", make_list(offsets, pa.array(labels)))


# Insert the step token right after every step.
#
# Older trainers assert that the text with step tokens and the same text with the ratings' tokens in
# their place have the same number of tokens. A probe checks that for the model.


@dataclass
class Mark:
    """Insert a marker after every step."""

    model: profile.TargetModel
    name: str = "mark"
    reads: tuple[str, ...] = ("segments", "step_labels")
    writes: tuple[str, ...] = ("segments",)

    def __call__(self, batch: contract.Batch) -> contract.Batch:
        offsets, segments = list_parts(batch.column("segments"))
        texts = segments.field(0).to_pylist()
        kinds = segments.field(1).to_numpy()
        step = self.model.profile.step_tokens.step
        is_step = (kinds & STEP) > 0
        width = 1 + is_step.astype(np.int64)  # a step becomes itself and its marker
        place = np.cumsum(width) - width  # where each segment goes: the widths before it, summed
        # Fill all places with the marker, then put the segments in: what is left are the markers.
        marked_kinds = np.full(int(width.sum()), CONTROL | MARKER, np.uint8)
        marked_kinds[place] = kinds
        marked = [step] * len(marked_kinds)
        for at, text in zip(place.tolist(), texts, strict=True):
            marked[at] = text
        bounds = offsets_of(width)[offsets]
        flat = columns.make_segments(marked, marked_kinds.tobytes())
        batch = columns.put(batch, "segments", make_list(bounds, flat))
        return self._outlines(batch) if "outline" in batch.schema.names else batch

    def _outlines(self, batch: contract.Batch) -> contract.Batch:
        """The same for outlines, of which a batch has few."""
        column = batch.column("outline")
        marker = (self.model.profile.step_tokens.step, CONTROL | MARKER)
        spelled = []
        for text in column.dictionary.to_pylist():
            segments = [(one, marker) if one[1] & STEP else (one,) for one in outlines.parsed(text)]
            spelled.append(outlines.spelled(itertools.chain.from_iterable(segments)))
        made = pa.DictionaryArray.from_arrays(column.indices, pa.array(spelled, pa.string()))
        return columns.put(batch, "outline", made)
