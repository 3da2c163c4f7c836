"""MinHash signatures: how alike two rows are, from a few numbers of each.

The runs of n words of a row are a set; two rows are as alike as their sets (Jaccard: what both
have, as a share of what either has). Each of the numbers of a signature is equal in two rows with
that probability, so the share of equal ones estimates it. The library rensa makes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise, repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from stages import columns, kinds
from stages.columns import Ints, begins_of, offsets_of
from stages.contract import Batch
from stages.errors import UsageError
from stages.normalize import overlap_words
from stages.normalize.overlap import Likeness
from stages.normalize.overlap_words import Hashes, Known, mixed, rolling

ROW, QUESTION = "signature", "question_signature"
NUMBERS = 128  # of a signature: the estimate's standard deviation is at most 0.045
WIDTH = 4 * NUMBERS  # bytes
Signatures = npt.NDArray[np.uint32]
_SEED = 1
_EMPTY = np.uint32(2**32 - 1)  # every number of a row without words
_BLOCK = 1 << 18  # characters that are compared at once: what is made of them stays in the cache


def _library() -> Any:
    """The class that makes signatures.

    Raises:
        UsageError: it is not installed.
    """
    try:
        from rensa import RMinHash
    except ImportError as error:
        how = "Install it: pip install 'posttrain-pipeline[near]'."
        what = "--near-dedup needs the package rensa, which is not installed."
        raise UsageError(what, how) from error
    return RMinHash


def version() -> str:
    """What the numbers of a signature depend on beside the words."""
    return f"rensa {_library().ALGORITHM_VERSION}, {NUMBERS} numbers"


def _runs(texts: Sequence[str], rows: Ints, count: int, size: int) -> tuple[Hashes, Ints]:
    """A hash for each run of words of each row, and where each row's begin.

    A run that ends with the row is as long as the words that are left: short rows have runs too.
    """
    own: list[list[bytes]] = [[] for _ in range(count)]
    for text, row in zip(texts, rows.tolist(), strict=True):
        own[row] += overlap_words.plain(text).split()
    ends = [overlap_words.END] * (size - 1)
    every = [word for some in own if some for word in (*some, *ends)]
    hashed = np.fromiter(map(xxh3_64_intdigest, every), np.uint64, len(every))
    begins = np.fromiter((word != overlap_words.END for word in every), bool, len(every))
    found = mixed(rolling(hashed, size))
    return found[begins[: len(found)]], columns.offsets_of(np.array([*map(len, own)], np.int64))


def of_texts(texts: Sequence[str], rows: Ints, count: int, size: int) -> Signatures:
    """Signatures of rows.

    Args:
        rows: of each text, ascending; ``count``: of them; ``size``: words of a run.

    Returns:
        One row of ``NUMBERS`` for each.
    """
    made = np.empty((count, NUMBERS), np.uint32)
    for first, last, some in blocks(texts, rows, count):
        hashes, offsets = _runs(texts[some], rows[some] - first, last - first, size)
        digests = _library().digest_matrix_from_flat_token_hashes
        matrix = digests(hashes, offsets.astype(np.uint64), num_perm=NUMBERS, seed=_SEED)
        made[first:last] = matrix.to_rows()
    return made


def blocks(texts: Sequence[str], rows: Ints, count: int) -> Iterator[tuple[int, int, slice]]:
    """Runs of rows with texts of about one size: the first row, the one behind them, their texts.

    Args:
        rows: of each text, ascending; ``count``: of them.
    """
    sizes = np.zeros(count, np.int64)
    np.add.at(sizes, rows, np.fromiter(map(len, texts), np.int64, len(texts)))
    block = columns.offsets_of(sizes)[:-1] // _BLOCK
    bounds = np.flatnonzero(np.diff(block, prepend=-1, append=-2)).tolist() if count else []
    for first, last in pairwise(bounds):
        yield first, last, slice(*np.searchsorted(rows, [first, last]).tolist())


def put(batch: Batch, kind: kinds.Kind, likeness: Likeness) -> Batch:
    """The batch with a column for each signature that is asked for."""
    for name, whole in likeness.columns:
        told, rows = compared_texts(batch, kind, whole)
        made = of_texts(told, rows, batch.num_rows, likeness.size)
        content = pa.py_buffer(made.astype("<u4").tobytes())
        kind_of = columns.TYPES[name]
        column = pa.Array.from_buffers(kind_of, batch.num_rows, [None, content])
        batch = columns.put(batch, name, column)
    return batch


def numbers(column: pa.Array | pa.ChunkedArray) -> Signatures:
    """The signatures of a column, mapped as it is: one row of ``NUMBERS`` for each."""
    whole = columns.whole(column)
    if not len(whole):
        return np.zeros((0, NUMBERS), np.uint32)
    flat = np.frombuffer(whole.buffers()[1], "<u4")
    first = whole.offset * NUMBERS
    return flat[first : first + len(whole) * NUMBERS].reshape(-1, NUMBERS)


def empty(signatures: Signatures) -> npt.NDArray[np.bool_]:
    """Which rows have no words, so that nothing is like them."""
    found: npt.NDArray[np.bool_] = np.all(signatures == _EMPTY, axis=1)
    return found


# Questions by their runs of n words, and how much of each a text shares.
#
# The share of a question is that of its words which are part of a run of n words that the text has
# too. A run that many questions of an evaluation have is its instruction ("Answer with the letter
# of the right choice"): it tells nothing about one of them, and is left out on both sides of the
# share.


COMMON, COMMON_SHARE = 10, 0.1  # more questions of an evaluation, and a larger share, have it
_UNKNOWN = 0  # a word that no question has
# A row, a question, how much of its words is shared, and which are the longest shared stretch.
Shared: TypeAlias = tuple[int, int, float, int, int]


def _hashes(ids: Ints, size: int) -> Hashes:
    """A hash of every run of so many words."""
    return mixed(rolling(ids.astype(np.uint64), size))


def _fresh(places: Ints, begins: npt.NDArray[np.bool_], size: int) -> Ints:
    """How many words each run adds to those before it of the same group."""
    fresh = np.full(len(places), size, np.int64)
    # Only the words up to the next run, where that begins inside this one.
    inside = ~begins[1:]
    fresh[:-1][inside] = np.minimum(size, np.diff(places)[inside])
    return fresh


class Runs:
    """The runs of all questions.

    Args:
        texts: of each question, in plain words; ``evaluation``: the number of its evaluation.
        size: words of a run.
    """

    def __init__(self, texts: Sequence[bytes], evaluation: Sequence[int], size: int) -> None:
        self.size = size
        self.words = [text.split() for text in texts]
        # Every word of a question by its number, from 1.
        every = enumerate(dict.fromkeys(chain(*self.words)), 1)
        self._ids = {word: number for number, word in every}
        starts = offsets_of(np.array([len(words) for words in self.words], np.int64))
        self._all = self._numbers(list(chain(*self.words)))
        owner = np.repeat(np.arange(len(texts)), np.diff(starts))
        hashes = _hashes(self._all, size)
        at = np.flatnonzero(owner[: len(hashes)] == owner[len(owner) - len(hashes) :])
        hashes, items = hashes[at], owner[at]
        telling = ~_common(hashes, items, np.array(evaluation, np.int64))
        at, hashes, items = at[telling], hashes[telling], items[telling]
        places = at - starts[items]
        fresh = _fresh(places, begins_of(items), size) if len(items) else places
        self.counted = np.bincount(items, weights=fresh, minlength=len(texts)).astype(np.int64)
        self._known = Known(hashes)
        order = np.argsort(hashes, kind="stable")
        self._items, self._places = items[order], places[order]
        self._offsets = np.searchsorted(hashes[order], self._known.hashes)
        self._first = at[order][self._offsets]  # where each known run stands in all words
        self._offsets = np.append(self._offsets, len(order))

    def _numbers(self, words: Sequence[bytes]) -> Ints:
        return np.fromiter(map(self._ids.get, words, repeat(_UNKNOWN)), np.int64, len(words))

    def shared(self, words: Sequence[bytes], row_of_word: Ints) -> Iterable[Shared]:
        """What rows share with the questions, in the order of both.

        Args:
            words: of all rows, with a word that no question has between two texts.
            row_of_word: ascending.
        """
        ids = self._numbers(words)
        at, run = self._known.find(_hashes(ids, self.size))
        if len(at):
            steps = np.arange(self.size)
            same = (ids[at[:, None] + steps] == self._all[self._first[run][:, None] + steps]).all(1)
            at, run = at[same], run[same]
        row = row_of_word[at]
        order = np.lexsort((run, row))
        row, run = row[order], run[order]
        once = begins_of(row, run)
        row, run = row[once], run[once]
        counts = np.diff(self._offsets)[run]
        # The questions that have each of these runs, and where they have it.
        each = np.repeat(self._offsets[run] - offsets_of(counts)[:-1], counts)
        each = each + np.arange(len(each))
        row, item, place = np.repeat(row, counts), self._items[each], self._places[each]
        order = np.lexsort((place, item, row))
        return self._of_groups(row[order], item[order], place[order])

    def _of_groups(self, row: Ints, item: Ints, place: Ints) -> Iterable[Shared]:
        """Sorted occurrences of runs, added up for each row and question."""
        if not len(row):
            return ()
        begins = begins_of(row, item)
        groups = np.flatnonzero(begins)
        covered = np.add.reduceat(_fresh(place, begins, self.size), groups)
        # A stretch goes on where a run begins one word after the one before it.
        broken = begins.copy()
        broken[1:] |= np.diff(place) != 1
        stretch = np.flatnonzero(broken)
        length = np.diff(np.append(stretch, len(place)))
        group = np.cumsum(begins)[stretch]
        longest = np.lexsort((stretch, -length, group))
        longest = longest[begins_of(group[longest])]
        first = place[stretch[longest]]
        stop = first + length[longest] + self.size - 1
        share = covered / self.counted[item[groups]]
        each = (row[groups], item[groups], share, first, stop)
        return zip(*(one.tolist() for one in each), strict=True)


def _common(hashes: Hashes, items: Ints, evaluation: Ints) -> npt.NDArray[np.bool_]:
    """Which runs so many questions of an evaluation have that they tell nothing about one."""
    common = np.zeros(len(hashes), bool)
    for number, size in zip(*np.unique(evaluation, return_counts=True), strict=True):
        own = np.flatnonzero(evaluation[items] == number)
        order = np.lexsort((items[own], hashes[own]))
        once = begins_of(hashes[own][order].view(np.int64), items[own][order])
        values, counts = np.unique(hashes[own][order][once], return_counts=True)
        often = values[(counts > COMMON) & (counts > COMMON_SHARE * size)]
        common[own] = np.isin(hashes[own], often)
    return common


# The texts of a batch that are compared with others: its questions, or all that it says.


ANSWER = "assistant"  # the role of a turn that is no question
TOOLS = "tools"  # a column: what a row says of the tools that may be called


def _inside(column: pa.Array) -> tuple[pa.Array, Ints]:
    """The values in the lists of a column, and the row of each."""
    offsets, values = columns.list_parts(column)
    return values, np.repeat(np.arange(len(column)), np.diff(offsets))


def _turns(column: pa.Array, whole: bool) -> tuple[pa.Array, Ints]:
    """Contents of turns, and the row of each; answers only where they are asked for, or where a
    row has nothing else."""
    turns, rows = _inside(column)
    contents, roles = (turns.flatten()[turns.type.get_field_index(n)] for n in ("content", "role"))
    asked: npt.NDArray[np.bool_] = pc.not_equal(roles, ANSWER).to_numpy(False)
    silent = np.bincount(rows[asked], minlength=len(column)) == 0
    wanted = whole | asked | silent[rows]
    return contents.filter(pa.array(wanted)), rows[wanted]


def _texts(column: pa.Array) -> tuple[pa.Array, Ints]:
    """Texts of a column of texts or of lists of texts, and the row of each."""
    return _inside(column) if pa.types.is_list(column.type) else (column, np.arange(len(column)))


def _fields(column: pa.Array) -> tuple[pa.Array, Ints]:
    """What turns say beside their contents, calls of tools above all, and the row of each."""
    turns, rows = _inside(column)
    fields = turns.flatten()[turns.type.get_field_index("fields")]
    return fields.drop_null(), rows[fields.is_valid().to_numpy(False)]


def _columns(batch: Batch, kind: kinds.Kind, whole: bool) -> Iterator[tuple[pa.Array, Ints]]:
    for name in kind.texts if whole else kind.texts[:1]:
        column = batch.column(name)
        turns = column.type == columns.MESSAGES
        yield _turns(column, whole) if turns else _texts(column)
        if turns and whole:
            yield _fields(column)
    if whole and TOOLS in batch.schema.names:
        yield _texts(batch.column(TOOLS))


def compared_texts(batch: Batch, kind: kinds.Kind, whole: bool) -> tuple[Sequence[str], Ints]:
    """Every text that is compared, in the order of the rows, and the row of each.

    Args:
        whole: all that a row says, with its tools and their calls; else what it asks: the turns
            that are no answers, or all of them where there are no others.

    Raises:
        UsageError: rows have no texts.
    """
    if not kind.texts:
        what = f"Rows of {kind.words} cannot be compared with others: they have no texts."
        raise UsageError(what, "Give rows with texts, or build without what compares them.")
    each = [*_columns(batch, kind, whole)]
    found = [text or "" for values, _ in each for text in values.to_pylist()]
    rows = np.concatenate([np.zeros(0, np.int64), *(own for _, own in each)])
    order = np.argsort(rows, kind="stable")
    return [found[i] for i in order.tolist()], rows[order]
