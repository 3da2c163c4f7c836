"""Values of options that may be given several times: lists and tables in a recipe; and how the
cells of a table of texts are read."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, replace
from os import PathLike
from typing import Any, NamedTuple

from pipeline.options import values as v
from pipeline.options.values import Schema, Value, Words, limited, plain
from stages.errors import UsageError
from stages.tokens import layouts


@dataclass(eq=False, repr=False)
class Texts(Value):
    """Several texts.

    Attributes:
        check: raises where one is no value.
    """

    check: Callable[[str], object] | None = None
    called = "a list of texts"
    many = True

    def schema(self) -> Schema:
        return limited("array", items={"type": "string"})

    def spellings(self) -> Schema:
        return v.any_of({"type": "string"}, self.schema())

    def loosened(self, value: Any) -> Any:
        if isinstance(value, Words) and value.startswith("["):
            value = _toml(value)
        if isinstance(value, str | PathLike):
            return [plain(value)]
        return [plain(one) for one in value] if isinstance(value, tuple | list) else value

    def settled(self, value: Any) -> Any:
        if self.check is not None:
            for text in value:
                self.check(text)
        return tuple(value)


@dataclass(eq=False, repr=False)
class Pairs(Value):
    """Values by name: a table in a recipe, ``NAME=VALUE`` on a command line.

    Attributes:
        flag: an example of it, which a message shows.
        numbers: whether the values are numbers, else they are texts; ``of``: the texts that there
            are, where not any is one.
        names: those that there are; empty where any is one.
        check: raises where they are no values of the option.
    """

    flag: str = ""
    numbers: bool = False
    of: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    check: Callable[[Mapping[str, Any]], object] | None = None
    many = True

    @property
    def words(self) -> str:
        return f"a table of {'numbers' if self.numbers else 'texts'}"

    @property
    def each(self) -> Value:
        """What a value of the table is."""
        if self.of:
            return v.one_of(*self.of)
        return v.Number() if self.numbers else Value()

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.each.schema()}

    def spellings(self) -> Schema:
        inner = self.each.schema()
        if self.names:
            every = dict.fromkeys(self.names, v.any_of(*v.or_variable(inner | {"minimum": 0})))
            return {"type": "object", "properties": every, "additionalProperties": False}
        nested = {"type": "object", "additionalProperties": inner}
        return nested | {"additionalProperties": v.any_of(*v.or_variable(inner), nested)}

    def loosened(self, value: Any) -> Any:
        if isinstance(value, Words) and value.startswith("{"):
            value = _toml(value)
        if isinstance(value, Mapping):
            return {name: self.each.loosened(one) for name, one in _flat(value)}
        if isinstance(value, str):
            value = [value]
        if isinstance(value, tuple | list) and all(isinstance(one, str) for one in value):
            return self._of_words(tuple(value))
        return value

    def _of_words(self, pairs: tuple[str, ...]) -> dict[str, Any]:
        """What ``NAME=VALUE`` says.

        Raises:
            UsageError: one is not written so, or a name is there twice.
        """
        option = self.flag.partition(" ")[0]
        found: dict[str, Any] = {}
        for pair in pairs:
            name, _, text = pair.partition("=")
            number = float(text) if v.NUMBER.fullmatch(text) else None
            if not (name and text) or (self.numbers and number is None):
                raise UsageError(
                    f"{option} {pair!r} is not {self.metavar}.", f"For example {self.flag}."
                )
            if name in found:
                remedy = "One value belongs to a name."
                if option == "--map":
                    remedy = f"Read two columns together with {option} {name}={found[name]},{text}."
                raise UsageError(f"{option} names {name} twice.", remedy)
            found[name] = number if self.numbers else text
        return found

    def settled(self, value: Any) -> Any:
        found = dict(self.loosened(value))
        for name, word in found.items() if self.of else ():
            if word not in self.of:
                what = f"{self.flag.partition(' ')[0]} {name}={word}: {word!r} is none of"
                raise UsageError(f"{what} {', '.join(self.of)}.", f"For example {self.flag}.")
        if found and self.check is not None:
            self.check(found)
        return found


def _toml(words: str) -> Any:
    """What a table or a list that was written as TOML holds; the words where it is none."""
    import tomllib

    try:
        return tomllib.loads(f"value = {words}\n")["value"]
    except ValueError:
        return str(words)


def _flat(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A table's entries, those of inner tables under dotted names."""
    entries = []
    for key, value in table.items():
        inner = _flat(value) if isinstance(value, Mapping) else [("", value)]
        entries += [(f"{key}.{name}" if name else key, item) for name, item in inner]
    return entries


