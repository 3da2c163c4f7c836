"""Options as a table of a Python call, checked as a recipe is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.options.config import Config
from pipeline.options.mistakes import Mistakes


def config_of(task: object, data: object, table: Mapping[str, Any], where: str) -> Config:
    """The build that a table describes.

    Args:
        task: its name; ``data``: a path or several; None where the table has sources.
        table: options by their names on the command line, with ``_`` or ``-``; flags as booleans,
            options that may be given several times as lists, NAME=VALUE options as tables; sources
            as a list of tables.
        where: what a message calls the table.

    Raises:
        UsageError: something of it is not an option, or has a value that the option does not take.
    """
    from pipeline.options import recipe, recipe_file  # what only recipes need takes a while

    mistakes = Mistakes(where)
    given = {**table, "task": task} | ({} if data is None else {"data": data})
    spelled = recipe_file.spelled(given, mistakes)
    if spelled.pop("build", None) is not None:
        mistakes.add(("build",), "a call makes one build", f"Call {where} for each.")
    if spelled.pop("notify", None) is not None:
        mistakes.add(("notify",), "a call notifies nobody", "Leave it out: it returns or raises.")
    (config,) = recipe.configs_of(spelled, mistakes, Path())
    return config
