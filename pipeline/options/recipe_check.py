"""A recipe's table checked by its model: typed values, and every mistake in our words."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pipeline.options import recipe_model as declared
from pipeline.options.mistakes import Mistakes, nearest
from pipeline.options.phases import Option
from pipeline.options.values import OneOf
from stages.errors import UsageError
from stages.files.toml_file import Place

TABLES = {"source": declared.SOURCE, "build": declared.BUILD}


def checked(table: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """A recipe's values by name, typed; those that are wrong are left out and noted."""
    left = copy.deepcopy(dict(table))
    while True:
        try:
            found: dict[str, Any] = (
                declared.model().model_validate(left).model_dump(exclude_unset=True)
            )
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
    return declared.keys(TABLES[str(place[0])] if len(place) > 1 else declared.TOP)


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
    if key in declared.keys(declared.SOURCE) and key not in declared.keys(declared.TOP):
        return f"{key!r} is a key of [[source]], not of {table}", "Write it below [[source]]."
    if key == "data":
        return (
            f"{table} has no data: all builds are of the same sources",
            "Write it at the top, or below [[source]].",
        )
    if key in declared.keys(declared.TOP):
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
