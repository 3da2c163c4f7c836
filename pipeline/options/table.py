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
        task: its name; ``data``: a path or several.
        table: options by their names on the command line, with ``_`` or ``-``; flags as booleans,
            options that may be given several times as lists, NAME=VALUE options as tables.
        where: what a message calls the table.

    Raises:
        UsageError: something of it is not an option, or has a value that the option does not take.
    """
    from pipeline.options import recipe, recipe_file  # what only recipes need takes a while

    mistakes = Mistakes(where)
    spelled = recipe_file.spelled({**table, "task": task, "data": data}, mistakes)
    (config,) = recipe.configs_of(spelled, mistakes, Path())
    return config
