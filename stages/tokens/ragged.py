"""Ragged rows: one example each, unpadded; the trainer pads."""

import numpy as np
import pyarrow as pa

from stages import columns
from stages.tokens.layouts import Shape

ORDER = (
    "row_id source input_ids labels loss_weights chosen_ids rejected_ids prompt_length margin "
    "step_positions step_labels"
).split()


def ordered(table: pa.Table) -> pa.Table:
    """The columns of some examples in stored order: ours first, then those of other kinds."""
    others = [name for name in table.schema.names if name not in ORDER]
    names = [*(name for name in ORDER if name in table.schema.names), *others]
    chunks = [columns.whole(table.column(name)) for name in names]
    return pa.table(dict(zip(names, chunks, strict=True)), schema=columns.schema(names))


class Ragged:
    """One example a row; other layouts differ from it in what they override.

    Attributes:
        stage: the name under which ``pipeline stage`` makes such rows.
        packs: whether a row holds several examples; ``pads``: whether rows are filled to a width.
        indexed: whether packs lie in a file beside the rows, as numbers of examples.
    """

    name = "ragged"
    stage = "ragged"
    packs = False
    pads = False
    indexed = False

    def plan(self, lengths: columns.Ints, capacity: int) -> tuple[columns.Ints, columns.Ints]:
        """Which examples share a row.

        Args:
            lengths: tokens of each example; ``capacity``: tokens that a row may have.

        Returns:
            The examples in the order in which they are stored, and how many of them each row holds.
        """
        return np.arange(len(lengths)), np.ones(len(lengths), np.int64)

    def width(self, pad_to: str, longest: int, max_length: int) -> int:
        """Tokens of every row of a build; 0 where rows differ.

        Args:
            pad_to: ``longest`` (rounded up to a multiple of 8, never above ``max_length``),
                ``max-length``, or a number.
        """
        return 0

    def room(self, pad_to: str, max_length: int) -> int:
        """Tokens that an example may have: ``max_length``, or a fixed width below it."""
        return max_length

    def rows(self, examples: pa.Table, sizes: columns.Ints, shape: Shape) -> pa.Table:
        """Training rows of examples in stored order.

        Args:
            examples: ``row_id`` and the columns of their kind, one chunk a column; step positions
                count from the example's start.
            sizes: how many of them each row holds.

        Raises:
            UsageError: an example is longer than the rows are wide.
        """
        return ordered(examples)

    def examples(self, rows: pa.Table) -> pa.Table:
        """The examples in training rows, one a row and unpadded, in stored order."""
        return rows

    def sizes(self, rows: pa.Table) -> columns.Ints:
        """How many examples each training row holds."""
        return np.ones(len(rows), np.int64)


LAYOUT = Ragged()


# Ragged rows, stored once, and packs beside them that name examples by their numbers.
#
# No task offers it: ``--index-only`` stores packed rows so. Two packs of four examples::
#
#     train/data-00000-of-00001.arrow   four rows, one an example
#     packs/train.arrow                 examples [0, 3]     tokens 4090
#                                       examples [1, 2]     tokens 4096


class _Indexed(Ragged):
    name = stage = "indexed"
    indexed = True


INDEXED = _Indexed()
