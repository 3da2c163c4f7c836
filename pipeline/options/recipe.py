"""From a recipe to the options of its builds: checked as a whole, and every mistake named."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pipeline.options import build_options as phases
from pipeline.options import command_line, paths, recipe_file, recipe_model
from pipeline.options.config import Config
from pipeline.options.source import Said, Source, with_test
from stages.errors import PipelineError, UsageError
from stages.files.toml_file import Place

_FLAG = re.compile(r"--([a-z-]+)")
_NEEDED = ("task", "data", "model")
Values = Mapping[str, Any]
Made = TypeVar("Made")


def builds_of(
    path: Path, changes: Sequence[str] = (), flags: Values | None = None, trust: bool = False
) -> tuple[Config, ...]:
    """The builds that a recipe describes, in its order.

    Args:
        changes: ``KEY=VALUE`` of ``--set``.
        flags: options of the command line, by name; each replaces what the recipe says of it.
        trust: the recipe may say what runs; else it is data, and only a command line may.

    Raises:
        UsageError: the file is not TOML, or something in it is no recipe; all mistakes are named.
    """
    table, mistakes = recipe_file.read(path, changes)
    for name, value in (flags or {}).items():
        option = phases.OPTIONS[name]
        for _, inner in recipe_file.tables(table):
            inner.pop(option.key, None)
        table[option.key] = value
        mistakes.said[(option.key,)] = option.flags[-1] if option.flags else f"--{option.key}"
    if not trust:
        _require_data(table, mistakes)
    return configs_of(table, mistakes, path.parent, path.stem, versions=True)


def _require_data(table: dict[str, Any], mistakes: recipe_file.Mistakes) -> None:
    """Nothing runs because the file says so."""
    for place, inner in recipe_file.tables(table):
        for key, value in inner.items():
            said = (*place, key) in mistakes.said
            if key in phases.BY_KEY and not said and phases.BY_KEY[key].value.runs(value):
                remedy = f"Say --{key} on the command line; or add --trust, if you trust the file."
                mistakes.add((*place, key), f"{key} runs code, and a recipe is data", remedy)


def notified_by(path: Path) -> str | None:
    """The command of a recipe's ``notify``, as far as it can be read; None where it has none."""
    try:
        table, _ = recipe_file.read(path)
    except (UsageError, OSError):
        return None
    found = phases.OPTIONS["notify"].value.loosened(table.get("notify"))
    return found if isinstance(found, str) and found.strip() else None


def configs_of(
    table: Values,
    mistakes: recipe_file.Mistakes,
    folder: Path,
    stem: str = "",
    versions: bool = False,
) -> tuple[Config, ...]:
    """The builds of a recipe's table.

    Args:
        folder: where builds go whose output is not said.
        stem: what builds of named sources are called then.
        versions: whether builds that say nothing of ``keep`` are versions (see ``output``).

    Raises:
        UsageError: the table has mistakes.
    """
    top = recipe_model.checked(table, mistakes)
    sources, builds = top.pop("source", None), top.pop("build", None)
    _require_named("source", sources or (), mistakes, needed=("name", "data"))
    _require_named("build", builds or (), mistakes)
    every = _Table({}, {}).below(top, ())
    made = []
    for number, own in enumerate([{}] if builds is None else builds):
        place: Place = () if builds is None else ("build", number)
        inner = every.below(own, place)
        reading = _Reading(inner, list(sources or ()), place, mistakes, said=(top, own))
        made.append(reading.config(folder, stem, versions))
    _require_apart(made, mistakes)
    mistakes.require_none()
    return tuple(filter(None, made))


def _require_named(
    kind: str, tables: Sequence[Values], mistakes: recipe_file.Mistakes, needed: Sequence[str] = ()
) -> None:
    """Each of some tables has the keys that it needs, and no two have one name."""
    seen: set[str] = set()
    for number, one in enumerate(tables):
        place: Place = (kind, number)
        for key in needed:
            if key not in one and (*place, key) not in mistakes.places:
                mistakes.add(place, f"it has no {key}", f"A {kind} needs {' and '.join(needed)}.")
        name = one.get("name")
        if name == "" or name in seen:
            why = f"two of them are called {name!r}" if name else "the name is empty"
            mistakes.add((*place, "name"), why, "Give each a name of its own.")
        seen |= {name} if name else set()


def _require_apart(made: Sequence[Config | None], mistakes: recipe_file.Mistakes) -> None:
    """No two builds go to the same place."""
    seen: dict[Path, int] = {}
    for number, output in enumerate(one.run.output if one else None for one in made):
        if output is None:
            continue
        first = seen.setdefault(output, number)
        if first != number:
            mistakes.add(
                ("build", number, "output"),
                f"builds {first + 1} and {number + 1} would both be written to {output}",
                "Give each an output of its own.",
            )


