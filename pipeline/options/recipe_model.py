"""A recipe as a model of pydantic, made from the declared options, and its JSON Schema. A recipe's
table is checked by it: typed values, and every mistake in our words.

Only what reads a recipe imports this: pydantic takes longer to import than a command's help.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from pipeline.options.build_options import OPTIONS, Option
from pipeline.options.command_line import Mistakes, nearest
from pipeline.options.many_values import Pairs, Texts
from pipeline.options.output import BY_RECIPE
from pipeline.options.path_values import TextFiles
from pipeline.options.source_budgets import NAME, OF_SOURCE
from pipeline.options.values import AMOUNT, Amount, Command, OneOf
from stages.errors import UsageError
from stages.files.toml_file import Place

SCHEMA = Path(__file__).with_name("recipe.schema.json")
VARIABLE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
_STRICT = ConfigDict(extra="forbid", strict=True)

# What each table of a recipe may have. ``[[build]]`` names no data, since its builds are of one
# list, and nobody to notify, since a command ends once.
_OF_ALL = ("data", "notify")
TOP: dict[str, Option] = dict(OPTIONS)
SOURCE: dict[str, Option] = OF_SOURCE | {n: o for n, o in OPTIONS.items() if o.by_source}
BUILD: dict[str, Option] = {"name": NAME, **{n: o for n, o in OPTIONS.items() if n not in _OF_ALL}}


def _field(option: Option) -> Any:
    kind: Any = option.value.of_pydantic()
    loosened = Annotated[kind, BeforeValidator(option.value.loosened)]
    return (loosened, Field(default=None, alias=option.key, description=option.help))


def _table(name: str, options: Mapping[str, Option], **more: Any) -> type[BaseModel]:
    made: Any = {one.name: _field(one) for one in options.values()} | more
    return cast(type[BaseModel], create_model(name, __config__=_STRICT, **made))


@cache
def model() -> type[BaseModel]:
    """A recipe. Every key may be missing; which must be there is for who reads it to say."""
    source: Any = _table("Source", SOURCE)
    build: Any = _table("Build", BUILD)
    tables: dict[str, Any] = {
        "source": (list[source], Field(default=None, min_length=1, description=_SOURCES)),
        "build": (list[build], Field(default=None, min_length=1, description=_BUILDS)),
    }
    return _table("Recipe", TOP, **tables)


_SOURCES = "One input, with what differs from the keys at the top."
_BUILDS = "One build of the sources, with what differs from the keys at the top."


def keys(options: Mapping[str, Option]) -> dict[str, Option]:
    """Options by their keys in a recipe."""
    return {option.key: option for option in options.values()}


def schema() -> dict[str, Any]:
    """The JSON Schema of recipes, for editors.

    It takes values in their usual spelling, or with a variable of the environment in them; the
    program also reads some others.
    """
    made = model().model_json_schema(by_alias=True)
    tables = {"Source": SOURCE, "Build": BUILD}
    for name, options in tables.items():
        _improve(made["$defs"][name]["properties"], options)
        made["$defs"][name].pop("title", None)
    _improve(made["properties"], TOP)
    made["$defs"]["Source"]["required"] = ["name", "data"]
    for key in tables:
        made["properties"][key.lower()].pop("default", None)
        made["properties"][key.lower()].pop("title", None)
    made["title"] = "Recipe of posttrain-pipeline"
    made["allOf"] = [
        {"anyOf": [{"required": [key]}, {"required": [other]}]}
        for key, other in (("data", "source"), ("model", "build"), ("task", "build"))
    ]
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_draft_7(made)}


def schema_text() -> str:
    """The same as the package ships it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _improve(properties: dict[str, Any], options: Mapping[str, Option]) -> None:
    for option in options.values():
        said = properties[option.key]
        alone = {k: x for k, x in said.items() if k not in ("title", "description", "default")}
        properties[option.key] = {"description": option.help, **_spellings(option, alone)}
        default = _default(option)
        if default not in (None, "", ()):
            properties[option.key]["default"] = default


def _default(option: Option) -> Any:
    """What a recipe has that says nothing of an option; a command may have another."""
    return BY_RECIPE if option.name == "keep" else option.default


