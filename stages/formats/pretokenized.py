"""``input_ids`` with ``labels`` or a loss mask: passed through as they are, and validated.

Labels stand under their own ids, unshifted. Padding that an attention mask marks is taken off.
"""

from typing import Any

from stages.columns import IGNORED
from stages.contract import Example, FormatOptions, Row, Tokens
from stages.errors import RowError
from stages.format import Format
from stages.formats import _turns
from stages.formats._fields import columns_of
from stages.kinds import CONVERSATION

_COLUMNS = columns_of("pretokenized")
_MASKS = _COLUMNS["labels"][1:]
_MAX_ID = 2**31


def _numbers(row: Row, name: str, length: int | None = None, mask: bool = False) -> list[int]:
    """A column of whole numbers, as many as ``length``; of a mask they are 0 and 1."""
    value: Any = row.get(name)
    if mask and (not isinstance(value, list) or not all(one in (0, 1) for one in value)):
        raise RowError("bad_mask", f"column {name!r} has values other than 0 and 1")
    if not mask and (not isinstance(value, list) or not all(type(one) is int for one in value)):
        raise RowError("bad_column", f"column {name!r} is not a list of integers")
    if length is not None and len(value) != length:
        raise RowError("label_count", f"{length} input_ids and {len(value)} {name}")
    numbers: list[int] = value
    return numbers


def _labels(row: Row, ids: list[int]) -> list[int]:
    """What is trained, by labels or by a mask.

    Raises:
        RowError: nothing says it.
    """
    if row.get("labels") is not None:
        return _numbers(row, "labels", len(ids))
    name = _turns.first_of(row, _MASKS)
    if name is None:
        detail = "input_ids without labels or a loss mask: nothing says what is trained; to train "
        detail += "all of it, use --map labels=input_ids --map input_ids=input_ids"
        raise RowError("no_labels", detail)
    mask = _numbers(row, name, len(ids), mask=True)
    return [one if kept else IGNORED for one, kept in zip(ids, mask, strict=True)]


def _real(row: Row, length: int) -> slice:
    """Where the row's own tokens are, without padding."""
    if row.get("attention_mask") is None:
        return slice(0, length)
    mask = _numbers(row, "attention_mask", length, mask=True)
    if 1 not in mask:
        return slice(0, 0)
    start, stop = mask.index(1), length - mask[::-1].index(1)
    if not all(mask[start:stop]):
        raise RowError("bad_mask", "the attention mask hides tokens in the middle")
    return slice(start, stop)


def _refuse_packed(row: Row, real: slice) -> None:
    """What says how a row was packed must say that it is one example, counted from 0.

    Raises:
        RowError: ``packed_row`` for several examples; ``bad_column``, ``label_count`` for what
            cannot be that of one example, since a build gives positions of its own.
    """
    size = real.stop - real.start
    what = f"the row packs several examples ({size} tokens); give one a row"
    packed = RowError("packed_row", what)
    if row.get("seq_lengths") is not None:
        lengths = _numbers(row, "seq_lengths")
        if len(lengths) > 1:
            raise packed
        if lengths != [size]:
            raise RowError("bad_column", f"seq_lengths is {lengths} for {size} input_ids")
    if row.get("position_ids") is not None:
        positions = _numbers(row, "position_ids", len(row["input_ids"]))[real]
        if 0 in positions[1:]:
            raise packed
        if positions != list(range(size)):
            detail = "position_ids do not count 0, 1, 2, …; a build counts them anew, so leave "
            raise RowError("bad_column", detail + "them out with --ignore position_ids")


class _Pretokenized(Format):
    name = "pretokenized"
    kinds = (CONVERSATION,)
    columns = _COLUMNS
    token_ids = True
    named_only = "no chat template can be applied to token ids, nor be compared with them"

    def matches(self, row: Row) -> str | None:
        ids: Any = row.get("input_ids")
        known = isinstance(ids, list) and ids and type(ids[0]) is int
        return "token ids in input_ids" if known else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        ids = _numbers(row, "input_ids")
        real = _real(row, len(ids))
        _refuse_packed(row, real)
        labels = _labels(row, ids)
        ids, labels = ids[real], labels[real]
        if not ids:
            raise RowError("no_tokens", "there are no tokens in it")
        if not 0 <= min(ids) <= max(ids) < _MAX_ID:
            raise RowError("id_outside_vocabulary", f"ids from {min(ids)} to {max(ids)}")
        if any(label != IGNORED and not 0 <= label < _MAX_ID for label in labels):
            raise RowError("bad_label", "a label is neither an id nor -100")
        return [Tokens(ids, labels)]


FORMAT = _Pretokenized()
