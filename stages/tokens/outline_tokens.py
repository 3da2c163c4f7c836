"""Outlines and their rows' own texts to ids.

What a template prints is encoded once per outline, and the own texts of a batch in one call. A row
is then put together from the two by one ``take`` of Arrow, in the form that parts store: an id
where the token is not trained, its complement where it is (see ``folded_labels``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns, contract
from stages.chat_template import segments as outlines
from stages.chat_template.segments import CONTROL, MARKER, TRAINED
from stages.columns import Bools, Ids, Ints, list_parts, make_list, numbers, offsets_of
from stages.encoders import Encoder
from stages.tokens.merged_cuts import MergedCuts, may_merge

if TYPE_CHECKING:
    from stages.tokens.segment_encoder import Encoded

_MOST = 4096  # outlines, and texts of templates, that are kept encoded
_COUNTS = ("controls", "markers", "truncated", "longer", "merged_cuts")  # per row


@dataclass(frozen=True, slots=True)
class Sequences:
    """What a column of outlines or segments was encoded to, one sequence a row.

    Attributes:
        folded: of all rows, flat: the id of a token, or its complement where it is trained.
        offsets: where each row's tokens start.
        controls, markers: control tokens of the template, and those behind steps, per row.
        truncated: tokens that were dropped, per row; ``longer``: as ``segment_encoder`` has it.
        merged_cuts: per row, how often the tokenizer would have merged across a cut.
        pieces: the rows by their segments; None where they were encoded as columns.
    """

    folded: Ids
    offsets: Ints
    controls: Ints
    markers: Ints
    truncated: Ints
    longer: Ints
    merged_cuts: Ints
    pieces: Encoded | None = None

    @property
    def ids(self) -> Ids:
        """The ids of all rows, trained or not."""
        return self.folded ^ (self.folded >> 31)  # xor with -1, which negative numbers give

    @property
    def lengths(self) -> Ints:
        """Tokens of each row."""
        return np.diff(self.offsets)

    def part(self, rows: slice) -> Sequences:
        """Those of some rows, which were encoded as columns."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        counts = {name: getattr(self, name)[rows] for name in _COUNTS}
        folded = self.folded[offsets[0] : offsets[-1]]
        return replace(self, folded=folded, offsets=offsets - offsets[0], **counts)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text right behind another one, between which there is no control token.

    Attributes:
        left: the template's own text before the cut.
        ids: of that text.
        text: which of a row's own texts stands behind it.
    """

    left: str
    ids: Ids
    text: int


@dataclass(frozen=True, slots=True)
class _Tokens:
    """One outline, encoded.

    Attributes:
        fixed: what the template prints before, between and after the own texts, folded.
        trained: which of the own texts are.
        merged: merged cuts between two texts of the template, the same in every row.
    """

    fixed: tuple[Ids, ...]
    trained: tuple[bool, ...]
    controls: int
    markers: int
    merged: int
    cuts: tuple[_Cut, ...]


class OutlineEncoder:
    """Encodes the columns ``outline`` and ``texts`` of batches."""

    def __init__(self, encoder: Encoder, controls: Mapping[str, int], cuts: MergedCuts) -> None:
        self._encoder, self._controls, self._cuts = encoder, controls, cuts
        self._known: dict[str, _Tokens | None] = {}
        self._printed: dict[str, Ids] = {}

    def _of(self, spelled: str) -> _Tokens | None:
        if spelled not in self._known:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[spelled] = self._encoded(outlines.parsed(spelled))
        return self._known[spelled]

    def _encoded(self, segments: outlines.Outline) -> _Tokens | None:
        """An outline's own ids; None where an own text stands before a cut."""
        fixed: list[list[int]] = [[]]
        trained: list[bool] = []
        cuts: list[_Cut] = []
        merged = 0
        before: str | None = ""  # the text before, in the same stretch between control tokens
        for text, kind in segments:
            if text is None and before is None:
                return None
            if text is None:
                if before:
                    cuts.append(_Cut(before, self._ids(before), len(trained)))
                trained.append(bool(kind & TRAINED))
                fixed.append([])
            elif kind & CONTROL:
                fixed[-1].append(~self._controls[text] if kind & TRAINED else self._controls[text])
            elif before is None:
                return None
            else:
                ids = self._ids(text)
                joint = self._ids(before + text) if before else ids
                merged += bool(before) and joint.tolist() != [*self._ids(before), *ids]
                fixed[-1] += (~ids if kind & TRAINED else ids).tolist()
            before = "" if kind & CONTROL else text
        return _Tokens(
            fixed=tuple(np.array(ids, np.int32) for ids in fixed),
            trained=tuple(trained),
            controls=sum(bool(kind & CONTROL) for _, kind in segments),
            markers=sum(bool(kind & MARKER) for _, kind in segments),
            merged=merged,
            cuts=tuple(cuts),
        )

    def _ids(self, text: str) -> Ids:
        # Templates print a few texts again and again.
        if text not in self._printed:
            if len(self._printed) >= _MOST:
                self._printed.clear()
            self._printed[text] = self._encoder.encode([text])[0]
        return self._printed[text]

    def takes(self, column: pa.DictionaryArray) -> Bools:
        """The rows that this class can encode; the others must be encoded by their segments."""
        known = [self._of(spelled) is not None for spelled in column.dictionary.to_pylist()]
        rows: Bools = np.array([*known, False])[column.indices.fill_null(-1).to_numpy()]
        return rows

    def __call__(
        self, column: pa.DictionaryArray, texts: pa.ListArray, repeat: bool = False
    ) -> Sequences:
        """Encode rows, all of which ``takes`` has named; ``repeat``: many texts are there twice."""
        which = column.indices.to_numpy()
        outlines = [self._of(spelled) for spelled in column.dictionary.to_pylist()]
        used = [(n, one) for n, one in enumerate(outlines) if one is not None]
        at, flat = list_parts(texts)
        starts, ids = self._own(flat, repeat)
        each_fixed = [len(one.fixed) if one else 0 for one in outlines]
        first_fixed = offsets_of(np.array(each_fixed, np.int64))
        trained = np.zeros(len(flat), bool)
        places = offsets_of(2 * np.diff(at) + 1)
        place = np.empty(int(places[-1]), np.int64)
        own_base = int(first_fixed[-1])
        odd = may_merge(flat, np.arange(len(flat))) if any(one.cuts for _, one in used) else trained
        controls, markers, merged = (np.zeros(len(which), np.int64) for _ in range(3))
        for number, one in used:
            rows = np.flatnonzero(which == number)
            turn = np.arange(len(one.trained))
            own = at[rows][:, None] + turn
            trained[own] = one.trained
            begin = places[rows][:, None]
            # The template's runs and the own texts take turns: a run first, and a run last.
            runs_of = np.arange(len(one.fixed))
            place[begin + 2 * runs_of] = first_fixed[number] + runs_of
            place[begin + 2 * turn + 1] = own_base + own
            controls[rows], markers[rows] = one.controls, one.markers
            merged[rows] = one.merged
            for cut in one.cuts:
                behind = own[:, cut.text]
                merged[rows] += self._cuts.behind(
                    cut.left, cut.ids, texts=flat, odd=odd, which=behind, pieces=(ids, starts)
                )
        # Runs of the template, and behind them the own texts; each place takes one of these.
        runs, lengths = [run for _, one in used for run in one.fixed], np.diff(starts)
        own_ids = np.where(np.repeat(trained, lengths), ~ids, ids)
        sizes = np.concatenate([np.array([len(run) for run in runs], np.int64), lengths])
        pool = make_list(offsets_of(sizes), pa.array(np.concatenate([*runs, own_ids])))
        bounds, folded = numbers(pool.take(pa.array(place)))
        none = np.zeros(len(which), np.int64)
        return Sequences(folded, bounds[places], controls, markers, none, none, merged)

    def _own(self, flat: pa.StringArray, repeat: bool) -> tuple[Ints, Ids]:
        """Where the ids of each text start, and the ids; a text that is often there once."""
        sample = flat.slice(0, 64)
        if not repeat and pc.count_distinct(sample).as_py() == len(sample):
            ids, starts = self._encoder.encode(flat.to_pylist())
            return starts, ids
        distinct = flat.dictionary_encode()
        ids, starts = self._encoder.encode(distinct.dictionary.to_pylist())
        return numbers(make_list(starts, pa.array(ids)).take(distinct.indices))


def segments_of(batch: contract.Batch, prefix: str) -> pa.ListArray:
    """The segments of all rows: their own, or those of their outline with their texts in it."""
    name = f"{prefix}outline"
    own: pa.ListArray = batch.column(f"{prefix}segments")
    if name not in batch.schema.names or batch.column(name).null_count == batch.num_rows:
        return own
    rows: list[list[tuple[str, int]]] = []
    columns_of = (batch.column(name), batch.column(f"{prefix}texts"), own)
    for spelled, texts, given in zip(*(one.to_pylist() for one in columns_of), strict=True):
        if spelled is None:
            rows.append([(one["text"], one["kind"]) for one in given])
        else:
            parts = outlines.parsed(spelled)
            kinds = [kind for _, kind in parts]
            rows.append(list(zip(outlines.filled(parts, texts), kinds, strict=True)))
    flat = [segment for row in rows for segment in row]
    values = columns.make_segments([text for text, _ in flat], bytes(kind for _, kind in flat))
    return make_list(offsets_of(np.fromiter(map(len, rows), np.int64, len(rows))), values)
