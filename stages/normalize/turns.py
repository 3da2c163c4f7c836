"""Conversations as flat arrays: which of them are ordinary, and the columns that they become.

How texts of a column begin and end is told without a Python object for each of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stages import columns
from stages.chat_template import loss_weights
from stages.chat_template.reasoning import OPEN
from stages.columns import Ints, make_list, offsets_of
from stages.rows import stop_text
from stages.rows.stop_text import opens_reasoning

if TYPE_CHECKING:
    from stages.normalize.stage import Normalize

Bools = npt.NDArray[np.bool_]
BLANKS = frozenset(chr(code) for code in range(0x3001) if chr(code).isspace())


def begin_with(texts: pa.StringArray, chars: Iterable[str]) -> Bools:
    """Which texts begin with one of some characters."""
    return _among(pc.utf8_slice_codeunits(texts, 0, 1), chars)


def end_with(texts: pa.StringArray, chars: Iterable[str]) -> Bools:
    """Which texts end with one of some characters, or are empty."""
    return _among(pc.utf8_slice_codeunits(texts, -1), ("", *chars))


def _among(texts: pa.StringArray, values: Iterable[str]) -> Bools:
    found = pc.is_in(texts, value_set=pa.array(values, pa.string()))
    which: Bools = found.to_numpy(zero_copy_only=False)
    return which


def some_hold(texts: pa.StringArray, part: str) -> bool:
    """Whether the bytes of a column may hold a text; surely so where one of its texts does."""
    content = texts.buffers()[2]
    return content is not None and part.encode() in content.to_pybytes()


ROLES = ("system", "user", "assistant")
SYSTEM, USER, ASSISTANT = range(3)
SPELLED = {"system": SYSTEM, "user": USER, "human": USER, "assistant": ASSISTANT, "gpt": ASSISTANT}
FOLLOWS = np.zeros((3, 3), bool)  # [a turn, the turn behind it]
FOLLOWS[SYSTEM, USER] = FOLLOWS[USER, ASSISTANT] = FOLLOWS[ASSISTANT, USER] = True
_ODD = BLANKS | stop_text.LAST  # how few answers end; these are looked into


class Made(Protocol):
    """Rows that were read many at a time."""

    def columns(self, normalize: "Normalize") -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        ...

    def odd(self, normalize: "Normalize") -> Mapping[int, list[str]]:
        """The notes of some rows, by index. Turns that alternate have none of their own."""
        return {}


@dataclass(frozen=True, slots=True)
class Turns(Made):
    """Conversations, flat.

    Attributes:
        roles: int8, of all turns, one row after another: numbers as in ``ROLES``.
        texts: of these turns.
        offsets: where each row's turns start.
    """

    roles: npt.NDArray[np.int8]
    texts: pa.StringArray
    offsets: Ints

    def columns(self, normalize: "Normalize") -> dict[str, Any]:
        """The columns that normalize writes, but for ``note``."""
        trained = self.roles == ASSISTANT
        if normalize.train_on == "last":
            trained[:] = False
            trained[self.offsets[1:] - 1] = True
        count = len(self.offsets) - 1
        return {
            "messages": self.messages(trained),
            "turn_weights": loss_weights.lists({}, count),
            "tools": pa.nulls(count, pa.string()),
        }

    def messages(self, trained: Bools) -> pa.ListArray:
        """A column of these turns, given which of them are trained."""
        arrays = [
            pa.array(ROLES).take(pa.array(self.roles)),
            self.texts,
            pa.nulls(len(self.texts), pa.string()),
            pa.array(trained),
        ]
        turns = pa.StructArray.from_arrays(arrays, fields=list(columns.MESSAGES.value_type))
        return make_list(self.offsets, turns)

    def rows(self, which: Bools) -> "Turns":
        """The conversations for which ``which`` is true."""
        if which.all():
            return self
        sizes = np.diff(self.offsets)
        turns = np.repeat(which, sizes)
        return Turns(
            self.roles[turns], self.texts.filter(pa.array(turns)), offsets_of(sizes[which])
        )

    def _without(self, rows: Bools, turns: Sequence[int] | Ints) -> Bools:
        """Rows without those of some turns."""
        rows[np.searchsorted(self.offsets, turns, side="right") - 1] = False
        return rows

    def ordered(self) -> Bools:
        """Which conversations alternate as a template expects it, and end in an answer."""
        firsts, lasts = self.offsets[:-1], self.offsets[1:] - 1
        rows: Bools = (self.roles[firsts] != ASSISTANT) & (self.roles[lasts] == ASSISTANT)
        follows = FOLLOWS[self.roles[:-1], self.roles[1:]]
        follows[lasts[:-1]] = True  # what follows there is another conversation
        return self._without(rows, np.flatnonzero(~follows))

    def ordinary(self, may_be_blank: bool) -> Bools:
        """Which conversations have nothing in an answer that needs a closer look.

        That is an answer without a text, one that ends in the text of a stop token, or one that
        opens reasoning without an end.

        Args:
            may_be_blank: other turns need no text.
        """
        rows = np.ones(len(self.offsets) - 1, bool)
        answers = self.roles == ASSISTANT
        # Most texts are seen to be ordinary by one character; only the others are looked into.
        ends = end_with(self.texts, _ODD)
        looked = np.flatnonzero(ends & answers if may_be_blank else ends)
        texts = self.texts.take(pa.array(looked)).to_pylist()
        odd = [
            turn
            for turn, text in zip(looked.tolist(), texts, strict=True)
            if not text.strip() or (answers[turn] and stop_text.ending_stop(text))
        ]
        if some_hold(self.texts, OPEN):
            opens = pc.match_substring(self.texts, OPEN).to_numpy(zero_copy_only=False) & answers
            thinking = np.flatnonzero(opens).tolist()
            odd += [turn for turn in thinking if opens_reasoning(self.texts[turn].as_py())]
        return self._without(rows, odd) if odd else rows


def _templated(texts: pa.StringArray, each: int = 1) -> Ints:
    """Of every so many texts, the first: which of these carry a chat template already."""
    odd: Ints = np.flatnonzero(begin_with(texts, stop_text.FIRST)[::each])
    said = texts.take(pa.array(each * odd)).to_pylist()
    found = np.array([stop_text.read(text) is not None for text in said], bool)
    templated_ones: Ints = odd[found]
    return templated_ones


def exchanges(asked: pa.StringArray, more: pa.StringArray, answers: pa.StringArray) -> pa.Array:
    """Questions and answers in turn; ``more`` goes on with a question after a blank line."""
    longer = pc.binary_join_element_wise(asked, more, "\n\n")
    questions = pc.if_else(pc.equal(more, ""), asked, longer)
    places = np.arange(2 * len(asked)).reshape(2, -1).T.ravel()
    return pa.concat_arrays([questions, answers]).take(pa.array(places))


def asked_and_answered(texts: pa.StringArray, asked: pa.StringArray | None) -> tuple[Turns, Bools]:
    """Exchanges, and which of them are plain.

    Args:
        texts: question, answer, question, and so on.
        asked: the questions' first parts, where these are also looked at.
    """
    count = len(texts) // 2
    roles = np.tile(np.array([USER, ASSISTANT], np.int8), count)
    turns = Turns(roles, texts, 2 * np.arange(count + 1))
    plain = turns.ordinary(may_be_blank=True)
    plain[_templated(texts, each=2)] = False
    if asked is not None:
        plain[_templated(asked)] = False
    return turns, plain


def dialogues(
    roles: npt.NDArray[np.int8], texts: pa.StringArray, sizes: Ints
) -> tuple[Turns, Bools]:
    """Conversations, and which of them are plain; none of them is empty."""
    turns = Turns(roles, texts, offsets_of(sizes))
    return turns, turns.ordered() & turns.ordinary(may_be_blank=False)
