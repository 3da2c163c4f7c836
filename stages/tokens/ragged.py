"""Ragged rows: one example each, unpadded; the trainer pads."""

import numpy as np
import pyarrow as pa

from stages import columns
from stages.columns import list_parts, make_list, numbers, offsets_of, whole
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


# The examples in training rows: the columns beside the tokens say where these are, so one inverse
# fits all layouts. The mask of padded rows tells padding, and ``seq_lengths`` cut packs.


_SEQUENCES = "input_ids labels loss_weights chosen_ids rejected_ids".split()
_MASKS = {"chosen_ids": "chosen_attention_mask", "rejected_ids": "rejected_attention_mask"}
_BESIDE = ("attention_mask", "token_type_ids", "seq_lengths", "row_ids", "sources")


def examples(rows: pa.Table) -> pa.Table:
    """The examples in training rows of any layout, one a row and unpadded, in stored order."""
    stored = {name: whole(rows.column(name)) for name in rows.schema.names}
    if not any(name.endswith(_BESIDE) for name in stored):
        return rows
    found = {name: column for name, column in stored.items() if not name.endswith(_BESIDE)}
    sequences = [name for name in _SEQUENCES if name in found]
    for name in sequences:
        mask = _MASKS.get(name, "attention_mask")
        found[name] = _stripped(found[name], stored[mask]) if mask in stored else found[name]
    if "seq_lengths" in stored:
        cuts = offsets_of(numbers(stored["seq_lengths"])[1])
        found |= {name: make_list(cuts, list_parts(found[name])[1]) for name in sequences}
        names = (("row_id", "row_ids"), ("source", "sources"))
        found |= {one: list_parts(stored[many])[1] for one, many in names if many in stored}
    if "step_positions" in stored:
        at, positions = numbers(stored["step_positions"])
        # As places among the tokens of all rows they are ascending, and so are the starts of the
        # examples: searchsorted gives the number of positions before each start.
        begins = list_parts(stored["input_ids"])[0][:-1]
        places = positions.astype(np.int64) + np.repeat(begins, np.diff(at))
        if "attention_mask" in stored:
            places -= offsets_of(list_parts(stored["attention_mask"])[1].to_numpy() == 0)[places]
        starts = list_parts(found["input_ids"])[0]
        split = np.searchsorted(places, starts)
        inside = places - np.repeat(starts[:-1], np.diff(split))
        found["step_positions"] = make_list(split, pa.array(inside.astype(np.int32)))
        found["step_labels"] = make_list(split, list_parts(stored["step_labels"])[1])
    return ordered(pa.table(found))


def _stripped(column: pa.ListArray, mask: pa.ListArray) -> pa.ListArray:
    """The lists of a padded column without the values where the attention mask is 0."""
    offsets, values = list_parts(column)
    real = list_parts(mask)[1].to_numpy() != 0
    return make_list(
        offsets_of(columns.count_per_row(offsets, real)), values.filter(pa.array(real))
    )


def sizes(rows: pa.Table) -> columns.Ints:
    """How many examples each training row holds."""
    if "seq_lengths" in rows.schema.names:
        return np.diff(list_parts(whole(rows.column("seq_lengths")))[0])
    return np.ones(len(rows), np.int64)
