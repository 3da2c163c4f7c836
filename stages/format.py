"""What a record format is: the base class of all, which knows every attribute that one may have.

A format gives only what differs from the defaults here. An attribute that this class does not know
is refused as soon as it is written, because nothing would read it: a misspelt ``promts`` would be
off without a word.
"""

import copy
import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

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
        passes_on: the columns whose texts (or turns with these, or lists of them) and lists of
            ratings from 0 to 1 are passed on: ``read`` may join texts, compare them whole and look
            for what is more than a text, as ``normalize.outlines`` does, and for nothing else; of
            ratings it only counts how many they are. Reading them again says so again.
        token_ids: whether rows are token ids, which are neither rendered nor encoded.
        first_error: whether rows rate their steps up to the first error only.
        named_only: why rows are recognised but read only where ``--format`` names the format;
            empty where they are read as soon as they are recognised.
        usable: whether rows can be trained on; if not, they are recognised to be refused by name.
        ways: the ways in which all rows of a file can be read; a variant has its own in ``_way``.
        renamed: where columns stand in the rows of one file, as ``--map`` has it: a reading says it
            (``formats.load``), found by ``normalize.roles``.
    """

    name: str
    kinds: tuple[str, ...]
    columns: Columns
    fans_out: bool = False
    prompts: tuple[str, ...] = ()
    passes_on: tuple[str, ...] = ()
    token_ids: bool = False
    first_error: bool = False
    named_only: str = ""
    usable: bool = True
    ways: tuple[str, ...] = ()
    renamed: Mapping[str, str] = MappingProxyType({})
    _way: str = ""

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        super().__init_subclass__()
        for part in cls.__mro__[: cls.__mro__.index(Format)]:
            for name in (*vars(part), *vars(part).get("__annotations__", ())):
                _require_known(cls, name)
        if "read" in vars(cls) and "passes_on" not in vars(cls):  # it was said of another reading
            cls.passes_on = ()
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

    def told(self, options: FormatOptions) -> FormatOptions:
        """The options with the columns that were found, which count as named by ``--map``."""
        if not self.renamed:
            return options
        return replace(options, columns={**self.renamed, **options.columns})

    @property
    def variants(self) -> "Mapping[str, Format]":
        """The format once for each way in which all rows of a file can be read.

        They all have its name, and a key is what ``--format name/key`` takes.
        """
        variants = {way: copy.copy(self) for way in self.ways}
        for way, variant in variants.items():
            variant._way = way
        return variants

    def settle(self, rows: Sequence[Row], options: FormatOptions) -> tuple[str, str]:
        """The variant that some rows of a file show ("" for the format itself), and why.

        Args:
            options: what was told; of the meanings of its columns no others are read.

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

    def is_believable(self, rows: Sequence[Row], options: FormatOptions) -> bool:
        """Whether options that nobody gave yet may be offered for rows of the format."""
        return True


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
