"""Recipes that were found right before: what checks one takes long to import.

Nothing but a recipe's table and this program's code decides what checking gives. Only recipes
without a mistake are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from pipeline.options.mistakes import Mistakes
from pipeline.options.phases import default_cache
from pipeline.recipe import kept_answers
from pipeline.recipe.fingerprints import code_version, hash_of
from pipeline.secrets import shown

FOLDER = "recipes"


def checked(table: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """What ``recipe_check.checked`` gives, from the cache where that has it."""
    cache = table.get("cache-dir")
    folder = Path(cache if isinstance(cache, str | PathLike) else default_cache()) / FOLDER
    key = hash_of([code_version(), _typed(table)])
    # Where something is wrong already, the folder may be wrong too. What is not shown is not kept.
    kept = not len(mistakes) and shown(repr(table)) == repr(table)
    known = kept_answers.read(folder, key) if kept else None
    if known is not None:
        return known
    from pipeline.options import recipe_check

    values = recipe_check.checked(table, mistakes)
    if kept and not len(mistakes):
        kept_answers.write(folder, key, values)
    return values


def _typed(value: Any) -> Any:
    """A value for a hash that differs wherever checking may: also by type."""
    if isinstance(value, Mapping):
        return {key: _typed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_typed(one) for one in value]
    return f"{type(value).__name__} {value}"