class _Table(NamedTuple):
    """Options by name, and the place at which each stands."""

    values: Values
    places: Mapping[str, Place]

    def below(self, own: Values, place: Place) -> "_Table":
        """The same with those of an inner table, which win."""
        places = {name: (*place, phases.EVERY[name].key) for name in own}
        return _Table({**self.values, **own}, {**self.places, **places})

    def of(self, error: PipelineError) -> Place:
        """The place of the option that an error is about."""
        words = [*_FLAG.findall(error.what), error.what.split()[0]]
        names = (phases.BY_KEY[word].name for word in words if word in phases.BY_KEY)
        return next((self.places[name] for name in names if name in self.places), ())


@dataclass(frozen=True, slots=True)
class _Reading:
    """One build of a recipe, while it is read.

    Attributes:
        said: the tables of the build, before any value of one took the place of another's.
    """

    table: _Table
    sources: list[Values]
    place: Place
    mistakes: recipe_file.Mistakes
    said: tuple[Values, ...]

    def config(self, folder: Path, stem: str, versions: bool) -> Config | None:
        """Its options; None where there is a mistake."""
        missing = [name for name in _NEEDED if self._lacks(name)]
        if missing:
            remedy = "A recipe needs task, model and data."
            self.mistakes.add(self.place, f"it has no {', '.join(missing)}", remedy)
        if self.sources and "data" in self.table.values:
            said = "data is at the top, and each [[source]] has its own"
            self.mistakes.add(self.table.places["data"], said, "Leave it out at the top.")
        self._require_read(self.table, self.table.values)
        sources, table = self._sources(), self.table
        if "task" not in table.values or "model" not in table.values:
            return None
        first = stem if self.sources else next(iter(table.values.get("data", ("data",))))
        named = command_line.default_output(first, table.values["task"], table.values["model"])
        with_defaults = {"output": folder / named, **table.values}
        notes: tuple[str, ...] = ()
        # The one default of a recipe that a command does not have.
        if versions and "keep" not in table.values:
            with_defaults["keep"], notes = paths.versions_where_unsaid(with_defaults["output"])
        made: dict[str, Any] = {
            phase: self._tried(partial(kind, **_of(phase, with_defaults)), table)  # type: ignore[misc]
            for phase, kind in phases.PHASES.items()
            if phase != "source"
        }
        if not sources or None in sources or None in made.values():
            return None
        read = tuple(one for one in sources if one is not None)

        def whole() -> Config:
            common = phases.SourceOptions(**{"data": (), **_of("source", table.values)})
            every = with_test(read, made["plan"].test, common)
            said = Said(self.said, tuple(self.sources))
            return Config(sources=every, notes=notes, said=said, **made)

        return self._tried(whole, table)

    def _lacks(self, name: str) -> bool:
        if name in self.table.values or (name == "data" and self.sources):
            return False
        # What is wrong is not missing, and neither is what may be in tables that are wrong.
        wrong = {(name,), (*self.place, name), ("source" if name == "data" else "build",)}
        return not wrong & self.mistakes.places

    def _sources(self) -> list[Source | None]:
        common = _of("source", self.table.values)
        table = _Table(common, self.table.places)
        if not self.sources:
            return [self._source(table, {})] if "data" in common else []
        return [
            self._source(table.below(own, ("source", number)), own)
            for number, own in enumerate(self.sources)
        ]

    def _source(self, table: _Table, own: Values) -> Source | None:
        """One source, from its keys and those of the top; None where there is a mistake."""
        self._require_read(table, own)
        if "data" not in table.values:
            return None
        amounts = {name: value for name, value in own.items() if name in phases.BUDGET}
        budget = self._tried(partial(phases.Budget, **amounts), table)
        options = self._tried(partial(phases.SourceOptions, **_of("source", table.values)), table)
        if options is None or budget is None:
            return None
        # What the top says of these is the build's, so it is no source's own.
        said: dict[str, Any] = {n: own.get(n) for n in ("max_reject", "license", "origin")}
        return Source(options, own.get("name", ""), budget=budget, **said)

    def _require_read(self, table: _Table, given: Values) -> None:
        """The build's task reads each option that is given, and is not what it is by default."""
        for name, foreign in command_line.unread(self.table.values.get("task"), given):
            self.mistakes.add(table.places[name], foreign, "Leave it out.")

    def _tried(self, make: Callable[[], Made], table: _Table) -> Made | None:
        """What a function makes; None where it refuses, which is noted as a mistake."""
        try:
            return make()
        except UsageError as error:
            self.mistakes.add(table.of(error), error.what, error.remedy)
        return None


def _of(phase: str, values: Values) -> dict[str, Any]:
    return {name: value for name, value in values.items() if phases.PHASE_OF.get(name) == phase}
