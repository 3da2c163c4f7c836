"""Padded rows: every sequence of a build at one width, with an attention mask.

Two examples of 3 and 2 tokens, padded to 4 on the left with 0::

    input_ids       [0, 5, 6, 7]           [0, 0, 5, 9]
    labels          [-100, -100, -100, 7]  [-100, -100, -100, 9]
    attention_mask  [0, 1, 1, 1]           [0, 0, 1, 1]
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages import columns
from stages.columns import IGNORED, Ints, list_parts, make_list, numbers
from stages.errors import UsageError
from stages.tokens import layouts, ragged

MULTIPLE = 8  # tensor cores are faster with such widths


class _Places:
    """Which places of the padded rows hold tokens: shape (rows, width).

    Args:
        offsets: of the rows' tokens before they are padded.
    """

    def __init__(self, offsets: Ints, size: int, left: bool) -> None:
        self.offsets = offsets
        lengths = np.diff(offsets)
        if lengths.max(initial=0) > size:
            raise UsageError(
                f"An example has {lengths.max()} tokens, more than the width {size}.",
                "Give --pad-to a larger one.",
            )
        column, own = np.arange(size, dtype=np.int32), lengths.astype(np.int32)[:, None]
        self._real = column >= size - own if left else column < own
        self._bounds = np.arange(len(lengths) + 1) * size

    def fill(self, values: npt.NDArray[np.generic], padding: int) -> pa.ListArray:
        """One value for each token, and ``padding`` in all other places."""
        flat = np.full(self._real.size, padding, values.dtype)
        # Tokens follow one another in the padded rows as they do flat.
        flat[self._real.reshape(-1)] = values
        return make_list(self._bounds, pa.array(flat))

    def mask(self) -> pa.ListArray:
        """1 on tokens, 0 on padding."""
        return make_list(self._bounds, pa.array(self._real.reshape(-1).view(np.int8)))


def _answers(places: _Places, count: int, prompt: pa.Array) -> npt.NDArray[np.int8]:
    """1 on the answers' tokens, 0 before them.

    Args:
        count: of all tokens.
    """
    offsets = places.offsets
    lengths = np.diff(offsets)
    index = np.arange(count) - np.repeat(offsets[:-1], lengths)
    return (index >= np.repeat(prompt.to_numpy(), lengths)).astype(np.int8)


def pad(table: pa.Table, size: int, side: str, pad_id: int, token_types: bool = False) -> pa.Table:
    """Pad examples to ``size`` tokens on one side.

    ``labels`` are padded with -100, ``loss_weights`` with 0; step positions move with the tokens
    they point at. ``token_types`` adds those of pairs of texts.
    """
    table = ragged.ordered(table)
    left = side == "left"
    rows: dict[str, pa.Array] = {}
    places = _Places(np.zeros(1, np.int64), size, left)
    for name in table.schema.names:
        column = columns.whole(table.column(name))
        if name in ("input_ids", "chosen_ids", "rejected_ids"):
            offsets, values = numbers(column)
            places = _Places(offsets, size, left)
            rows[name] = places.fill(values, pad_id)
            mask = name.replace("input_ids", "attention_mask").replace("_ids", "_attention_mask")
            rows[mask] = places.mask()
            if token_types:
                prompt = columns.whole(table.column("prompt_length"))
                types = name.replace("_ids", "_token_type_ids")
                rows[types] = places.fill(_answers(places, len(values), prompt), 0)
        elif name in ("labels", "loss_weights"):  # of the ids, which come first
            offsets, of_tokens = list_parts(column)
            if not np.array_equal(offsets, places.offsets):
                places = _Places(offsets, size, left)
            rows[name] = places.fill(of_tokens.to_numpy(), IGNORED if name == "labels" else 0)
        elif name == "step_positions":
            at, positions = numbers(column)
            lengths = np.diff(numbers(columns.whole(table.column("input_ids")))[0])
            shift = np.repeat(size - lengths, np.diff(at)) if left else 0
            rows[name] = make_list(at, pa.array((positions + shift).astype(np.int32)))
        else:
            rows[name] = column
    return pa.table(rows, schema=columns.schema(list(rows)))


class _Padded(ragged.Ragged):
    name = "padded"
    stage = "pad"
    pads = True

    def width(self, pad_to: str, longest: int, max_length: int) -> int:
        if pad_to == "longest":
            return min(-(-longest // MULTIPLE) * MULTIPLE, max_length)
        return max_length if pad_to == "max-length" else int(pad_to)

    def room(self, pad_to: str, max_length: int) -> int:
        return min(max_length, int(pad_to)) if pad_to.isdigit() else max_length

    def rows(self, examples: pa.Table, sizes: Ints, shape: layouts.Shape) -> pa.Table:
        return pad(
            examples,
            size=shape.width,
            side=shape.padding_side,
            pad_id=shape.pad_id,
            token_types=shape.token_types,
        )


LAYOUT = _Padded()