_TABS = ("tab", "\\t", "\t")


class Delimiter(Value):
    """One ASCII character that is in no quote, number or word; a tab also by its name."""

    called = 'one character, or "tab"'

    def schema(self) -> Schema:
        return limited("string", pattern=r'^([^a-zA-Z0-9"\r\n]|tab|\\t)$')

    def loosened(self, value: Any) -> Any:
        return "\t" if value in _TABS else value

    def settled(self, value: Any) -> Any:
        value = self.loosened(value)
        if len(value) != 1 or not value.isascii() or value.isalnum() or value in '"\r\n\0':
            raise UsageError(
                f"--delimiter {value!r} cannot separate cells.",
                "Give one character that is no letter, digit or quote: ',', ';', '|' or tab.",
            )
        return value


# ``--dedup-keep``: which of equal examples stays.


FIRST = "first"


class Keep(NamedTuple):
    """The first, or the one with the highest or the lowest number in a column.

    Attributes:
        column: of the raw row, dotted; empty where the first stays.
    """

    column: str = ""
    highest: bool = True

    @classmethod
    def of(cls, text: str) -> "Keep":
        """What a text says.

        Raises:
            UsageError: it is neither ``first`` nor ``highest:COLUMN`` nor ``lowest:COLUMN``.
        """
        which, _, column = text.partition(":")
        if text == FIRST:
            return cls()
        if which not in ("highest", "lowest") or not column:
            raise UsageError(
                f"--dedup-keep {text!r} is not first, highest:COLUMN or lowest:COLUMN.",
                "For example --dedup-keep highest:score.",
            )
        return cls(column, which == "highest")


# Options of packs go together with the layout that stores them.


def require(layout: str, pack_within: str, index_only: bool) -> None:
    """Refuse options of packs for a layout that has none.

    Args:
        layout: empty where it is still to be chosen.

    Raises:
        UsageError: they do not go together.
    """
    if not layout or not (index_only or pack_within == "part"):
        return  # without a look at the layout, which imports what lays rows out
    if layouts.load(layout).packs or (index_only and layout == layouts.INDEXED):
        return
    if pack_within == "part":
        raise UsageError(f"--pack-within part is not for layout {layout}.", "Leave it out.")
    what = f"--index-only stores packs, and layout {layout} has none."
    raise UsageError(what, "Leave one of them out.")


# A declared option: a field of a phase, and what is said of it.


RECORDED = "recorded as"  # metadata of a field: how its value is written down, where not as it is
UNLESS_DEFAULT = "recorded unless it is the default"  # so files without the option stay as they are
_OPTION = "option"
_AS_NAMED = ("--name",)  # stands for the flag that follows from the name of the field


@dataclass(eq=False, repr=False)
class Option:
    """How an option is written, and what it is for.

    Attributes:
        name: of its field; ``default``: None where the default is worked out.
        flags: how a command line spells it, the full name last; empty for what is no flag there.
        by_source: whether it may differ between the sources of a build.
        heading: under which a command's help has it.
    """

    name: str
    value: Value
    help: str
    default: Any = None
    flags: tuple[str, ...] = ()
    by_source: bool = False
    heading: str = ""

    @property
    def key(self) -> str:
        """Its key in a recipe."""
        return self.flags[-1].removeprefix("--") if self.flags else self.name.replace("_", "-")


def option(
    default: Any,
    value: Value,
    help: str,  # noqa: A002  # as click calls it
    *,
    flags: tuple[str, ...] = _AS_NAMED,
    by_source: bool = False,
    recorded: Mapping[str, Any] | None = None,
    heading: str = "",
) -> Any:
    """A field with its declaration."""
    said = Option("", value, help, None, flags, by_source, heading)
    metadata = {_OPTION: said, **(recorded or {})}
    factory = dict if isinstance(default, dict) else default
    if callable(factory):
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def declared(one: Field[Any], by_source: bool = False, heading: str = "") -> Option:
    """The declaration of a phase's field."""
    said: Option = one.metadata[_OPTION]
    flag = f"--{one.name.replace('_', '-')}"
    return replace(
        said,
        name=one.name,
        default=None if one.default is MISSING else one.default,
        flags=(flag,) if said.flags == _AS_NAMED else said.flags,
        by_source=by_source or said.by_source,
        heading=said.heading or heading,
    )
