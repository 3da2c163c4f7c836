"""Record formats: a file provides FORMAT, or a TABLE of several.

A *reading* is what a build settles on for a file: a format's name, or ``name/variant`` where one
format's rows can be read in more than one way (``indexed_pair/1-based``). Where columns have names
of the file's own, it says which they are (``query_response?question=Ask&answer=Reply``), as
``--map`` does. ``--format`` takes all three. The reading of a file whose rows have several formats
has those of all of them: ``alpaca+openai``.
"""

import copy
import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import parse_qsl, quote

from stages import catalog, kinds
from stages.contract import Columns, Example, FormatOptions, Row
from stages.errors import RowError, UsageError
from stages.format import Format
from stages.kinds import Kind

TABLES = tuple(
    "dialogues message_trees pairs rankings step_errors step_lists step_objects step_tree texts "
    "unusable verdicts".split()
)
AND = "+"  # between the readings of a mixture, which is their reading
_SIGNS = re.compile(r"[%&=+?/;#\s]")
MIXED_FORMATS = "--mixed-formats"


def load(reading: str) -> Format:
    """The format, or the variant of one, that a reading names.

    Raises:
        UsageError: there is none.
    """
    if AND in reading:
        return Mixed(reading.split(AND))
    named, _, found = reading.partition("?")
    name, slash, variant = named.partition("/")
    one = _named(name)
    if slash:
        variants = one.variants
        if variant not in variants:
            raise catalog.unknown(f"variant of {name}", variant, sorted(variants))
        one = variants[variant]
    if found:
        one = copy.copy(one)
        one.renamed = dict(parse_qsl(found))
    return one


def reading_of(name: str, variant: str, renamed: Mapping[str, str]) -> str:
    """What ``load`` takes: a format's name, a variant of it ("" for none), and found columns.

    Names keep their letters, in any script; only what a reading itself means is quoted.
    """
    quoted = functools.partial(_SIGNS.sub, lambda sign: quote(sign[0], safe=""))
    found = "&".join(f"{quoted(one)}={quoted(path)}" for one, path in renamed.items())
    return name + (f"/{variant}" if variant else "") + (f"?{found}" if found else "")


def _named(name: str) -> Format:
    """The format of this name, of this package or of another one.

    Raises:
        UsageError: there is none, or another package gives something else under it.
    """
    given: object = catalog.load(__name__, name, "FORMAT")
    if not isinstance(given, Format):
        what = f"is a {type(given).__name__}, not an instance of a subclass of Format."
        how = "Derive its class from stages.format.Format, and let FORMAT be an instance of that."
        raise UsageError(f"Format {name} {what}", how)
    if given.name != name:
        how = "Give the entry point, or the file, and the format one name."
        raise UsageError(f"Format {name} says that its name is {given.name}.", how)
    return given


def names_of(row_format: Format) -> list[str]:
    """The columns that a format may read: the NAMEs that ``--map`` takes."""
    return [name for names in row_format.columns.values() for name in names]


def settled_by(row_format: Format, mapped: Iterable[str]) -> frozenset[str]:
    """The columns that have been decided on where ``--map`` names one of the same meaning; one that
    was found decides on no other."""
    named = set(mapped).difference(row_format.renamed or ())
    meant = [names for names in row_format.columns.values() if not named.isdisjoint(names)]
    return frozenset(name for names in meant for name in names)


def for_kind(kind: Kind) -> list[Format]:
    """The formats that give a kind of example."""
    return [f for f in map(load, catalog.names(__name__)) if kind.formats in f.kinds]


def usable_for(kind: Kind) -> list[Format]:
    """Those of them whose rows can be trained on; the others are only refused by their name."""
    return [f for f in for_kind(kind) if f.usable]


def choose(reading: str, kind: Kind) -> Format:
    """The format that ``--format`` names.

    Raises:
        UsageError: there is none, or it gives another kind of example.
    """
    if AND in reading:
        raise UsageError("--format names one format.", f"For several: {MIXED_FORMATS}.")
    row_format = load(reading)
    if kind.formats not in row_format.kinds:
        given = " and ".join(kinds.load(name).words for name in row_format.kinds)
        how = f"For {kind.words}: {', '.join(f.name for f in usable_for(kind))}."
        raise UsageError(f"Format {row_format.name} gives {given}, not {kind.words}.", how)
    return row_format


class Mixed(Format):
    """Several formats in one file: each row is read by the one that it fits."""

    name = AND
    kinds: tuple[str, ...] = ()
    columns: Columns = {}

    def __init__(self, readings: Sequence[str]) -> None:
        self._parts = {reading: load(reading) for reading in readings}
        parts = [*self._parts.values()]
        self.name = AND.join(part.name for part in parts)
        self.kinds = tuple(k for k in parts[0].kinds if all(k in part.kinds for part in parts))
        each = [part.columns for part in parts]
        self.columns = {
            meaning: tuple(dict.fromkeys(name for one in each for name in one.get(meaning, ())))
            for meaning in itertools.chain(*each)
        }
        self.prompts = tuple(dict.fromkeys(name for part in parts for name in part.prompts))
        self.fans_out = any(part.fans_out for part in parts)
        self.first_error = any(part.first_error for part in parts)

    def matches(self, row: Row) -> str | None:
        fits = fitting(self, row)
        return f"fits {fits[0]}" if len(fits) == 1 else None

    def read(self, row: Row, options: FormatOptions) -> list[Example]:
        fits = fitting(self, row)
        if len(fits) > 1:
            raise RowError("ambiguous_format", f"the row fits {' and '.join(fits)}")
        if not fits:
            raise RowError("no_format", f"the row fits none of {', '.join(self._parts)}")
        return self._parts[fits[0]].read(row, options)


def fitting(format_: Format, row: Row) -> list[str]:
    """The readings of a mixture that a row fits; none of a format that is no mixture."""
    if not isinstance(format_, Mixed):
        return []
    plain = dict(dict.items(row))  # to look at a column here is not to read it
    return [reading for reading, part in format_._parts.items() if part.matches(plain)]
