"""What a record format is: the base class of all, which knows every attribute that one may have.

A format gives only what differs from the defaults here. An attribute that this class does not know
is refused as soon as it is written, because nothing would read it: a misspelt ``promts`` would be
off without a word.
"""

import copy
import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from stages.contract import Columns, Example, FormatOptions, Row

_NEEDED = ("name", "kinds", "columns", "matches", "read")


class Format(ABC):
    """One record format: which rows have it, and what they say; each provides FORMAT.

    Subclasses give ``name``, ``kinds``, ``columns``, ``matches`` and ``read``, and of the rest what
    they need. Names of their own begin with an underscore. A class that is not a format itself but
    the base of some takes the class keyword ``abstract=True``.

    Attributes:
        kinds: of the examples that it gives, by name (``stages.kinds``).
        columns: what a row may say, and the columns that it may say it in, the usual one first.
            ``read`` reads no others; ``--map`` takes these names.
        fans_out: whether one row can become several sequences (then all get ``#k``).
        prompts: the columns that hold a prompt as one text, which may carry a chat template.
        exchange: the names of the question's column, and of the answer's, where a row may be a
            question and an answer and nothing else; None where it may not.
        question_goes_on: the names of a column whose text follows that question after a blank line.
        dialogue: the names of the column of turns, where a row may be a conversation with its last
            answer and nothing else; empty where it may not.
        answers: the columns of the chosen and of the rejected answer, where a row may be a prompt
            and two answers and nothing else; None where it may not.
        asks: the names of the column of that prompt, a text or turns; ``asks_in_turns``: of one
            that holds turns alone.
        restates: those of them that may stand beside two whole conversations, as a part of both.
        step_lists: the names of the columns of a problem, of its steps and of their ratings, where
            a row may be these and nothing else; None where it may not.
        step_text: the names of the columns of a text with a tag after each step, and of ratings in
            a list; ``step_texts``: of that text, and of one that has ratings in the place of tags.
        token_ids: whether rows are token ids, which are neither rendered nor encoded.
        first_error: whether rows rate their steps up to the first error only.
        named_only: why rows are recognised but read only where ``--format`` names the format;
            empty where they are read as soon as they are recognised.
        usable: whether rows can be trained on; if not, they are recognised to be refused by name.
        ways: the ways in which all rows of a file can be read; a variant has its own in ``_way``.
    """

    name: str
    kinds: tuple[str, ...]
    columns: Columns
    fans_out: bool = False
    prompts: tuple[str, ...] = ()
    exchange: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    question_goes_on: tuple[str, ...] = ()
    dialogue: tuple[str, ...] = ()
    answers: tuple[str, str] | None = None
    asks: tuple[str, ...] = ()
    asks_in_turns: tuple[str, ...] = ()
    restates: tuple[str, ...] = ()
    step_lists: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None = None
    step_text: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    step_texts: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    token_ids: bool = False
    first_error: bool = False
    named_only: str = ""
    usable: bool = True
    ways: tuple[str, ...] = ()
    _way: str = ""

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        super().__init_subclass__()
        for part in cls.__mro__[: cls.__mro__.index(Format)]:
            for name in (*vars(part), *vars(part).get("__annotations__", ())):
                _require_known(cls, name)
        if "read" in vars(cls):  # which rows are plain was said of what another class reads
            for name in _OF_PLAIN_ROWS - vars(cls).keys():
                setattr(cls, name, getattr(Format, name))
        # A method that is still the one below, or an attribute that is still only announced.
        lacking = [n for n in _NEEDED if getattr(cls, n, None) is getattr(Format, n, None)]
        if lacking and not abstract:
            raise TypeError(f"The format {cls.__qualname__} does not give {', '.join(lacking)}.")

    def __setattr__(self, name: str, value: object) -> None:
        _require_known(type(self), name)
        super().__setattr__(name, value)

    @abstractmethod
    def matches(self, row: Row) -> str | None:
        """Why this row looks like the format, in words; None when it does not."""

    @abstractmethod
    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        """Turn a row into examples; what it says and no example has in it is a ``Refused``.

        A column that is read ends in an example: ``row[name]`` and ``row.get(name)`` count as
        reading (see ``watched``), and every other column is reported as not read.

        Raises:
            RowError: the row cannot be used.
        """

    @property
    def variants(self) -> "Mapping[str, Format]":
        """The format once for each way in which all rows of a file can be read.

        They all have its name, and a key is what ``--format name/key`` takes.
        """
        variants = {way: copy.copy(self) for way in self.ways}
        for way, variant in variants.items():
            variant._way = way
        return variants

    def settle(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str]:
        """The variant that some rows of a file show ("" for the format itself), and why.

        Args:
            columns: those that ``--map`` named by hand; of their meanings no others are read.

        Raises:
            UndecidedError: they show none.
        """
        return "", ""

    def doubt(self, rows: Sequence[Row], columns: Mapping[str, str]) -> tuple[str, str] | None:
        """What else the rows could mean, and the flag that settles it; None when nothing else.

        Args:
            columns: those that ``--map`` named by hand; they are meant.
        """
        return None


_OF_PLAIN_ROWS = frozenset(
    ("exchange", "dialogue", "answers", "step_lists", "step_text", "step_texts")
)
_KNOWN = sorted(n for n in {*vars(Format), *Format.__annotations__} if not n.startswith("_"))


def _require_known(cls: type[Format], name: str) -> None:
    """A name that a format gives is one that is read, or its own affair.

    Raises:
        TypeError: it is neither; the message has the nearest that is known.
    """
    if name.startswith("_") or name in _KNOWN:
        return
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    raise TypeError(
        f"The format {cls.__qualname__} gives {name!r}, which nothing reads. "
        + (f"Did you mean {near[0]}? " if near else f"Known: {', '.join(_KNOWN)}. ")
        + "A name of the format's own begins with an underscore."
    )