def _spellings(option: Option, alone: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value, and of how else a recipe may spell it."""
    value = option.value
    if isinstance(value, Pairs):
        inner = alone["additionalProperties"]
        if value.names:
            each = {"anyOf": _or_variable(inner | {"minimum": 0})}
            named = dict.fromkeys(value.names, each)
            return {"type": "object", "properties": named, "additionalProperties": False}
        nested = {"type": "object", "additionalProperties": inner}
        return {"type": "object", "additionalProperties": {"anyOf": [*_or_variable(inner), nested]}}
    if isinstance(value, Texts | TextFiles):
        return {"anyOf": [{"type": "string"}, alone]}
    ways = _or_variable(alone)
    if isinstance(value, Command):
        ways.append(_table_of_command(alone))
    if isinstance(value, Amount):
        ways.append({"type": "string", "pattern": f"^{AMOUNT.pattern}$"})
    return ways[0] if len(ways) == 1 else {"anyOf": ways}


def _table_of_command(alone: dict[str, Any]) -> dict[str, Any]:
    """The same as a table."""
    return {
        "type": "object",
        "properties": {"command": alone},
        "required": ["command"],
        "additionalProperties": False,
    }


def _or_variable(alone: dict[str, Any]) -> list[dict[str, Any]]:
    if alone == {"type": "string"}:
        return [alone]
    return [alone, {"type": "string", "pattern": VARIABLE}]


def _draft_7(value: Any) -> Any:
    """With the words of the draft that editors of TOML read."""
    if isinstance(value, dict):
        named = {"$defs": "definitions"}
        return {named.get(key, key): _draft_7(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_draft_7(one) for one in value]
    return value.replace("#/$defs/", "#/definitions/") if isinstance(value, str) else value


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Each key for the table of the docs: key, value, default, where, what for."""
    for option in {**OPTIONS, **OF_SOURCE}.values():
        where = ["top"] if option.name in TOP else []
        where += ["source"] if option.name in SOURCE else []
        where += ["build"] if option.name in BUILD else []
        value = _default(option)
        default = "" if value in (None, "", ()) else json.dumps(value)
        yield option.key, option.value.words, default, ", ".join(where), option.help


TABLES = {"source": SOURCE, "build": BUILD}


def checked(table: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """A recipe's values by name, typed; those that are wrong are left out and noted."""
    left = copy.deepcopy(dict(table))
    while True:
        try:
            found: dict[str, Any] = model().model_validate(left).model_dump(exclude_unset=True)
        except ValidationError as error:
            wrong = {_option_of(one["loc"]): one for one in reversed(error.errors())}
            for place, one in reversed(wrong.items()):
                _note(place, one, left, mistakes)
            for place in sorted(wrong, key=_from_the_end, reverse=True):
                _drop(left, place)
        else:
            return found


def _from_the_end(place: Place) -> tuple[tuple[str, int], ...]:
    return tuple(("", key) if isinstance(key, int) else (key, 0) for key in place)


def _option_of(loc: Place) -> Place:
    """The place of the option that an error of pydantic is in."""
    return loc[:3] if loc[0] in TABLES and len(loc) > 2 else loc[:1]


def _known(place: Place) -> dict[str, Option]:
    return keys(TABLES[str(place[0])] if len(place) > 1 else TOP)


def _note(place: Place, error: Any, table: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Say what is wrong with one option, in our words."""
    key, known = str(place[-1]), _known(place)
    if error["type"] == "extra_forbidden":
        mistakes.add(place, *_unknown(place, key, known))
        return
    if place[0] in TABLES and len(place) == 1:
        name = place[0]
        mistakes.add(place, f"{name} must be tables", f"Begin each with a line [[{name}]].")
        return
    reason = error.get("ctx", {}).get("error")
    if isinstance(reason, UsageError):
        mistakes.add(place, reason.what, reason.remedy)
        return
    value: Any = table
    for one in place:
        value = value[one]
    mistakes.add((*place, *error["loc"][len(place) :]), *_wrong(known[key], value))


def _unknown(place: Place, key: str, known: Mapping[str, Option]) -> tuple[str, str]:
    """A key that is none, or none of its table."""
    table = f"[[{place[0]}]]" if len(place) > 1 else "the top of a recipe"
    if key in keys(SOURCE) and key not in keys(TOP):
        return f"{key!r} is a key of [[source]], not of {table}", "Write it below [[source]]."
    if key == "data":
        return (
            f"{table} has no data: all builds are of the same sources",
            "Write it at the top, or below [[source]].",
        )
    if key in keys(TOP):
        return f"{key!r} is the same for all sources", "Write it at the top, above every table."
    tables = TABLES if len(place) == 1 else ()
    return (
        f"there is no option {key!r}",
        nearest(key, [*known, *tables]) or "See: pipeline run sft --help",
    )


def _wrong(option: Option, value: Any) -> tuple[str, str]:
    """A value that the option does not take."""
    if isinstance(option.value, OneOf) and isinstance(value, str):
        known = option.value.listed()
        if option.name == "task":
            return f"there is no task {value!r}", f"Known: {', '.join(known)}."
        return f"{option.key} {value!r} is not {option.value.words}", nearest(value, known)
    return f"{option.key} must be {option.value.words}, not {value!r}", ""


def _drop(table: Any, place: Place) -> None:
    for key in place[:-1]:
        table = table[key]
    del table[place[-1]]
