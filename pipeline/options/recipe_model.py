"""The keys of recipes, made from the declared options: their JSON Schema, and the check of a table:
values in their usual spelling, and every mistake in our words."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.options.build_options import NAME, OF_SOURCE, OPTIONS
from pipeline.options.many_values import Option
from pipeline.options.paths import BY_RECIPE
from pipeline.options.recipe_file import Mistakes
from pipeline.options.values import OneOf, Schema, misfit
from stages.errors import IrregularError, UsageError, did_you_mean
from stages.files.toml_file import Place

SCHEMA = Path(__file__).with_name("recipe.schema.json")

# What each table of a recipe may have. ``[[build]]`` names no data, since its builds are of one
# list, and nobody to notify, since a command ends once.
_OF_ALL = ("data", "notify")
TOP: dict[str, Option] = dict(OPTIONS)
SOURCE: dict[str, Option] = OF_SOURCE | {n: o for n, o in OPTIONS.items() if o.by_source}
BUILD: dict[str, Option] = {"name": NAME, **{n: o for n, o in OPTIONS.items() if n not in _OF_ALL}}


TABLES = {"source": SOURCE, "build": BUILD}


def keys(options: Mapping[str, Option]) -> dict[str, Option]:
    """Options by their keys in a recipe."""
    return {option.key: option for option in options.values()}


def schema() -> Schema:
    """The JSON Schema of recipes, for editors.

    It takes values in their usual spelling, or with a variable of the environment in them; the
    program also reads some others.
    """
    every = _properties(TOP)
    for name, sentence in _SENTENCES.items():
        items = {"$ref": f"#/definitions/{name.title()}"}
        every[name] = {"description": sentence, "items": items, "minItems": 1, "type": "array"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {
            "Build": _object(_properties(BUILD)),
            "Source": _object(_properties(SOURCE)) | {"required": ["name", "data"]},
        },
        "additionalProperties": False,
        "properties": every,
        "title": "Recipe of posttrain-pipeline",
        "type": "object",
        "allOf": [
            {"anyOf": [{"required": [key]}, {"required": [other]}]}
            for key, other in (("data", "source"), ("model", "build"), ("task", "build"))
        ],
    }


_SENTENCES = {
    "source": "One input, with what differs from the keys at the top.",
    "build": "One build of the sources, with what differs from the keys at the top.",
}


def _object(properties: Schema) -> Schema:
    return {"additionalProperties": False, "properties": properties, "type": "object"}


def _properties(options: Mapping[str, Option]) -> Schema:
    found = {}
    for option in options.values():
        found[option.key] = {"description": option.help, **option.value.spellings()}
        if (default := default_of(option)) not in (None, "", ()):
            found[option.key]["default"] = default
    return found


def schema_text() -> str:
    """The same as the package ships it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def default_of(option: Option) -> Any:
    """What a recipe has that says nothing of an option; a command may have another."""
    return BY_RECIPE if option.name == "keep" else option.default


def checked(table: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """A recipe's values by name, as ``Config`` has them; those that are wrong are left out and
    noted."""
    found = _checked(table, (), TOP, mistakes)
    for name, options in TABLES.items():
        if name not in table:
            continue
        listed = table[name] if isinstance(table[name], list) else []
        inner = [(number, one) for number, one in enumerate(listed) if isinstance(one, dict)]
        found[name] = [_checked(one, (name, number), options, mistakes) for number, one in inner]
        if not listed or len(inner) < len(listed):
            del found[name]
            mistakes.add((name,), f"{name} must be tables", f"Begin each with a line [[{name}]].")
    return found


def _checked(
    table: Mapping[str, Any], place: Place, options: Mapping[str, Option], mistakes: Mistakes
) -> dict[str, Any]:
    """The same of one of its tables."""
    known, found = keys(options), {}
    for key in [key for key in known if key in table]:
        option = known[key]
        try:
            value = option.value.loosened(table[key])
            wrong = misfit(value, option.value.schema())
            if wrong is None:
                found[option.name] = option.value.settled(value)
            else:
                mistakes.add((*place, key, *wrong), *_wrong(option, table[key]))
        except (UsageError, IrregularError) as error:
            mistakes.add((*place, key), error.what, error.remedy)
    for key in table:
        if key not in known and (place or key not in TABLES):
            mistakes.add((*place, key), *_unknown(place, key, known))
    return found


def _unknown(place: Place, key: str, known: Mapping[str, Option]) -> tuple[str, str]:
    """A key that is none, or none of its table."""
    table = f"[[{place[0]}]]" if place else "the top of a recipe"
    if key in keys(SOURCE) and key not in keys(TOP):
        return f"{key!r} is a key of [[source]], not of {table}", "Write it below [[source]]."
    if key == "data":
        return (
            f"{table} has no data: all builds are of the same sources",
            "Write it at the top, or below [[source]].",
        )
    if key in keys(TOP):
        return f"{key!r} is the same for all sources", "Write it at the top, above every table."
    tables = () if place else TABLES
    return (
        f"there is no option {key!r}",
        did_you_mean(key, [*known, *tables], most=1) or "See: pipeline run sft --help",
    )


def _wrong(one: Option, value: Any) -> tuple[str, str]:
    """A value that the option does not take."""
    if isinstance(one.value, OneOf) and isinstance(value, str):
        known = one.value.listed()
        if one.name == "task":
            return f"there is no task {value!r}", f"Known: {', '.join(known)}."
        return f"{one.key} {value!r} is not {one.value.words}", did_you_mean(value, known, most=1)
    return f"{one.key} must be {one.value.words}, not {value!r}", ""
