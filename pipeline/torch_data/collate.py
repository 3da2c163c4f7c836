"""Collators: training rows to the tensors of a batch, one for each layout and kind of attention.

All ids and labels are int64, as torch's embeddings and losses take them. Rows of a build with loss
weights also give ``loss_weights``, float32 in the shape of ``labels`` and 0 in padding. A loss that
reads only labels ignores them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.builds.build import Build
from pipeline.torch_data.rows import Row, documents
from stages.columns import IGNORED
from stages.tokens import layouts

WEIGHTS = "loss_weights"
Tensor = Any  # torch.Tensor; torch may be missing where types are checked
Batch = dict[str, Any]


def _long(values: Any) -> Tensor:
    return torch.as_tensor(np.array(values, np.int64))  # copies: mapped memory is read-only


def _floats(values: Any) -> Tensor:
    return torch.as_tensor(np.array(values, np.float32))


def _padded(
    sequences: Sequence[Any],
    fill: int,
    side: str,
    width: int = 0,
    of: Callable[[Any], Tensor] = _long,
) -> Tensor:
    """[rows, width] from sequences of different lengths.

    Args:
        fill: the value of padding.
        side: ``left`` or ``right``, where padding goes.
        width: of the result, at least; longer sequences make it wider.
        of: turns a sequence into a tensor, which also gives the dtype.
    """
    width = max(width, max(len(values) for values in sequences))
    batch = torch.full((len(sequences), width), fill, dtype=of([]).dtype)
    for row, values in enumerate(sequences):
        place = slice(0, len(values)) if side == "right" else slice(width - len(values), width)
        batch[row, place] = of(values)
    return batch


def _weights(rows: Sequence[Row], side: str, width: int) -> Batch:
    """``loss_weights`` of rows that have them, float32 [rows, width]; untrained padding is 0."""
    if WEIGHTS not in rows[0]:
        return {}
    return {
        WEIGHTS: _padded([row[WEIGHTS] for row in rows], fill=0, side=side, width=width, of=_floats)
    }


def _positions(mask: Tensor, start: int) -> Tensor:
    """Positions [rows, width] that count real tokens from ``start``, wherever padding is, so that
    models with absolute positions see the same ones as without padding.

    Padding gets ``start - 1``, but not less than 0: RoBERTa reserves the position before its first.
    """
    return (mask.cumsum(-1) - 1 + start) * mask + (1 - mask) * max(start - 1, 0)


def _even(ids: Sequence[Any], to: "Pad | PadPairs") -> tuple[Batch, int]:
    """Ids, mask and positions of one width, which is rounded up."""
    width = -(-max(map(len, ids)) // to.multiple) * to.multiple
    mask = _padded([np.ones(len(x)) for x in ids], fill=0, side=to.side, width=width)
    padded = _padded(ids, fill=to.pad_id, side=to.side, width=width)
    positions = _positions(mask, to.position_start)
    return {"input_ids": padded, "attention_mask": mask, "position_ids": positions}, width


@dataclass(frozen=True)
class Flatten:
    """Packs, or single rows, to one row of documents: [1, tokens], for varlen attention.

    There is no attention mask. Positions restart with each document, and ``cu_seq_lens_q/k``
    (int32) have the bounds; a model that reads either attends within documents only. Train with
    ``use_cache=False``: a key-value cache would let documents see each other.

    Attributes:
        position_start: of each document's first token (2 for RoBERTa).
        lengths: give ``cu_seq_lens_*`` and ``max_length_*`` too, which only varlen kernels take.
    """

    position_start: int = 0
    lengths: bool = False

    def __call__(self, rows: Iterable[Row]) -> Batch:
        docs = [doc for row in rows for doc in documents(row)]
        sizes = [len(doc["input_ids"]) for doc in docs]
        batch: Batch = {
            "input_ids": torch.cat([_long(doc["input_ids"]) for doc in docs])[None],
            "labels": torch.cat([_long(doc["labels"]) for doc in docs])[None],
            "position_ids": torch.cat([torch.arange(n) + self.position_start for n in sizes])[None],
        }
        if WEIGHTS in docs[0]:
            batch[WEIGHTS] = torch.cat([_floats(doc[WEIGHTS]) for doc in docs])[None]
        if self.lengths:
            ends = torch.tensor([0, *np.cumsum(sizes).tolist()], dtype=torch.int32)
            batch |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
            batch |= {"max_length_q": max(sizes), "max_length_k": max(sizes)}
        return batch


@dataclass(frozen=True)
class BlockDiagonal:
    """Packs to [rows, width] with a mask [rows, 1, width, width] that is causal inside documents.

    For SDPA, whose boolean mask is true where a token may attend. A padding token attends to
    itself: softmax over an empty row of the mask would give NaN.
    """

    pad_id: int
    position_start: int = 0

    def __call__(self, rows: Iterable[Row]) -> Batch:
        packs = [documents(row) for row in rows]
        joined = [
            {
                name: np.concatenate([np.asarray(doc[name]) for doc in docs])
                for name in ("input_ids", "labels", WEIGHTS)
                if name in docs[0]
            }
            for docs in packs
        ]
        ids = _padded([pack["input_ids"] for pack in joined], self.pad_id, "right")
        labels = _padded([pack["labels"] for pack in joined], IGNORED, "right")
        # Each token gets the number of its document, from 1; padding keeps 0. Two tokens may attend
        # to each other if their numbers are equal.
        numbers, places = [], []
        for docs in packs:
            sizes = [len(doc["input_ids"]) for doc in docs]
            numbers.append(np.repeat(np.arange(1, len(sizes) + 1), sizes))
            places.append(np.concatenate([np.arange(size) + self.position_start for size in sizes]))
        number = _padded(numbers, 0, "right")
        same = number[:, :, None] == number[:, None, :]
        width = ids.shape[1]
        causal = torch.ones(width, width, dtype=torch.bool).tril()
        real = (number != 0)[:, :, None]
        itself = torch.eye(width, dtype=torch.bool)
        mask = (same & causal & real) | (itself & ~real)
        return {
            "input_ids": ids,
            "labels": labels,
            "position_ids": _padded(places, self.position_start, "right"),
            "attention_mask": mask[:, None],
            **_weights(joined, "right", width),
        }


@dataclass(frozen=True)
class Pad:
    """Single rows to [rows, longest], with mask and positions; packs are taken apart first.

    Attributes:
        side: left for batched generation and for reading the last token; positions count real
            tokens, so models with absolute positions see the same ones as without padding.
        multiple: widths are rounded up to it.
        position_start: 2 for RoBERTa.
    """

    pad_id: int
    side: str = "left"
    multiple: int = 8
    position_start: int = 0

    def __call__(self, rows: Iterable[Row]) -> Batch:
        docs = [doc for row in rows for doc in documents(row)]
        batch, width = _even([doc["input_ids"] for doc in docs], self)
        labels = [doc["labels"] for doc in docs]
        batch["labels"] = _padded(labels, fill=IGNORED, side=self.side, width=width)
        return batch | _weights(docs, self.side, width)


@dataclass(frozen=True)
class Stack:
    """Rows of a padded build, which have one width already."""

    position_start: int = 0

    def __call__(self, rows: Iterable[Row]) -> Batch:
        listed = list(rows)
        names = ("input_ids", "attention_mask", "labels")
        batch = {name: torch.stack([_long(row[name]) for row in listed]) for name in names}
        batch["position_ids"] = _positions(batch["attention_mask"], self.position_start)
        return batch | _weights(listed, "right", 0)  # stored at full width: nothing is padded here


def _pairs(rows: list[Row], batch: Batch) -> Batch:
    """Add margins if the build has them; a pair without one gets 0, which leaves its loss alone."""
    if "margin" in rows[0]:
        given = [0.0 if row["margin"] is None else row["margin"] for row in rows]
        batch["margin"] = torch.tensor(given, dtype=torch.float32)
    return batch


@dataclass(frozen=True)
class PadPairs:
    """Pairs to [2 * rows, longest]: first all chosen sides, then all rejected ones.

    ``pair_collator`` makes the collator that fits a build.

    Attributes:
        side: right for encoders, whose reward is read at the first token.
        position_start: 2 for RoBERTa.
        token_types: give ``token_type_ids`` too, 1 from the answer on (BERT).
    """

    pad_id: int
    side: str = "left"
    multiple: int = 8
    position_start: int = 0
    token_types: bool = False

    def __call__(self, rows: Iterable[Row]) -> Batch:
        listed = list(rows)
        pairs = [(row, row[f"{side}_ids"]) for side in ("chosen", "rejected") for row in listed]
        batch, width = _even([values for _, values in pairs], self)
        if self.token_types:
            types = [np.arange(len(values)) >= row["prompt_length"] for row, values in pairs]
            batch["token_type_ids"] = _padded(types, fill=0, side=self.side, width=width)
        return _pairs(listed, batch)


@dataclass(frozen=True)
class StackPairs:
    """Pairs of a padded build, which have one width already, and token types if it stores them."""

    position_start: int = 0

    def __call__(self, rows: Iterable[Row]) -> Batch:
        listed = list(rows)
        sides = [(row, side) for side in ("chosen", "rejected") for row in listed]
        columns = {"input_ids": "ids", "attention_mask": "attention_mask"}
        if "chosen_token_type_ids" in listed[0]:
            columns["token_type_ids"] = "token_type_ids"
        batch = {
            name: torch.stack([_long(row[f"{side}_{column}"]) for row, side in sides])
            for name, column in columns.items()
        }
        batch["position_ids"] = _positions(batch["attention_mask"], self.position_start)
        return _pairs(listed, batch)


def pair_collator(build: str | Path) -> PadPairs | StackPairs:
    """The collator of an RM build, by its manifest: padding side, positions and token types are
    those of its family, so that a pair scores in a batch what it scores alone."""
    manifest = Build.open(build).manifest
    model = manifest.model
    start = model.pair.position_offset if model.pair else 0
    if layouts.load(manifest.layout).pads:
        return StackPairs(start)
    return PadPairs(
        model.pad_token_id,
        model.padding_side,
        position_start=start,
        token_types=model.pair.token_types if model.pair else False,
    )
