"""How rows are read, from a build's options: what formats are told, and what is left out."""

from __future__ import annotations

from pipeline.config import Config
from stages.contract import FormatOptions
from stages.selection import Selection, condition


def format_options(config: Config) -> FormatOptions:
    """What formats are told."""
    return FormatOptions(
        dict(config.map),
        config.neutral,
        config.prompt_separator,
        config.step_tag,
        config.already_templated,
        config.reasoning_in,
        config.system,
        config.null_fields,
    )


def selection_of(config: Config) -> Selection:
    """Which rows and columns are read."""
    return Selection(tuple(map(condition, config.where)), config.ignore)
